#include <algorithm>

#include <onnx/onnx_pb.h>

#include "gradus/version.h"
#include "io/onnx/exporter.h"
#include "io/onnx/model.h"
#include "ir/dim_walk.h"

namespace gradus::onnx {

namespace pb = ::onnx;

namespace {

// The version of the format that came with a version of the operators.
int ir_version_of(int opset) {
  if (opset < 19) return 8;
  return opset < 21 ? 9 : opset < 23 ? 10 : 11;
}

void fill(pb::TensorProto& to, const Tensor& value) {
  Tensor dense = value.contiguous();
  to.set_data_type(element_type_of(dense.dtype()));
  for (int64_t n : dense.shape()) to.add_dims(n);
  to.set_raw_data(dense.data(), static_cast<size_t>(dense.numel()) * size_of(dense.dtype()));
}

void fill(pb::AttributeProto& to, const NodeAttribute& from) {
  to.set_name(from.name);
  struct {
    pb::AttributeProto& to;
    void operator()(int64_t v) const {
      to.set_type(pb::AttributeProto::INT);
      to.set_i(v);
    }
    void operator()(float v) const {
      to.set_type(pb::AttributeProto::FLOAT);
      to.set_f(v);
    }
    void operator()(const std::string& v) const {
      to.set_type(pb::AttributeProto::STRING);
      to.set_s(v);
    }
    void operator()(const Ints& v) const {
      to.set_type(pb::AttributeProto::INTS);
      for (int64_t i : v) to.add_ints(i);
    }
    void operator()(const Tensor& v) const {
      to.set_type(pb::AttributeProto::TENSOR);
      fill(*to.mutable_t(), v);
    }
    void operator()(const InnerGraph& v) const {
      to.set_type(pb::AttributeProto::GRAPH);
      *to.mutable_g() = *v;
    }
  } set{to};
  std::visit(set, from.value);
}

void fill(pb::ValueInfoProto& to, const std::string& name, const ir::Type& type) {
  to.set_name(name);
  pb::TypeProto::Tensor& tensor = *to.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(element_type_of(type.dtype));
  pb::TensorShapeProto& shape = *tensor.mutable_shape();
  for (const Dim& d : type.dims) {
    auto& dimension = *shape.add_dim();
    if (d.is_constant())
      dimension.set_dim_value(d.value());
    else if (!d.symbol_name().empty())
      dimension.set_dim_param(std::string(d.symbol_name()));
  }
}

// Takes out what `kept` is false of, by number; the others stay in order.
template <class Field, class Kept>
void keep_where(Field& field, Kept kept) {
  int n = 0;
  for (int i = 0; i < field.size(); ++i)
    if (kept(i)) field.SwapElements(i, n++);
  field.DeleteSubrange(n, field.size() - n);
}

}  // namespace

ModelWriter::ModelWriter(int opset) : opset_(opset), model_(std::make_unique<pb::ModelProto>()) {
  if (opset < oldest_exported_opset || opset > newest_exported_opset)
    throw Error("models are written with versions {} to {} of ONNX's operators, not {}",
                oldest_exported_opset, newest_exported_opset, opset);
  model_->set_ir_version(ir_version_of(opset));
  model_->set_producer_name("gradus");
  model_->set_producer_version(GRADUS_VERSION);
  auto* imported = model_->add_opset_import();
  imported->set_domain("");
  imported->set_version(opset);
  graph_ = model_->mutable_graph();
}
ModelWriter::~ModelWriter() = default;

// No name of a program or a model begins like that.
Wire ModelWriter::fresh() { return fmt::format("\x01{}", wires_++); }

std::vector<Wire> ModelWriter::nodes(std::string_view op, std::vector<Wire> inputs,
                                     std::vector<NodeAttribute> attributes, size_t outputs) {
  pb::NodeProto& node = *graph_->add_node();
  node.set_op_type(std::string(op));
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  for (Wire& w : inputs) node.add_input(std::move(w));
  for (const NodeAttribute& a : attributes) fill(*node.add_attribute(), a);
  std::vector<Wire> out;
  for (size_t i = 0; i < outputs; ++i) node.add_output(out.emplace_back(fresh()));
  return out;
}

Wire ModelWriter::node(std::string_view op, std::vector<Wire> inputs,
                       std::vector<NodeAttribute> attributes) {
  return std::move(nodes(op, std::move(inputs), std::move(attributes), 1)[0]);
}

Wire ModelWriter::constant(const Tensor& value) {
  // Not as an initializer: those are weights, which somebody may train.
  return node("Constant", {}, {{"value", value}});
}

Wire ModelWriter::number(DType dtype, ir::Number value) {
  auto category = static_cast<int>(value.category);
  return once(fmt::format("number {} {} {}", name_of(dtype), category, value.bits()), [&] {
    return constant(value.category == Category::floating ? Tensor::scalar(dtype, value.floating)
                                                         : tensor_with(value.integer).to(dtype));
  });
}

Wire ModelWriter::integers(const Ints& values) {
  return once(fmt::format("integers {}", fmt::join(values, ",")),
              [&] { return constant(tensor_with(values)); });
}

Wire ModelWriter::cast(const Wire& x, DType from, DType to) {
  if (from == to) return x;
  return once(fmt::format("cast {} {}", x, name_of(to)), [&] {
    return node("Cast", {x}, {{"to", int64_t{element_type_of(to)}}});
  });
}

// Div of integers rounds towards zero; Mod has the sign of the divisor.
Wire ModelWriter::floor_div(const Wire& a, const Wire& b) {
  return node("Div", {node("Sub", {a, node("Mod", {a, b})}), b});
}

// Sizes are i64 [1] on the way.
class ModelWriter::SizeSteps final : public ir::DimSteps {
 public:
  explicit SizeSteps(ModelWriter& to) : to_(to) {}
  void constant(int64_t value) override { stack_.push_back(to_.integers({value})); }
  void symbol(std::string_view name) override { stack_.push_back(to_.symbol(name)); }
  void operate(Operation operation) override {
    Wire b = std::move(stack_.back());
    stack_.pop_back();
    Wire a = std::move(stack_.back());
    stack_.back() = apply(operation, a, b);
  }
  Wire result() { return std::move(stack_.back()); }

