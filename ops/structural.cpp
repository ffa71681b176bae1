#include <algorithm>

#include "gradus/rules.h"
#include "ops/families.h"
#include "ops/size_names.h"

namespace gradus::ops {

const Tensor* constant_in(const ir::Node& node) {
  if (node.op != &record<Constant>()) return nullptr;
  return &attributes_as<Constant::Attr>(node.attributes).value;
}
ir::Node constant_node(Tensor value, ir::ValueId result, const SourceLocation& where) {
  return {
      &record<Constant>(), make_attributes(Constant::Attr{std::move(value)}), {}, {result}, where};
}
Value emit_constant(World& world, Tensor value) {
  return emit_all<Constant>(world, {}, {std::move(value)})[0];
}
bool is_undefined(const ir::Node& node) { return node.op == &record<Undefined>(); }
bool is_gradient(const ir::Node& node) { return node.op == &record<Grad>(); }
bool has_cotangent(const ir::Node& node) {
  return attributes_as<Grad::Attr>(node.attributes).cotangent;
}
bool is_call(const ir::Node& node) { return node.op == &record<Call>(); }
const Operator& call_operator() { return record<Call>(); }
Attributes call_attributes(GraphName graph) {
  return make_attributes(Call::Attr{std::move(graph), std::nullopt});
}

SmallVector<const GraphName*, 2> graphs_in(const ir::Node& node) {
  if (!node.op || !node.op->graphs || !node.attributes) return {};
  return node.op->graphs(node.attributes);
}

Attributes with_graphs(const ir::Node& node,
                       std::span<const std::shared_ptr<const ir::Graph>> graphs) {
  Attributes attributes = node.op->read(node.op->write(node.attributes));
  auto names = node.op->graphs(attributes);
  GRADUS_CHECK(names.size() == graphs.size());
  for (size_t i = 0; i < names.size(); ++i)  // nobody else has them yet
    const_cast<GraphName*>(names[i])->graph = graphs[i];
  return attributes;
}

Attributes with_literals(const ir::Node& node, const LiteralList& list) {
  Attributes attributes = node.op->read(list);
  if (!node.op->graphs) return attributes;
  SmallVector<std::shared_ptr<const ir::Graph>, 2> graphs;
  for (const GraphName* g : graphs_in(node)) graphs.push_back(g->graph);
  return with_graphs({node.op, attributes, {}, {}, {}}, graphs);
}

void Constant::infer(ir::InferCall& call) {
  const Tensor& t = attributes_as<Attr>(call.attributes).value;
  if (!t.defined()) call.fail("attribute 'value' is missing");
  Dims dims;
  for (int64_t n : t.shape()) dims.push_back(n);
  call.out.emplace_back(t.dtype(), std::move(dims));
}

void Undefined::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  call.out.emplace_back(a.dtype, a.shape);
}

void Grad::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const ir::Type& y = call.tensor(0);
  size_t first = a.cotangent ? 2 : 1;
  if (!y.is_floating())
    call.fail("only a floating value has a derivative; 'y' is {}", to_string(y));
  if (call.operands() <= first)
    call.fail("there is nothing to differentiate with respect to; write grad(%y, {}%x, ...)",
              a.cotangent ? "%ct, " : "");
  if (a.cotangent) {
    const ir::Type& ct = call.tensor(1);
    if (!(ct == cotangent_type(y)))
      call.fail("the cotangent is {}, it must have the type of 'y', {}", to_string(ct),
                to_string(cotangent_type(y)));
  } else if (y.rank() != 0) {
    call.fail(
        "'y' is {}; a gradient is taken of a 0-d value, or of a value with a cotangent: "
        "grad(%y, %ct, %x, ...) {{cotangent = true}}",
        to_string(y));
  }
  for (size_t i = first; i < call.operands(); ++i) {
    const ir::Type& x = call.tensor(i);
    if (!x.is_floating())
      call.fail("operand {} is {}; only floating values can be differentiated with respect to", i,
                to_string(x));
    call.out.push_back(cotangent_type(x));
  }
}

std::optional<Dim> Substitution::operator()(std::string_view symbol) const {
  for (const auto& [name, dim] : dims)
    if (name == symbol) return dim;
  return std::nullopt;
}

