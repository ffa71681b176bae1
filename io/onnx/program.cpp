#include "io/onnx/program.h"

#include <algorithm>
#include <cmath>

#include <onnx/onnx_pb.h>

#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "io/onnx/narrow.h"

namespace gradus::onnx {

namespace pb = ::onnx;

namespace {

ir::Graph one_stage(const std::string& name) {
  ir::Graph g;
  g.name = name.empty() ? "model" : printable(name);
  g.stages.resize(1);
  return g;
}

// A name of a size as programs write it: letters, digits and '_', and no word that means something.
std::string size_name(const std::string& given) {
  std::string name;
  for (char c : given.substr(0, 64)) {
    bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += fine ? c : '_';
  }
  constexpr std::string_view words[] = {"true", "false", "none", "inf", "nan", "max", "min"};
  bool taken = std::ranges::find(words, name) != std::end(words) || dtype_from_name(name);
  if (name.empty() || (name[0] >= '0' && name[0] <= '9') || taken) name = "n_" + name;
  return name;
}

}  // namespace

const ItemPtr* Scope::find(const std::string& name) const {
  for (const Scope* s = this; s; s = s->outer)
    if (auto it = s->items.find(name); it != s->items.end()) return &it->second;
  return nullptr;
}

ImportedProgram::ImportedProgram(const pb::ModelProto& model, const Folder& folder,
                                 const ImportOptions& options, bool fix_all)
    : model_(model),
      folder_(folder),
      options_(options),
      fix_all_(fix_all),
      result_{one_stage(model.graph().name()), {}, {}},
      world_(result_.program, 0, result_.program.stages[0].nodes) {}

Dim ImportedProgram::fresh_size() {
  std::string name;
  do name = fmt::format("s{}", fresh_++);
  while (dimensions_.contains(name));
  dimensions_.insert(name);
  return Dim::symbol(name);
}

ir::Type ImportedProgram::type_of_input(const std::string& name, const pb::TypeProto& info) {
  std::string what = fmt::format("input '{}'", printable(name));
  if (!info.has_tensor_type())
    throw Unsupported(what + ": it is no tensor", "inputs that are no tensors");
  const auto& t = info.tensor_type();
  const NarrowType* narrow = narrow_type(t.elem_type());
  ir::Type type(narrow ? narrow->held : dtype_of(t.elem_type(), what), {});
  if (!t.has_shape()) {
    Tensor value = options_.value ? options_.value(name) : Tensor();
    if (!value.defined())
      throw Error("{}: the model does not say how many dimensions it has", what);
    for (int i = 0; i < value.rank(); ++i) type.dims.push_back(fresh_size());
    return type;
  }
  for (const auto& d : t.shape().dim()) {
    if (d.has_dim_value()) {
      if (d.dim_value() < 0)
        throw Error("{}: a size is {}; sizes are not negative", what, d.dim_value());
      type.dims.push_back(d.dim_value());
    } else if (d.has_dim_param() && !d.dim_param().empty()) {
      type.dims.push_back(Dim::symbol(size_name(d.dim_param())));
    } else {
      type.dims.push_back(fresh_size());
    }
  }
  return type;
}

ItemPtr ImportedProgram::make_tensor_input(const std::string& name, const pb::TypeProto& info) {
  ir::Type type = type_of_input(name, info);
  if (std::string why = ir::why_no_input(type); !why.empty())
    throw Error("input '{}' {}", printable(name), why);
  ir::ValueId id = result_.program.add_value(type, name, 0);
  inputs_.push_back(id);
  ItemPtr item = Item::of(world_.value(id));
  item->name = name;
  item->input = true;
  item->narrow = narrow_type(info.tensor_type().elem_type());
  bool decides = type.rank() == 0 || (!is_floating(type.dtype) && type.rank() == 1);
  if (fix_all_ && decides && options_.value) item->known = options_.value(name);
  return item;
}

ItemPtr ImportedProgram::make_input(const std::string& name, const pb::TypeProto& type) {
  bool optional = type.has_optional_type();
  const pb::TypeProto& held = optional ? type.optional_type().elem_type() : type;
  if (!optional && !held.has_sequence_type()) return make_tensor_input(name, type);
  auto length = options_.length ? options_.length(name) : std::nullopt;
  if (!length)
    throw Unsupported(fmt::format("input '{}' is a sequence or an optional", printable(name)),
                      "inputs that are sequences or optionals");
  if (optional && *length == 0) return Item::nothing();
  if (!held.has_sequence_type()) return make_tensor_input(name, held);
  std::vector<ItemPtr> items;
  for (int64_t i = 0; i < *length; ++i) {
    // Elements have sizes of their own: names that the type has would make them equal.
    std::string element = fmt::format("{}.{}", name, i);
    pb::TypeProto exact = held.sequence_type().elem_type();
    Tensor value = options_.value ? options_.value(element) : Tensor();
    if (exact.has_tensor_type() && value.defined()) {
      auto* shape = exact.mutable_tensor_type()->mutable_shape();
      shape->clear_dim();
      for (int64_t n : value.shape()) shape->add_dim()->set_dim_value(n);
    }
    items.push_back(make_tensor_input(element, exact));
  }
  return Item::sequence(std::move(items));
}

void ImportedProgram::add_inputs(Scope& scope) {
  // Names that the model gives come before those that are made for it.
  for (const auto& info : model_.graph().input())
    for (const auto& d : info.type().tensor_type().shape().dim())
      if (!d.dim_param().empty()) dimensions_.insert(size_name(d.dim_param()));
  for (const auto& info : model_.graph().input()) {
    if (info.name().empty()) throw Error("an input has no name");
    if (!used_names_.insert(info.name()).second)
      throw Error("two inputs are called '{}'", printable(info.name()));
    auto weight = scope.items.find(info.name());
    if (weight == scope.items.end()) {
      scope.items[info.name()] = make_input(info.name(), info.type());
      continue;
    }
    const Tensor& value = weight->second->known;
    ir::Type declared = type_of_input(info.name(), info.type());
    if (!fits(value, declared))
      throw Error("weight '{}' is {}, but declared as the input {}", printable(info.name()),
                  describe(value), to_string(declared));
  }
}

Tensor ImportedProgram::read(const pb::TensorProto& tensor, const std::string& what) const {
  return read_tensor(tensor, folder_, what);
}

void ImportedProgram::add_weights(const pb::GraphProto& graph, Scope& scope, bool outermost) {
  if (graph.sparse_initializer_size() > 0)
    throw Unsupported("weights that are sparse are not supported", "sparse weights");
  for (const auto& t : graph.initializer()) {
    ItemPtr& item = initializers_[&t];  // an inner graph may run many times
    if (!item) {
      item = Item::of(read(t, fmt::format("weight '{}'", printable(t.name()))));
      item->name = t.name();
      item->narrow = narrow_type(t.data_type());
      for (int n = 1;
           !outermost && (weight_names_.contains(item->name) || used_names_.contains(item->name));
           ++n)
        item->name = fmt::format("{}_{}", t.name(), n);
      weight_names_.insert(item->name);
      item->weight = is_floating(item->type.dtype) || item->known.numel() > 64;
      item->follows_weights = is_floating(item->type.dtype);
      item->number =
          item->weight && item->type.rank() == 0 && std::fmod(item->known.item(), 0.5) == 0 &&
          std::ranges::none_of(graph.input(), [&](const auto& i) { return i.name() == t.name(); });
    }
    if (t.name().empty() || !scope.items.emplace(t.name(), item).second)
      throw Error("a weight has no name, or one that is there: '{}'", printable(t.name()));
  }
}

Value ImportedProgram::in_program(Item& item) {
  if (item.value.world) return item.value;
  if (!item.is_tensor()) throw Error("'{}' is no tensor", printable(item.name));
  bool fresh = item.weight && used_names_.insert(item.name).second;
  for (const auto& i : model_.graph().input())
    fresh = fresh || (item.weight && i.name() == item.name);
  if (fresh) {
    ir::ValueId id = result_.program.add_value(item.type, item.name, 0);
    weights_.push_back(id);
    result_.weights.emplace_back(item.name, item.known);
    item.value = world_.value(id);
  } else if (item.known.defined()) {
    item.value = emit_all(world_, "constant", {}, {{"value", item.known}})[0];
  } else if (item.sizes) {
    std::vector<Value> parts;
    Value one = ops::full(world_, {}, 1, item.type.dtype);
    for (const Dim& d : *item.sizes) parts.push_back(emit("mul", {one, Value::number(d)}));
    item.value = item.type.rank() == 0 ? parts[0] : emit_all(world_, "stack", parts)[0];
  }
  return item.value;
}

Tensor ImportedProgram::known(Item& item) {
  if (!item.known.defined() && item.input && options_.value) {
    Tensor value = options_.value(item.name);
    if (value.defined() && value.dtype() == item.type.dtype) item.known = value;
  }
  if (item.known.defined() && item.input) fixed_.insert(item.name);
  return item.known;
}

void ImportedProgram::drop_unused_inputs() {
  ir::Graph& g = result_.program;
  std::vector<bool> used(g.values.size());
  for (const ir::Node& n : g.stages[0].nodes)
    for (const ir::Operand& o : n.operands)
      if (ir::ValueId v = ir::value_in(o); v != ir::no_value) used[ir::index_of(v)] = true;
  for (const ir::Result& r : g.stages[0].results)
    if (r.value != ir::no_value) used[ir::index_of(r.value)] = true;
  auto is_used = [&](ir::ValueId v) { return used[ir::index_of(v)]; };
  auto& inputs = g.stages[0].inputs;
  for (ir::ValueId v : inputs_)
    if (is_used(v) || !fixed_.contains(g[v].name)) inputs.push_back(v);
  for (ir::ValueId v : weights_)
    if (is_used(v)) inputs.push_back(v);
  std::erase_if(result_.weights, [&](const auto& w) {
    return std::ranges::none_of(inputs, [&](ir::ValueId v) { return g[v].name == w.first; });
  });
}

Import ImportedProgram::finish(const Scope& scope) {
  ir::Graph& g = result_.program;
  auto add = [&](const std::string& name, Item& item) {
    g.stages[0].results.push_back({name, ir::GraphWorld::id_of(in_program(item))});
  };
  for (const auto& output : model_.graph().output()) {
    const ItemPtr* item = scope.find(output.name());
    if (!item || !*item) throw Error("no node gives the output '{}'", printable(output.name()));
    if ((*item)->is_tensor()) add(output.name(), **item);
    for (size_t i = 0; i < (*item)->items.size(); ++i)
      add(fmt::format("{}.{}", output.name(), i), *(*item)->items[i]);
  }
  // Removing dead code asks for verified inputs: those that may go are still there.
  g.stages[0].inputs = inputs_;
  g.stages[0].inputs.insert(g.stages[0].inputs.end(), weights_.begin(), weights_.end());
  ir::eliminate_dead_code(g);
  g.stages[0].inputs.clear();
  drop_unused_inputs();
  ir::compact(g);
  ir::verify(g);
  result_.fixed.assign(fixed_.begin(), fixed_.end());
  return std::move(result_);
}

}  // namespace gradus::onnx
