#include "gradus/potential.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "gradus/inputs.h"
#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/rules.h"
#include "gradus/text.h"
#include "ir/passes/graph_world.h"

namespace gradus {

namespace {

// The inputs that a simulator gives.
enum Given : size_t { positions, species, edges, shifts, ghosts, strain };
struct Expected {
  const char* name;
  const char* type;
  bool optional;
};
constexpr std::array<Expected, 6> expected = {{{"positions", "f64[N, 3]", false},
                                               {"species", "i64[N]", true},
                                               {"edges", "i64[2, E]", false},
                                               {"shifts", "f64[E, 3]", false},
                                               {"ghosts", "bool[N]", true},
                                               {"strain", "f64[3, 3]", true}}};

bool has_type(const ir::Type& type, Given which) {
  auto is = [&](int rank, size_t dim, int64_t size) {
    return type.rank() == rank && type.dims[dim] == ir::Dim(size);
  };
  switch (which) {
    case positions:
    case shifts:
      return type.is_floating() && is(2, 1, 3);
    case strain:
      return type.is_floating() && is(2, 0, 3) && is(2, 1, 3);
    case edges:
      return type.dtype == DType::i64 && is(2, 0, 2);
    case species:
      return type.dtype == DType::i64 && type.rank() == 1;
    case ghosts:
      return type.dtype == DType::boolean && type.rank() == 1;
  }
  return false;
}

// By Given: which input of stage 0 it is; SIZE_MAX: none.
using Places = std::array<size_t, expected.size()>;

Places places_in(const ir::Graph& graph) {
  const auto& inputs = graph.stages[0].inputs;
  Places places;
  places.fill(SIZE_MAX);
  for (size_t k = 0; k < expected.size(); ++k) {
    const Expected& e = expected[k];
    for (size_t i = 0; i < inputs.size(); ++i)
      if (graph[inputs[i]].name == e.name) places[k] = i;
    if (places[k] == SIZE_MAX) {
      if (e.optional) continue;
      throw Error("graph '{0}' is no potential: stage 0 has no input '{1}'; add %{1}: {2}",
                  graph.name, e.name, e.type);
    }
    const ir::Type& type = graph[inputs[places[k]]].type;
    if (!has_type(type, static_cast<Given>(k)))
      throw Error("graph '{}' is no potential: its input '{}' is {}, and has to be as {}",
                  graph.name, e.name, to_string(type), e.type);
  }
  return places;
}

ir::ValueId energies_of(const ir::Graph& graph) {
  const auto& results = graph.stages[0].results;
  const ir::Result* found = results.size() == 1 ? &results[0] : nullptr;
  for (const ir::Result& r : results)
    if (r.name == "energies") found = &r;
  if (!found)
    throw Error("graph '{}' is no potential: it has {} results, and none is called 'energies'",
                graph.name, results.size());
  if (found->value == ir::no_value)
    throw Error("graph '{}' is no potential: '{}' is none", graph.name, found->name);
  const ir::Type& type = graph[found->value].type;
  if (!type.is_floating() || type.rank() != 1)
    throw Error(
        "graph '{}' is no potential: '{}' is {}, and has to be the energy of each atom, f64[N]",
        graph.name, found->name, to_string(type));
  return found->value;
}

// Stage 0 with these results: energies of all atoms, and their sum over those that are no ghosts.
ir::Graph summed(const ir::Graph& program) {
  ir::Graph graph = program;
  graph.stages.resize(1);
  ir::compact(graph);
  Places places = places_in(graph);
  const ir::ValueId energies = energies_of(graph);
  ir::Stage& stage = graph.stages[0];
  if (places[ghosts] == SIZE_MAX) {
    places[ghosts] = stage.inputs.size();
    const ir::Dim atoms = graph[stage.inputs[places[positions]]].type.dims[0];
    stage.inputs.push_back(
        graph.add_value(ir::Type(DType::boolean, {atoms}), expected[ghosts].name, 0));
  }
  ir::GraphWorld world(graph, 0, stage.nodes);
  const ops::Value own = ops::logical_not(world.value(stage.inputs[places[ghosts]]));
  const ops::Value energy = ops::sum_all(ops::keep_where(own, world.value(energies)));
  stage.results = {{"energies", energies}, {"energy", ir::GraphWorld::id_of(energy)}};
  ir::verify(graph);
  return graph;
}

void require_slopes(const ir::Graph& graph) {
  for (const ir::Result& r : graph.stages[1].results)
    if (r.value == ir::no_value && r.name.starts_with("d1_"))
      throw Error("graph '{}' is no potential: its energies do not depend on '{}'", graph.name,
                  r.name.substr(3));
}

// One stage: the energies, and the slopes of their sum by positions and by shifts.
ir::Graph with_slopes(const ir::Graph& graph) {
  const ir::Graph all = ir::differentiate(
      graph, {.order = 1, .wrt = {{expected[positions].name, expected[shifts].name}}});
  require_slopes(all);
  return ir::join_stages(all, 0, {"ct1_energies"});
}

// Three stages, the last of which gives rows of the Hessian.
ir::Graph with_hessian(const ir::Graph& graph) {
  const ir::Graph all = ir::differentiate(graph, {.order = 2, .wrt = {{expected[positions].name}}});
  return ir::batch_cotangents(all, ir::Dim::symbol("hessian_rows"));
}

// Itself, where that is what it is.
Tensor as(const Tensor& t, DType dtype) {
  return t.dtype() == dtype ? t.contiguous() : t.to(dtype);
}

size_t result_named(const Code& code, size_t stage, std::string_view name) {
  const auto& results = code.results(stage);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].name == name) return i;
  throw InternalError(fmt::format("no result {}", name));
}

