#include "tests/corpus/hidden.h"

#include <atomic>
#include <map>
#include <set>

#include "ir/passes/passes.h"
#include "ir/text/verifier.h"
#include "tests/corpus/variable_walk.h"

namespace gradus::corpus {

namespace {

constexpr size_t most_hidden = 8;

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
  std::map<ir::ValueId, int> uses_inside, uses_outside;  // of the operands
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

Boundary boundary_of(const ir::Graph& graph, size_t begin, size_t end) {
  const ir::Stage& stage = graph.stages[0];
  Boundary b;
  std::set<ir::ValueId> inside, seen;
  for (size_t n = begin; n < end; ++n)
    inside.insert(stage.nodes[n].results.begin(), stage.nodes[n].results.end());
  std::map<ir::ValueId, int> elsewhere;
  bool differentiated_inside = false;
  for (size_t n = 0; n < stage.nodes.size(); ++n) {
    const ir::Node& node = stage.nodes[n];
    bool hidden = n >= begin && n < end, is_grad = node.op->name == "grad";
    for (size_t i = 0; i < node.operands.size(); ++i) {
      ir::ValueId v = value_in(node.operands[i]);
      if (v == ir::no_value) continue;
      if (!hidden) {
        ++elsewhere[v];
        differentiated_inside |= is_grad && i > 0 && inside.contains(v);
      } else if (!inside.contains(v)) {
        // A composition may use an operand often.
        b.uses_inside[v] += node.op->compose ? 2 : 1;
        if (seen.insert(v).second) b.operands.push_back(v);
      }
    }
  }
  for (const ir::Result& r : stage.results)
    if (r.value != ir::no_value) ++elsewhere[r.value];
  bool floating_operand = false, floating_result = false;
  for (size_t n = begin; n < end; ++n)
    for (ir::ValueId v : stage.nodes[n].results)
      if (elsewhere.contains(v)) {
        b.results.push_back(v);
        floating_result |= graph[v].type.is_floating();
      }
  Names names = match(graph, b.operands, [](size_t, size_t) { return ir::Dim(0); });
  bool named = true;
  for (const std::string& name :
       names_in(graph, std::span(stage.nodes).subspan(begin, end - begin)))
    named &= names.contains(name);
  for (ir::ValueId v : b.operands) {
    floating_operand |= graph[v].type.is_floating();
    b.uses_outside[v] = elsewhere.contains(v) ? elsewhere[v] : 0;
  }
  b.fits = floating_operand && floating_result && named && !differentiated_inside;
  return b;
}

// Stage 0 adds up nothing. If it is hidden whole, one engine makes all sums of every stage, as the
// sweep does; but a convolution's gradients of higher orders are other sums where sizes are known.
// Else an `eval` adds up what its function contributes to an operand before that meets what other
// nodes contribute; without the function each joins the sum in turn. In stage 1 the two are the
// same where only one side has several; from stage 2 on evals of two orders contribute, too.
// A `grad` makes stage 1 a second derivative. An absent operand is zeros for a function, which
// turns -0 into 0 in a sum that would leave it out.
size_t stages_of_same_bits(const ir::Graph& graph, const Boundary& b, size_t hidden) {
  bool convolves = false;
  for (const ir::Node& node : graph.stages[0].nodes) {
    if (node.op->name == "grad" || node.op->name == "call" || node.op->name == "undefined")
      return 1;
    convolves |= node.op->name.starts_with("conv");
  }
  bool whole = hidden == graph.stages[0].nodes.size();
  for (ir::ValueId v : b.operands) {
    if (b.uses_inside.at(v) > 1 && b.uses_outside.at(v) > 0) return 1;
    whole &= b.uses_outside.at(v) == 0;
  }
  if (whole && !convolves) return SIZE_MAX;
  return 2;
}

Hidden replace(ir::Graph graph, size_t begin, size_t end, const Boundary& b) {
  static std::atomic<int> hidden{0};
  std::string name = fmt::format("hidden.{}", hidden++);
  ir::Stage& stage = graph.stages[0];
  ir::Node node;
  node.op = &ops::operator_record<ops::CppOp>;
  node.attributes = node.op->read({{"name", name, {}}});
  node.where = stage.nodes[begin].where;
  for (ir::ValueId v : b.operands) node.operands.push_back(v);
  for (ir::ValueId v : b.results) node.results.push_back(v);

  ir::Graph body = graph;
  auto first = stage.nodes.begin() + static_cast<std::ptrdiff_t>(begin),
       last = stage.nodes.begin() + static_cast<std::ptrdiff_t>(end);
  body.stages[0] = {b.operands, {first, last}, {}};
  for (ir::ValueId v : b.results) body.stages[0].results.push_back({graph[v].name, v});
  ops::register_function(std::make_shared<NodesFunction>(name, std::move(body)));

  Hidden h;
  h.nodes = end - begin;
  h.same_bits = stages_of_same_bits(graph, b, h.nodes);
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

Hidden hide_nodes(const ir::Graph& graph) {
  ir::Graph forward = graph;
  forward.stages.resize(1);
  const std::vector<ir::Node>& nodes = forward.stages[0].nodes;
  for (size_t begin = 0; begin < nodes.size(); ++begin) {
    size_t end = begin;
    while (end < nodes.size() && end - begin < most_hidden && can_be_hidden(nodes[end])) ++end;
    for (; end > begin; --end)
      if (Boundary b = boundary_of(forward, begin, end); b.fits)
        return replace(std::move(forward), begin, end, b);
  }
  return {};
}

}  // namespace gradus::corpus
