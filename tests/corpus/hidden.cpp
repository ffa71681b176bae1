#include "tests/corpus/hidden.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/corpus/variable_walk.h"

namespace gradus::corpus {

namespace {

// Of a part; and parts that are tried.
constexpr size_t most_hidden = 8, most_tried = 40;

using Names = std::map<std::string, ir::Dim, std::less<>>;

// What the names that stand alone in the operands' types mean, given what the operands are.
Names match(const ir::Graph& graph, std::span<const ir::ValueId> operands,
            const std::function<ir::Dim(size_t operand, size_t dim)>& given) {
  Names names;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Dims& dims = graph[operands[i]].type.dims;
    for (size_t d = 0; d < dims.size(); ++d)
      if (auto name = dims[d].symbol_name(); !name.empty())
        names.emplace(std::string(name), given(i, d));
  }
  return names;
}

// Nodes of a program: its `body` is one stage of them, with the program's values.
class NodesFunction final : public autograd::CppFunction {
 public:
  NodesFunction(std::string name, ir::Graph body)
      : name_(std::move(name)), body_(std::move(body)) {}
  std::string name() const override { return name_; }

  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    if (operands.size() != stage().inputs.size())
      throw Error("it takes {} operands", stage().inputs.size());
    Names names = match(body_, stage().inputs, [&](size_t i, size_t d) {
      if (operands[i].rank() != body_[stage().inputs[i]].type.rank())
        throw Error("it takes the types of the nodes that it stands for");
      return operands[i].dims[d];
    });
    std::vector<ir::Type> types;
    for (const ir::Result& r : stage().results) {
      types.push_back(body_[r.value].type);
      for (ir::Dim& dim : types.back().dims)
        dim = dim.substitute([&](std::string_view name) -> std::optional<ir::Dim> {
          auto it = names.find(name);
          return it == names.end() ? std::nullopt : std::optional(it->second);
        });
    }
    return types;
  }

  autograd::Variables call(std::span<const autograd::Variable> operands) const override {
    Names names = match(body_, stage().inputs,
                        [&](size_t i, size_t d) { return operands[i].data().shape()[d]; });
    VariableWalk walk(body_, [&](std::string_view name) -> std::optional<int64_t> {
      auto it = names.find(name);
      return it == names.end() ? std::nullopt : it->second.constant();
    });
    for (size_t i = 0; i < operands.size(); ++i) walk.at(stage().inputs[i]) = operands[i];
    walk.run_stage(0);
    autograd::Variables results;
    for (const ir::Result& r : stage().results) results.push_back(walk.at(r.value));
    return results;
  }

 private:
  const ir::Stage& stage() const { return body_.stages[0]; }
  std::string name_;
  ir::Graph body_;
};

// What nodes of a stage take from outside, and what others see of them.
struct Boundary {
  std::vector<ir::ValueId> operands, results;
  bool fits = false;
};

void note_names(const ir::Literal& l, std::set<std::string>& names) {
  if (const auto* d = std::get_if<ir::Dim>(&l.value))
    d->for_each_symbol([&](std::string_view s) { names.emplace(s); });
  if (const auto* list = std::get_if<std::vector<ir::Literal>>(&l.value))
    for (const ir::Literal& item : *list) note_names(item, names);
}

// Names of sizes that running the nodes asks for.
std::set<std::string> names_in(const ir::Graph& graph, std::span<const ir::Node> nodes) {
  std::set<std::string> names;
  for (const ir::Node& node : nodes) {
    for (const ir::NamedLiteral& a : node.op->write(node.attributes)) note_names(a.value, names);
    for (const ir::Operand& o : node.operands)
      if (const auto* d = std::get_if<ir::Dim>(&o)) note_names(*d, names);
    for (ir::ValueId v : node.results)
      for (const ir::Dim& d : graph[v].type.dims) note_names(d, names);
  }
  return names;
}

// Whether a function of these operands can know the sizes that running the nodes asks for, and has
// something to differentiate.
bool fits(const ir::Graph& graph, const Boundary& b, std::span<const ir::Node> nodes) {
  auto floating = [&](ir::ValueId v) { return graph[v].type.is_floating(); };
  if (std::ranges::none_of(b.operands, floating) || std::ranges::none_of(b.results, floating))
    return false;
  Names names = match(graph, b.operands, [](size_t, size_t) { return ir::Dim(0); });
  return std::ranges::all_of(names_in(graph, nodes),
                             [&](const std::string& n) { return names.contains(n); });
}