// Zeros for all edges, of which one lies in memory.
Tensor no_shifts(DType dtype, int64_t edges) {
  Layout layout(dtype, Sizes{edges, 3});
  layout.strides = {0, 0};
  return Tensor::zeros(dtype, Sizes{1}).view(std::move(layout), 0);
}

void require_shape(const Tensor& t, Sizes shape, const char* name) {
  if (!t.defined()) throw Error("'{}' is missing", name);
  if (std::ranges::equal(t.shape(), shape)) return;
  throw Error("'{}' is {}, and has to be [{}]", name, describe(t), fmt::join(shape, ", "));
}

// What copies of a potential share.
struct Compiled {
  ir::Graph graph;  // one stage
  PotentialFacts facts;
  std::shared_ptr<Context> context;
  StateOptions options;
  std::shared_ptr<const Code> code;
  // Of stage 0: weights; undefined: what a simulator gives.
  std::vector<Tensor> inputs;
  Places places;
  std::once_flag twice_once;
  std::shared_ptr<const Code> twice;  // with the second derivative by positions

  const std::shared_ptr<const Code>& code_of_hessian() {
    std::call_once(twice_once, [&] { twice = Code::compile(with_hessian(graph)); });
    return twice;
  }
};

}  // namespace

struct Potential::Impl {
  explicit Impl(std::shared_ptr<Compiled> c)
      : p(std::move(c)), state(p->code, p->context, p->options) {}

  // Of the program's own inputs.
  std::vector<Tensor> inputs_for(const PotentialInput& in) const;
  void check(const PotentialInput& in) const;
  void prepare_for(std::span<const Tensor> inputs);
  PotentialOutput run(const PotentialInput& in);
  DType dtype() const {
    return p->graph[p->graph.stages[0].inputs[p->places[positions]]].type.dtype;
  }

  std::shared_ptr<Compiled> p;
  State state;
  DimSizes prepared;
  std::vector<Tensor> results;  // of the last run: memory for the next, if nobody else has them
};

