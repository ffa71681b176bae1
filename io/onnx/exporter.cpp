#include "io/onnx/exporter.h"

#include <algorithm>

#include "gradus/passes.h"
#include "gradus/rewrite.h"
#include "io/onnx/item.h"

namespace gradus::onnx {

ExportCall::ExportCall(ModelWriter& writer, const ir::Graph& graph, const ir::Node& n,
                       const std::unordered_map<uint32_t, Wire>& wires)
    : to(writer), node(n), graph_(graph), wires_(wires) {
  attributes_ = node.op->describe();
  for (ir::NamedLiteral& written : node.op->write(node.attributes)) {
    auto it = std::ranges::find(attributes_, written.name, &ir::NamedLiteral::name);
    GRADUS_CHECK(it != attributes_.end());
    *it = std::move(written);
  }
}

bool ExportCall::is_tensor(size_t i) const {
  return i < operands() && ir::value_in(node.operands[i]) != ir::no_value;
}
const ir::Type& ExportCall::type(size_t i) const {
  GRADUS_CHECK(is_tensor(i));
  return graph_[ir::value_in(node.operands[i])].type;
}
const ir::Type& ExportCall::y_type(size_t i) const { return graph_[node.results[i]].type; }

Wire ExportCall::x(size_t i, DType dtype) {
  const ir::Operand& operand = node.operands[i];
  if (ir::ValueId v = ir::value_in(operand); v != ir::no_value)
    return to.cast(wires_.at(ir::index_of(v)), graph_[v].type.dtype, dtype);
  if (const Dim* d = std::get_if<Dim>(&operand))
    return to.cast(to.scalar_size(*d), DType::i64, dtype);
  GRADUS_CHECK(std::holds_alternative<ir::Number>(operand));
  return to.number(dtype, std::get<ir::Number>(operand));
}

const ir::Literal& ExportCall::attribute(std::string_view name) const {
  auto it = std::ranges::find(attributes_, name, &ir::NamedLiteral::name);
  GRADUS_CHECK(it != attributes_.end());
  return it->value;
}

namespace {

template <class T>
T read(const ir::Literal& literal) {
  T value{};
  std::string what;
  GRADUS_CHECK(ops::read_literal(literal, value, what));
  return value;
}

}  // namespace

int64_t ExportCall::integer(std::string_view name) const {
  Dim d = dim(name);
  if (!d.is_constant()) refuse(fmt::format("{} = {}, which only sizes tell", name, d.to_string()));
  return d.value();
}
bool ExportCall::flag(std::string_view name) const { return read<bool>(attribute(name)); }
double ExportCall::real(std::string_view name) const { return read<double>(attribute(name)); }
std::string ExportCall::text(std::string_view name) const {
  return read<std::string>(attribute(name));
}
Ints ExportCall::integers(std::string_view name) const { return read<Ints>(attribute(name)); }
Ints ExportCall::integers(std::string_view name, size_t count) const {
  Ints list = integers(name);
  if (list.size() == 1) list.assign(count, list[0]);
  return list;
}
bool ExportCall::exact(double value) const {
  return y_type().dtype != DType::f64 || static_cast<double>(single(value)) == value;
}
Dim ExportCall::dim(std::string_view name) const { return read<Dim>(attribute(name)); }
Dims ExportCall::dims(std::string_view name) const { return read<Dims>(attribute(name)); }

int64_t ExportCall::axis_of(std::string_view name, int64_t rank) const {
  int64_t axis = integer(name);
  return axis < 0 ? axis + rank : axis;
}

Ints ExportCall::axes(std::string_view name) const {
  Ints out;
  if (!is_none(name)) out = integers(name);
  for (int64_t& d : out)
    if (d < 0) d += std::max(rank(), 1);
  std::ranges::sort(out);
  return out.empty() ? in_order(rank()) : out;
}

void ExportCall::refuse(const std::string& what) const {
  throw Unsupported(fmt::format("{}: a model cannot say {}", node.op->name, what),
                    fmt::format("operator {}: {}", node.op->name, what));
}

namespace {

// By its own rule, or as a pointwise operator.
Wires exported(ExportCall& call) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const ExportEntry*> t;
    for (ExportRules family : {pointwise_exports, shape_exports, reduction_exports, network_exports,
                               indexing_exports, window_exports, control_exports})
      for (const ExportEntry& e : family) t.emplace(e.name, &e);
    return t;
  }();
  Wires results;
  if (auto it = table.find(call.node.op->name); it != table.end()) {
    call.onnx = it->second->onnx;
    results = it->second->rule(call);
  }
  return results.empty() ? export_pointwise(call) : results;
}