Boundary boundary_of(const ir::Graph& graph, size_t begin, size_t end) {
  const ir::Stage& stage = graph.stages[0];
  Boundary b;
  std::set<ir::ValueId> inside, seen, elsewhere;
  for (size_t n = begin; n < end; ++n)
    inside.insert(stage.nodes[n].results.begin(), stage.nodes[n].results.end());
  for (size_t n = 0; n < stage.nodes.size(); ++n)
    for (const ir::Operand& o : stage.nodes[n].operands) {
      ir::ValueId v = value_in(o);
      if (v == ir::no_value) continue;
      if (n < begin || n >= end)
        elsewhere.insert(v);
      else if (!inside.contains(v) && seen.insert(v).second)
        b.operands.push_back(v);
    }
  for (const ir::Result& r : stage.results)
    if (r.value != ir::no_value) elsewhere.insert(r.value);
  auto nodes = std::span(stage.nodes).subspan(begin, end - begin);
  for (const ir::Node& node : nodes)
    for (ir::ValueId v : node.results)
      if (elsewhere.contains(v)) b.results.push_back(v);
  b.fits = fits(graph, b, nodes);
  return b;
}

// With the inputs that are returned: an output that is an input enters where the gradients of that
// arrive. Inputs that no node uses are there if it takes them to know the sizes.
Boundary boundary_of_all(const ir::Graph& graph) {
  const ir::Stage& stage = graph.stages[0];
  Boundary b = boundary_of(graph, 0, stage.nodes.size());
  std::set<ir::ValueId> used(b.operands.begin(), b.operands.end());
  for (const ir::Result& r : stage.results)
    if (std::ranges::count(stage.inputs, r.value) && !std::ranges::count(b.results, r.value)) {
      b.results.push_back(r.value);
      used.insert(r.value);
    }
  for (bool all : {false, true}) {
    b.operands.clear();
    std::ranges::copy_if(stage.inputs, std::back_inserter(b.operands),
                         [&](ir::ValueId v) { return all || used.contains(v); });
    b.fits = fits(graph, b, stage.nodes);
    if (b.fits) break;
  }
  return b;
}

Hidden replace(ir::Graph graph, size_t begin, size_t end, const Boundary& b) {
  static std::atomic<int> hidden{0};
  Hidden h;
  h.function = fmt::format("hidden.{}", hidden++);
  ir::Stage& stage = graph.stages[0];
  ir::Node node;
  node.op = &ops::operator_record<ops::CppOp>;
  node.attributes = node.op->read({{"name", h.function, {}}});
  node.where = stage.nodes[begin].where;
  for (ir::ValueId v : b.operands) node.operands.push_back(v);

  ir::Graph body = graph;
  auto first = stage.nodes.begin() + static_cast<std::ptrdiff_t>(begin),
       last = stage.nodes.begin() + static_cast<std::ptrdiff_t>(end);
  body.stages[0] = {b.operands, {first, last}, {}};
  for (ir::ValueId v : b.results) body.stages[0].results.push_back({graph[v].name, v});
  ops::register_function(std::make_shared<NodesFunction>(h.function, std::move(body)));

  for (ir::ValueId v : b.results) {
    bool is_input = std::ranges::count(b.operands, v) != 0;
    node.results.push_back(is_input ? graph.add_value(graph[v].type, {}, 0) : v);
    if (!is_input) continue;
    for (ir::Result& r : stage.results)
      if (r.value == v) r.value = node.results.back();
  }
  stage.nodes.insert(stage.nodes.erase(first, last), std::move(node));
  ir::compact(graph);
  ir::verify(graph);
  h.graph = std::move(graph);
  return h;
}

bool can_be_hidden(const ir::Node& node) {
  const ir::OperatorTraits& t = node.op->traits;
  return t.differentiable && !t.opaque && !t.structural;
}

}  // namespace

ir::Graph stage_to_hide(const Subject& subject) {
  ir::Graph graph = subject.graph;
  graph.stages.resize(1);
  ir::expand_grad(graph);
  ir::decompose(graph, true);
  ir::eliminate_dead_code(graph);  // handles of later stages
  ir::compact(graph);
  return graph;
}

Hidden hide_all(const ir::Graph& stage) {
  Boundary b = boundary_of_all(stage);
  return b.fits && !stage.stages[0].nodes.empty()
             ? replace(stage, 0, stage.stages[0].nodes.size(), b)
             : Hidden();
}

Hidden hide_some(const ir::Graph& stage, const std::function<bool(const Hidden&)>& accept) {
  const std::vector<ir::Node>& nodes = stage.stages[0].nodes;
  size_t tried = 0;
  for (size_t length = std::min(nodes.size() - 1, most_hidden); length > 0; --length)
    for (size_t begin = 0; begin + length <= nodes.size(); ++begin) {
      auto row = std::span(nodes).subspan(begin, length);
      if (!std::ranges::all_of(row, can_be_hidden)) continue;
      Boundary b = boundary_of(stage, begin, begin + length);
      if (!b.fits) continue;
      if (++tried > most_tried) return {};
      if (Hidden h = replace(stage, begin, begin + length, b); accept(h)) return h;
    }
  return {};
}

}  // namespace gradus::corpus