namespace {

// Finds a name that no input has as a bare size from an expression in it: K of f64[2*K + 1].
bool match_expression(const ir::InferCall& call, const ir::Graph& callee, Substitution& s) {
  const auto& inputs = callee.stages[0].inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Dims& want = callee[inputs[i]].type.dims;
    for (size_t d = 0; d < want.size(); ++d) {
      std::string unknown;
      bool one = true;
      want[d].for_each_symbol([&](std::string_view name) {
        if (s(name) || unknown == name) return;
        one = unknown.empty();
        unknown = name;
      });
      if (unknown.empty() || !one) continue;
      auto linear = want[d].linear_in(unknown);
      if (!linear) continue;
      Dim rest = linear->rest.substitute(s);
      s.dims.emplace_back(unknown, floor_div(call.tensor(i).dims[d] - rest, linear->coefficient));
      return true;
    }
  }
  return false;
}

}  // namespace

Substitution match_arguments(const ir::InferCall& call, const ir::Graph& callee) {
  const auto& inputs = callee.stages[0].inputs;
  if (call.operands() != inputs.size())
    call.fail("graph '{}' takes {} input{}, {} {} given", callee.name, inputs.size(),
              inputs.size() == 1 ? "" : "s", call.operands(), call.operands() == 1 ? "is" : "are");
  Substitution s;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type &want = callee[inputs[i]].type, &got = call.tensor(i);
    if (want.dtype != got.dtype || want.rank() != got.rank() || want.device != got.device ||
        !same_sharing(want, got))
      call.fail("input '{}' of graph '{}' is {}, {} is given", callee[inputs[i]].name, callee.name,
                to_string(want), to_string(got));
    for (size_t d = 0; d < want.dims.size(); ++d) {
      std::string_view symbol = want.dims[d].symbol_name();
      if (!symbol.empty() && !s(symbol)) s.dims.emplace_back(symbol, got.dims[d]);
    }
  }
  while (match_expression(call, callee, s)) {
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Type &want = callee[inputs[i]].type, &got = call.tensor(i);
    for (size_t d = 0; d < want.dims.size(); ++d)
      call.require_equal(want.dims[d].substitute(s), got.dims[d],
                         fmt::format("dimension {} of input '{}' of graph '{}'", d,
                                     callee[inputs[i]].name, callee.name));
  }
  return s;
}

void Call::infer(ir::InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  if (!a.graph.graph) call.fail("graph '{}' is not known here", a.graph.name);
  const ir::Graph& callee = *a.graph.graph;
  Substitution s = match_arguments(call, callee);
  for (const ir::Result& r : callee.stages[0].results) {
    if (r.value == ir::no_value)
      call.fail("graph '{}' returns `none` as '{}', which a call cannot", a.graph.name, r.name);
    ir::Type t = callee[r.value].type;
    for (Dim& d : t.dims) d = d.substitute(s);
    call.out.push_back(std::move(t));
  }
}

namespace {

// Dimension names within an attribute, replaced.
bool substitute_dims(Literal& l, const Substitution& s) {
  if (auto* d = std::get_if<Dim>(&l.value)) {
    if (d->is_constant()) return false;
    *d = d->substitute(s);
    return true;
  }
  bool any = false;
  if (auto* list = std::get_if<std::vector<Literal>>(&l.value))
    for (Literal& item : *list) any |= substitute_dims(item, s);
  return any;
}

Attributes substituted(const ir::Node& node, const Substitution& s) {
  LiteralList list = node.op->write(node.attributes);
  bool any = false;
  for (ir::NamedLiteral& a : list) any |= substitute_dims(a.value, s);
  return any ? with_literals(node, list) : node.attributes;
}

// The size that the node's data settle, where nothing has named it before.
std::string settled_by(const ir::Node& node, const Substitution& s) {
  const auto count = count_in(*node.op, node.attributes);
  if (!count) return {};
  const std::string_view name = count->symbol_name();
  return std::string(name.empty() || s(name) ? std::string_view() : name);
}

// In a world that has values: the size that the data settled there.
void settle(const ir::Graph& graph, const ir::Node& node, std::string_view name,
            std::span<const Value> results, Substitution& s) {
  for (size_t i = 0; i < results.size(); ++i) {
    const Dims& dims = graph[node.results[i]].type.dims;
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d].symbol_name() == name && !s(name))
        s.dims.emplace_back(name, results[i].dims()[d]);
  }
}

Attributes without_count(const ir::Node& node, const Attributes& attributes) {
  LiteralList list = node.op->write(attributes);
  std::erase_if(list, [](const ir::NamedLiteral& a) { return a.name == "count"; });
  return node.op->read(list);
}