void Potential::Impl::check(const PotentialInput& in) const {
  if (!in.positions.defined() || in.positions.rank() != 2)
    throw Error("'positions' is {}, and has to be f64[N, 3]", describe(in.positions));
  if (!in.edges.defined() || in.edges.rank() != 2)
    throw Error("'edges' is {}, and has to be i64[2, E]", describe(in.edges));
  const int64_t n = in.positions.shape()[0], e = in.edges.shape()[1];
  require_shape(in.positions, {n, 3}, "positions");
  require_shape(in.edges, {2, e}, "edges");
  if (in.shifts.defined()) require_shape(in.shifts, {e, 3}, "shifts");
  if (in.ghosts.defined()) require_shape(in.ghosts, {n}, "ghosts");
  if (!in.species.defined()) return;
  require_shape(in.species, {n}, "species");
  const auto known = static_cast<int64_t>(p->facts.species.size());
  if (known == 0) return;
  const Tensor numbers = as(in.species, DType::i64);
  for (int64_t i = 0; i < n; ++i)
    if (const int64_t s = numbers.data_as<int64_t>()[i]; s < 0 || s >= known)
      throw Error("atom {} is of species {}, and the potential has {}: {}", i, s, known,
                  fmt::join(p->facts.species, ", "));
}

std::vector<Tensor> Potential::Impl::inputs_for(const PotentialInput& in) const {
  check(in);
  const int64_t n = in.positions.shape()[0];
  std::array<Tensor, expected.size()> given{in.positions, in.species, in.edges,
                                            in.shifts,    in.ghosts,  {}};
  if (!given[species].defined()) given[species] = Tensor::zeros(DType::i64, Sizes{n});
  if (!given[ghosts].defined()) given[ghosts] = Tensor::zeros(DType::boolean, Sizes{n});
  const bool is_shifted = given[shifts].defined();
  given[strain] = Tensor::zeros(dtype(), Sizes{3, 3});
  std::vector<Tensor> inputs = p->inputs;
  for (size_t k = 0; k < expected.size(); ++k) {
    if (p->places[k] == SIZE_MAX) continue;
    const ir::ValueId v = p->graph.stages[0].inputs[p->places[k]];
    const DType wanted = p->graph[v].type.dtype;
    inputs[p->places[k]] =
        k == shifts && !is_shifted ? no_shifts(wanted, in.edges.shape()[1]) : as(given[k], wanted);
  }
  return inputs;
}

Potential::Potential(const ir::Graph& program, const NamedTensors& weights, PotentialFacts facts,
                     std::shared_ptr<Context> context, FusionMode fusion) {
  auto p = std::make_shared<Compiled>();
  if (!(facts.cutoff > 0))
    throw Error("the cutoff of a potential is greater than 0; {} is not", facts.cutoff);
  p->graph = summed(program);
  p->places = places_in(p->graph);
  p->facts = std::move(facts);
  p->context = std::move(context);
  p->options.fusion = fusion;
  p->code = Code::compile(with_slopes(p->graph));
  const auto& inputs = p->graph.stages[0].inputs;
  std::vector<std::string> missing;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Value& input = p->graph[inputs[i]];
    p->inputs.emplace_back();
    if (std::ranges::find(p->places, i) != p->places.end()) continue;
    if (auto found = weights.find(input.name); found == weights.end())
      missing.push_back(fmt::format("{} {}", input.name, to_string(input.type)));
    else
      p->inputs.back() = convert_exactly(found->second, input.type.dtype, input.name);
  }
  if (!missing.empty())
    throw Error(
        "graph '{}' has inputs that no weights are found for: {}; give a file that has them by "
        "name (check-potential: --weights FILE)",
        p->graph.name, fmt::join(missing, ", "));
  impl_ = std::make_unique<Impl>(std::move(p));
}

Potential::Potential(const Potential& other) : impl_(std::make_unique<Impl>(other.impl_->p)) {}
Potential::Potential(Potential&&) noexcept = default;
Potential& Potential::operator=(Potential&&) noexcept = default;
Potential::~Potential() = default;

const PotentialFacts& Potential::facts() const { return impl_->p->facts; }
const std::shared_ptr<const Code>& Potential::code() const { return impl_->p->code; }
bool Potential::is_f64() const { return impl_->dtype() == DType::f64; }