// The forward stage alone, with all that later stages differentiate still whole.
ir::Graph first_stage(const ir::Graph& program) {
  ir::Graph graph = program;
  graph.stages.resize(1);
  ir::settle_calls(graph);
  ir::expand_grad(graph);
  ir::fold_constants(graph, ir::Created::stay);  // a table of positions is no weight
  ir::eliminate_dead_code(graph);
  return graph;
}

// The nodes of a graph of one stage.
class GraphExport {
 public:
  GraphExport(const ir::Graph& program, ModelWriter& writer)
      : graph_(first_stage(program)), substitute_(graph_), writer_(writer) {}

  const ir::Graph& graph() const { return graph_; }
  void give(ir::ValueId input, Wire wire) { wires_[ir::index_of(input)] = std::move(wire); }

  void write_nodes() {
    std::vector<ir::Node> pending(graph_.stages[0].nodes.rbegin(), graph_.stages[0].nodes.rend());
    while (!pending.empty()) {
      ir::Node node = std::move(pending.back());
      pending.pop_back();
      substitute_.apply(node);
      if (emit(node)) continue;
      std::vector<ir::Node> parts;
      ir::take_apart(graph_, 0, node, parts, substitute_);
      for (; !parts.empty(); parts.pop_back()) pending.push_back(std::move(parts.back()));
    }
  }

  // What the graph returns, and the wires of it.
  struct Output {
    std::string name;
    Wire wire;
    ir::Type type;
  };
  std::vector<Output> outputs() const {
    auto results = graph_.stages[0].results;
    substitute_.apply(results);
    std::vector<Output> found;
    for (const ir::Result& r : results) {
      if (r.value == ir::no_value) continue;
      const ir::Type& type = graph_[r.value].type;
      if (!type.is_tensor())
        throw Unsupported(fmt::format("result {} is a handle; a model returns tensors", r.name),
                          "handles");
      found.push_back({r.name, wires_.at(ir::index_of(r.value)), type});
    }
    return found;
  }

 private:
  // False for a composition that no rule is for.
  bool emit(const ir::Node& node) {
    ExportCall call(writer_, graph_, node, wires_);
    Wires results;
    try {
      results = exported(call);
      if (results.empty() && node.op->runs_composed(node.attributes)) return false;
      if (results.empty())
        throw Unsupported(fmt::format("{}: there is no ONNX operator for it", node.op->name),
                          fmt::format("operator {}", node.op->name));
    } catch (const Unsupported& e) {
      if (!node.where.known() || e.where().known()) throw;
      throw Unsupported(graph_.error_at(node.where, e.bare()), e.reason());
    }
    GRADUS_CHECK(results.size() == node.results.size());
    for (size_t i = 0; i < node.results.size(); ++i) {
      uint32_t v = ir::index_of(node.results[i]);
      writer_.suggest(results[i], graph_.values[v].name);
      wires_[v] = std::move(results[i]);
    }
    return true;
  }

  ir::Graph graph_;
  ir::Substitute substitute_;
  ModelWriter& writer_;
  std::unordered_map<uint32_t, Wire> wires_;
};

void write_input(ModelWriter& writer, const ir::Value& input,
                 std::span<const std::pair<std::string, Tensor>> weights) {
  const auto weight = std::ranges::find_if(weights, [&](auto& w) { return w.first == input.name; });
  if (weight == weights.end()) return writer.input(input.name, input.type);
  const Tensor& t = weight->second;
  if (!fits(t, input.type))
    throw Error("weight {} is not of the program's type {}", input.name, to_string(input.type));
  writer.weight(input.name, t, input.type);
}

}  // namespace

Wires export_graph(const ir::Graph& program, ModelWriter& to, std::span<const Wire> inputs) {
  GraphExport stage(program, to);
  const auto& taken = stage.graph().stages[0].inputs;
  for (size_t i = 0; i < taken.size(); ++i) {
    stage.give(taken[i], inputs[i]);
    const Dims& dims = stage.graph()[taken[i]].type.dims;
    for (size_t k = 0; k < dims.size(); ++k)
      to.know_size(dims[k], inputs[i], static_cast<int64_t>(k));
  }
  stage.write_nodes();
  Wires results;
  for (auto& output : stage.outputs()) results.push_back(std::move(output.wire));
  return results;
}

std::string export_stage(const ir::Graph& program,
                         std::span<const std::pair<std::string, Tensor>> weights,
                         const ExportOptions& options) {
  ModelWriter writer(options.opset);
  GraphExport stage(program, writer);
  const ir::Graph& graph = stage.graph();
  for (ir::ValueId v : graph.stages[0].inputs) {
    write_input(writer, graph[v], weights);
    stage.give(v, graph[v].name);
  }
  stage.write_nodes();
  for (const auto& output : stage.outputs()) writer.output(output.name, output.wire, output.type);
  return writer.finish(graph.name.empty() ? "program" : graph.name);
}

}  // namespace gradus::onnx