// The value with the sizes that a graph's input says it has. They are what the caller passes, also
// where only a run can prove it.
Value as_input(const Value& x, const Dims& want) {
  if (x.dims() == want) return x;
  Dims proven = want;  // `expand` would stretch a 1, and not ask for equality
  for (size_t d = 0; d < want.size(); ++d)
    if (x.dims()[d] == Dim(1)) proven[d] = Dim(1);
  return reshape(expand(x, proven), want);
}

}  // namespace

ir::Graph with_sizes(const ir::Graph& graph, const Substitution& sizes) {
  ir::Graph g = graph;
  for (ir::Value& v : g.values)
    for (Dim& d : v.type.dims) d = d.substitute(sizes);
  for (ir::Node& node : g.stages[0].nodes) {
    node.attributes = substituted(node, sizes);
    for (ir::Operand& o : node.operands)
      if (auto* d = std::get_if<Dim>(&o)) *d = d->substitute(sizes);
  }
  return g;
}

SmallVector<Value, 2> emit_graph(World& world, const Operator& op, const ir::Graph& graph,
                                 std::span<const Value> inputs) {
  SmallVector<ir::OperandType, 4> types;
  for (const Value& v : inputs) types.push_back(v.operand_type());
  static const Attributes none = make_attributes(NoAttributes{});
  Substitution s = match_arguments(ir::InferCall{op, types, none, {}, nullptr}, graph);
  std::vector<Value> values(graph.values.size());
  const ir::Stage& stage = graph.stages[0];
  for (size_t i = 0; i < inputs.size(); ++i) {
    Dims want = graph[stage.inputs[i]].type.dims;
    for (Dim& d : want) d = d.substitute(s);
    values[index_of(stage.inputs[i])] = as_input(inputs[i], want);
  }
  for (const ir::Node& node : stage.nodes) {
    SmallVector<Value, 4> operands;
    for (const ir::Operand& o : node.operands) {
      if (const auto* id = std::get_if<ir::ValueId>(&o))
        operands.push_back(values[index_of(*id)]);
      else if (const auto* d = std::get_if<Dim>(&o))
        operands.push_back(Value::number(d->substitute(s)));
      else
        operands.push_back(Value{nullptr, o, {}, {}});
    }
    Attributes attributes = substituted(node, s);
    const std::string settled = settled_by(node, s);
    const bool has_data = !settled.empty() && operands[0].payload;
    if (has_data) attributes = without_count(node, attributes);
    auto results =
        world.emit_results(*node.op, std::move(attributes), operands, node.results.size());
    if (has_data) settle(graph, node, settled, results, s);
    for (size_t i = 0; i < results.size(); ++i) values[index_of(node.results[i])] = results[i];
  }
  SmallVector<Value, 2> out;
  for (const ir::Result& r : stage.results)
    out.push_back(r.value == ir::no_value ? Value() : values[index_of(r.value)]);
  return out;
}

void Call::compose(ComposeCall& c) {
  c.results = emit_graph(c.world, c.op, *c.attr<Attr>().graph.graph, c.operands);
}

bool Call::vjp_holds(const Attributes& attributes) {
  return attributes_as<Attr>(attributes).vjp.has_value();
}

void Call::vjp(VjpCall& d) {
  const Attr& a = d.attr<Attr>();
  SmallVector<Value, 4> inputs(d.operands);
  for (const Value& y : d.results) inputs.push_back(y);
  for (size_t i = 0; i < d.results.size(); ++i)
    if (d.y_type(i).is_floating()) inputs.push_back(d.dy(i));
  size_t floating = 0;
  for (const Value& x : d.operands) floating += x.type.is_floating();
  auto gradients = emit_graph(d.world, d.op, *a.vjp->graph, inputs);
  if (gradients.size() != floating)
    throw Error("{}: graph '{}' returns {} gradients for the {} floating inputs of '{}'", d.op.name,
                a.vjp->name, gradients.size(), floating, a.graph.name);
  size_t next = 0;
  for (size_t i = 0; i < d.operands.size(); ++i) {
    if (!d.x_type(i).is_floating()) continue;
    const Value& g = gradients[next++];
    if (!g.defined()) continue;
    if (!(g.type == d.x_type(i)))
      throw Error("{}: graph '{}' returns {} as the gradient of input {} of '{}', which is {}",
                  d.op.name, a.vjp->name, to_string(g.type), i, a.graph.name,
                  to_string(d.x_type(i)));
    d.give(i, [&] { return g; });
  }
}

std::span<const ir::Operator* const> structural_family() { return fold<StructuralOperators>(); }

}  // namespace gradus::ops