 private:
  Wire apply(Operation operation, const Wire& a, const Wire& b) {
    switch (operation) {
      case Operation::add:
        return to_.node("Add", {a, b});
      case Operation::multiply:
        return to_.node("Mul", {a, b});
      case Operation::max:
        return to_.node("Max", {a, b});
      case Operation::min:
        return to_.node("Min", {a, b});
      case Operation::floor_div:
        return to_.floor_div(a, b);
    }
    GRADUS_CHECK(false);
    return {};
  }

  ModelWriter& to_;
  std::vector<Wire> stack_;
};

Wire ModelWriter::symbol(std::string_view name) {
  auto found = symbols_.find(name);
  if (found == symbols_.end())
    throw Unsupported(fmt::format("the size {} stands alone in no input's shape, so that a model "
                                  "cannot compute it; give it a number instead",
                                  name),
                      "sizes that no input has");
  const Source& s = found->second;
  return once(fmt::format("size {}", name), [&] {
    Wire size = node("Shape", {s.wire}, {{"start", s.dimension}, {"end", s.dimension + 1}});
    if (s.rest != 0) size = node("Sub", {size, integers({s.rest})});
    return s.coefficient == 1 ? size : floor_div(size, integers({s.coefficient}));
  });
}

Wire ModelWriter::size(const Dim& dim) {
  if (dim.is_constant()) return integers({dim.value()});
  return once("size " + dim.to_string(), [&] {
    SizeSteps steps(*this);
    ir::walk(dim, steps);
    return steps.result();
  });
}

Wire ModelWriter::scalar_size(const Dim& dim) {
  if (dim.is_constant()) return number(DType::i64, ir::Number::of(dim.value()));
  return node("Squeeze", {size(dim), integers({0})});
}

Wire ModelWriter::sizes(std::span<const Dim> dims) {
  if (ir::all_constant(dims)) {
    Ints values;
    for (const Dim& d : dims) values.push_back(d.value());
    return integers(values);
  }
  return once("sizes " + ir::to_string(dims), [&] {
    std::vector<Wire> parts;
    for (const Dim& d : dims) parts.push_back(size(d));
    return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", int64_t{0}}});
  });
}

Wire ModelWriter::reshape(const Wire& x, std::span<const Dim> dims) {
  // One size may be left to the model to find, if the others are known and not zero.
  size_t open = 0;
  bool zero = false;
  for (const Dim& d : dims) {
    open += !d.is_constant();
    zero = zero || d == Dim(0);
  }
  if (open == 1 && !zero) {
    Ints known;
    for (const Dim& d : dims) known.push_back(d.is_constant() ? d.value() : -1);
    return node("Reshape", {x, integers(known)});
  }
  return node("Reshape", {x, sizes(dims)}, {{"allowzero", int64_t{1}}});
}

void ModelWriter::input(const std::string& name, const ir::Type& type) {
  fill(*graph_->add_input(), name, type);
  taken_.insert(name);
  for (size_t k = 0; k < type.dims.size(); ++k)
    know_size(type.dims[k], name, static_cast<int64_t>(k));
}

void ModelWriter::know_size(const Dim& dim, const Wire& wire, int64_t dimension) {
  dim.for_each_symbol([&](std::string_view name) {
    auto linear = dim.linear_in(name);
    if (!linear || !linear->rest.is_constant()) return;
    Source source{wire, dimension, linear->coefficient, linear->rest.value()};
    auto [it, added] = symbols_.try_emplace(std::string(name), source);
    // The plainest is taken.
    if (!added && it->second.coefficient != 1 && source.coefficient == 1) it->second = source;
  });
}

void ModelWriter::weight(const std::string& name, const Tensor& value, const ir::Type& type) {
  for (size_t k = 0; k < type.dims.size(); ++k)
    know_size(type.dims[k], name, static_cast<int64_t>(k));
  pb::TensorProto& tensor = *graph_->add_initializer();
  fill(tensor, value);
  tensor.set_name(name);
  taken_.insert(name);
}

void ModelWriter::output(std::string name, const Wire& wire, const ir::Type& type) {
  if (wire == name) {  // an input, as it came
    fill(*graph_->add_output(), name, type);
    return;
  }
  const std::string wanted = name;
  for (int n = 1; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
  // By a node of its own: the same tensor may be an input, or two outputs.
  pb::NodeProto& node = *graph_->add_node();
  node.set_op_type("Identity");
  node.add_input(wire);
  node.add_output(name);
  fill(*graph_->add_output(), name, type);
}

void ModelWriter::begin_sizes() {
  outer_.push_back({std::move(made_), std::move(symbols_)});
  made_.clear();
  symbols_.clear();
}

void ModelWriter::end_sizes() {
  made_ = std::move(outer_.back().made);
  symbols_ = std::move(outer_.back().symbols);
  outer_.pop_back();
}

void ModelWriter::begin_graph(const std::string& name) {
  begin_sizes();
  auto inner = std::make_shared<pb::GraphProto>();
  inner->set_name(name);
  graphs_.emplace_back(graph_, inner);
  graph_ = inner.get();
}

// Names of sizes are its own: those of the model would be taken for the same.
Wire ModelWriter::graph_input(const ir::Type& type) {
  Wire wire = fresh();
  pb::ValueInfoProto& info = *graph_->add_input();
  fill(info, wire, type);
  for (auto& d : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
    if (d.has_dim_param()) d.clear_dim_param();
  return wire;
}

InnerGraph ModelWriter::end_graph(std::span<const Wire> outputs, std::span<const ir::Type> types) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    // By a node of its own, as in `output`.
    pb::ValueInfoProto& info = *graph_->add_output();
    fill(info, node("Identity", {outputs[i]}), types[i]);
    for (auto& d : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (d.has_dim_param()) d.clear_dim_param();
  }
  auto [around, inner] = std::move(graphs_.back());
  graphs_.pop_back();
  graph_ = around;
  end_sizes();
  return inner;
}

void ModelWriter::suggest(const Wire& wire, const std::string& name) {
  if (!name.empty() && wire.starts_with('\x01')) suggested_.try_emplace(wire, name);
}

using UsedWires = std::set<std::string, std::less<>>;

// What no output needs goes, in graphs within the graph, too. `used`: what is read so far.
static void drop_unused_nodes(pb::GraphProto& graph, UsedWires& used) {
  for (const auto& o : graph.output()) used.insert(o.name());
  std::vector<bool> kept(static_cast<size_t>(graph.node_size()));
  for (int i = graph.node_size(); i-- > 0;) {
    pb::NodeProto& node = *graph.mutable_node(i);
    bool needed = std::ranges::any_of(node.output(), [&](auto& o) { return used.contains(o); });
    kept[static_cast<size_t>(i)] = needed;
    if (!needed) continue;
    for (const std::string& w : node.input()) used.insert(w);
    for (auto& a : *node.mutable_attribute())
      if (a.has_g()) drop_unused_nodes(*a.mutable_g(), used);
  }
  keep_where(*graph.mutable_node(), [&](int i) { return kept[static_cast<size_t>(i)]; });
}

void ModelWriter::drop_unused() {
  UsedWires used;
  drop_unused_nodes(*graph_, used);
  keep_where(*graph_->mutable_initializer(),
             [&](int i) { return used.contains(graph_->initializer(i).name()); });
}

// Calls `each` with the names of all tensors in the graph and those within it.
template <class F>
static void for_each_wire(pb::GraphProto& graph, const F& each) {
  for (auto& node : *graph.mutable_node()) {
    for (auto& w : *node.mutable_input()) each(&w);
    for (auto& a : *node.mutable_attribute()) {
      if (!a.has_g()) continue;
      for (auto& info : *a.mutable_g()->mutable_input()) each(info.mutable_name());
      for_each_wire(*a.mutable_g(), each);
      for (auto& info : *a.mutable_g()->mutable_output()) each(info.mutable_name());
    }
    for (auto& w : *node.mutable_output()) each(&w);
  }
}

void ModelWriter::give_names() {
  std::unordered_map<std::string, std::string> names;
  int unnamed = 0;
  for_each_wire(*graph_, [&](std::string* wire) {
    if (!wire->starts_with('\x01')) return;
    auto [it, added] = names.try_emplace(*wire);
    if (added) {
      auto suggested = suggested_.find(*wire);
      if (suggested != suggested_.end() && taken_.insert(suggested->second).second)
        it->second = suggested->second;
      while (it->second.empty() || it->second.starts_with('\x01')) {
        std::string next = fmt::format("v{}", unnamed++);
        if (taken_.insert(next).second) it->second = std::move(next);
      }
    }
    *wire = it->second;
  });
}

// An output's Identity, where its operand is made for nothing else, gives way.
static void join_outputs(pb::GraphProto& graph) {
  std::unordered_map<std::string, int> uses, makers;
  for_each_wire(graph, [&](const std::string* w) { ++uses[*w]; });
  for (int i = 0; i < graph.node_size(); ++i)
    for (const auto& w : graph.node(i).output()) makers[w] = i;
  std::set<int> gone;
  for (int i = graph.node_size(); i-- > 0;) {
    const pb::NodeProto& node = graph.node(i);
    if (node.op_type() != "Identity" || !node.input(0).starts_with('\x01')) continue;
    auto maker = makers.find(node.input(0));
    if (maker == makers.end() || uses[node.input(0)] != 2) continue;
    for (auto& w : *graph.mutable_node(maker->second)->mutable_output())
      if (w == node.input(0)) w = node.output(0);
    makers[node.output(0)] = maker->second;
    gone.insert(i);
  }
  keep_where(*graph.mutable_node(), [&](int i) { return !gone.contains(i); });
}

std::string ModelWriter::finish(const std::string& name) {
  graph_->set_name(name);
  drop_unused();
  join_outputs(*graph_);
  give_names();
  if (model_->ByteSizeLong() >= size_t{1} << 31)
    throw Error("the model with its weights has {} bytes; a model file holds less than 2 GiB",
                model_->ByteSizeLong());
  return model_->SerializeAsString();
}

}  // namespace gradus::onnx