// What runs on these sizes then finds its memory there.
void Potential::Impl::prepare_for(std::span<const Tensor> inputs) {
  DimSizes sizes;
  for (size_t i = 0; i < p->graph.stages[0].inputs.size(); ++i) {
    const ir::Type& type = p->graph[p->graph.stages[0].inputs[i]].type;
    for (size_t d = 0; d < type.dims.size() && d < inputs[i].shape().size(); ++d)
      if (const std::string_view name = type.dims[d].symbol_name(); !name.empty())
        sizes.emplace(name, inputs[i].shape()[d]);
  }
  if (sizes == prepared) return;
  prepared = sizes;
  results.clear();
  try {
    state.prepare(sizes);
  } catch (const Error&) {
    // Where data decide a size, or sizes do not fit: the run plans, or says so.
    state.restart();
  }
}

PotentialOutput Potential::Impl::run(const PotentialInput& in) {
  std::vector<Tensor> inputs = inputs_for(in);
  inputs.push_back(Tensor::scalar(dtype(), 1));
  state.restart();
  prepare_for(inputs);
  results.resize(p->code->results(0).size());
  for (Tensor& t : results)
    if (t.defined() && !t.sole_owner()) t = {};
  state.run_into(inputs, results);
  auto result = [&](std::string_view name) {
    return as(results[result_named(*p->code, 0, name)], DType::f64);
  };
  PotentialOutput out;
  out.energy = result("energy").item();
  out.energies = result("energies");
  out.pulls = result("d1_shifts");
  out.forces = result("d1_positions");
  auto* const f = out.forces.mutable_data_as<double>();
  for (int64_t i = 0; i < out.forces.numel(); ++i) f[i] = -f[i];
  return out;
}

PotentialOutput Potential::run(const PotentialInput& input) { return impl_->run(input); }

Tensor Potential::hessian(const PotentialInput& input) {
  const std::shared_ptr<const Code>& code = impl_->p->code_of_hessian();
  const DType dtype = impl_->dtype();
  const int64_t n = input.positions.defined() ? input.positions.shape()[0] : 0;
  State state(code, impl_->p->context, impl_->p->options);
  const std::vector<Tensor> sums = state.run(impl_->inputs_for(input));
  state.run(std::vector<Tensor>{Tensor(), Tensor::scalar(sums[1].dtype(), 1)});
  std::vector<double> unit(static_cast<size_t>(9 * n * n), 0);
  for (size_t i = 0; i < static_cast<size_t>(3 * n); ++i)
    unit[i * static_cast<size_t>(3 * n) + i] = 1;
  const Tensor rows = Tensor::from(dtype, Sizes{3 * n, n, 3}, unit);
  const std::vector<Tensor> found = state.run(std::vector<Tensor>{rows});
  const Tensor& h = found[result_named(*code, 2, "d2_positions")];
  if (!h.defined()) return Tensor::zeros(DType::f64, Sizes{3 * n, 3 * n});
  const Tensor flat = as(h, DType::f64);
  return flat.view(Layout(DType::f64, Sizes{3 * n, 3 * n}), flat.offset());
}

namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> list;
  for (size_t at = 0; (at = text.find_first_not_of(" ,", at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    list.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return list;
}

double number_in(const std::string& text) {
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || end != text.data() + text.size())
    throw Error("the weights' metadata: 'cutoff' must be a number, not '{}'", printable(text));
  return number;
}

PotentialFacts facts_of(const ImportedProgram& imported, const PotentialOptions& options) {
  PotentialFacts facts;
  auto find = [&](std::string_view key) {
    const auto at = imported.metadata.find(key);
    return at == imported.metadata.end() ? std::string() : at->second;
  };
  const auto weight = imported.weights.find("cutoff");
  if (options.cutoff)
    facts.cutoff = *options.cutoff;
  else if (const std::string cutoff = find("cutoff"); !cutoff.empty())
    facts.cutoff = number_in(cutoff);
  else if (weight != imported.weights.end() && weight->second.numel() == 1)
    facts.cutoff = weight->second.item();
  else
    throw Error(
        "no cutoff is known: the weights' metadata have no 'cutoff', and no weight is called so; "
        "add that key, or give the cutoff (check-potential: --cutoff LENGTH)");
  facts.species = options.species.empty() ? words(find("species")) : options.species;
  if (const std::string units = options.units.empty() ? find("units") : options.units;
      !units.empty())
    facts.units = units;
  return facts;
}

// Throws Error for what `check_potential` finds.
void refuse_faults(Potential& potential, const std::string& program, bool own_edges) {
  for (const PotentialCheck& c : check_potential(potential, {.brief = true}))
    if ((c.needed || own_edges) && !c.passed())
      throw Error(
          "{}: the potential fails the check '{}' ({}): its error is {:.2g}, at most {:.2g} is "
          "allowed; `gradus check-potential` prints all checks",
          program, c.name, c.what, c.error, c.allowed);
}

}  // namespace

Potential Potential::load(const std::string& program, const std::string& weights,
                          const PotentialOptions& options, std::shared_ptr<Context> context) {
  ImportedProgram imported = import_program(program);
  if (!weights.empty()) {
    const TensorFile file(weights);
    for (const std::string& name : file.names())
      imported.weights.insert_or_assign(name, file.read(name, *context));
    for (const auto& [key, value] : file.metadata()) imported.metadata.insert_or_assign(key, value);
  }
  try {
    places_in(imported.module.program());  // that it is no potential is said before what it lacks
    Potential potential(imported.module.program(), imported.weights, facts_of(imported, options),
                        std::move(context), options.fusion);
    if (options.check) refuse_faults(potential, program, options.own_edges);
    return potential;
  } catch (const Error& e) {
    if (e.where().known() || e.bare().starts_with(program)) throw;
    throw Error("{}: {}", program, e.bare());
  }
}

namespace {

// Calls f(atom, neighbour, vector, pull) for each edge.
template <class F>
void for_each_edge(const PotentialInput& in, const PotentialOutput& out, F f) {
  const Tensor x = as(in.positions, DType::f64), list = as(in.edges, DType::i64);
  const Tensor shift = in.shifts.defined() ? as(in.shifts, DType::f64) : Tensor();
  const int64_t n = x.shape()[0], count = list.shape()[1];
  require_shape(out.pulls, {count, 3}, "pulls");
  const auto *xs = x.data_as<double>(), *g = out.pulls.data_as<double>();
  const double* const s = shift.defined() ? shift.data_as<double>() : nullptr;
  const auto* const pairs = list.data_as<int64_t>();
  for (int64_t e = 0; e < count; ++e) {
    const int64_t i = pairs[e], j = pairs[count + e];
    if (i < 0 || i >= n || j < 0 || j >= n)
      throw Error("edge {} leads from atom {} to atom {}, and there are {}", e, i, j, n);
    std::array<double, 3> r;
    for (size_t a = 0; a < 3; ++a)
      r[a] = xs[3 * j + static_cast<int64_t>(a)] - xs[3 * i + static_cast<int64_t>(a)] +
             (s ? s[3 * e + static_cast<int64_t>(a)] : 0);
    f(i, j, r, g + 3 * e);
  }
}

Voigt share(const std::array<double, 3>& r, const double* pull) {
  auto at = [&](size_t a, size_t b) { return -0.5 * (r[a] * pull[b] + r[b] * pull[a]); };
  return {at(0, 0), at(1, 1), at(2, 2), at(1, 2), at(0, 2), at(0, 1)};
}

}  // namespace

Voigt virial(const PotentialInput& input, const PotentialOutput& output) {
  Voigt sum{};
  for_each_edge(input, output, [&](int64_t, int64_t, const auto& r, const double* pull) {
    const Voigt s = share(r, pull);
    for (size_t k = 0; k < 6; ++k) sum[k] += s[k];
  });
  return sum;
}

Tensor atom_virials(const PotentialInput& input, const PotentialOutput& output) {
  Tensor all = Tensor::zeros(DType::f64, Sizes{input.positions.shape()[0], 6});
  auto* const by_atom = all.mutable_data_as<double>();
  for_each_edge(input, output, [&](int64_t i, int64_t j, const auto& r, const double* pull) {
    const Voigt s = share(r, pull);
    for (size_t k = 0; k < 6; ++k) {
      by_atom[6 * i + static_cast<int64_t>(k)] += 0.5 * s[k];
      by_atom[6 * j + static_cast<int64_t>(k)] += 0.5 * s[k];
    }
  });
  return all;
}

}  // namespace gradus
