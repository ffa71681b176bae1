#include "io/onnx/call.h"

#include <map>

#include <onnx/onnx_pb.h>

#include "gradus/messages.h"
#include "io/onnx/importer.h"
#include "io/onnx/model.h"

namespace gradus::onnx {

namespace pb = ::onnx;

std::string_view Call::op() const { return node_.op_type(); }

const ItemPtr& Call::item(size_t i) const {
  if (!given(i)) fail("input {} is missing", i);
  return inputs_[i];
}

const ir::Type& Call::type(size_t i) const {
  const ItemPtr& it = item(i);
  if (!it->is_tensor()) fail("input {} is a sequence or an optional, a tensor is wanted", i);
  return it->type;
}

Value Call::x(size_t i) {
  type(i);
  if (folding_) return static_cast<FoldingWorld&>(world_).value(inputs_[i]->known);
  return importer_.in_program(*inputs_[i]);
}

Value Call::constant(Tensor value) {
  if (folding_) return static_cast<FoldingWorld&>(world_).value(std::move(value));
  return emit_all(world_, "constant", {}, {{"value", std::move(value)}})[0];
}

int Call::axis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) fail("axis {} is out of range for {} dimensions", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Tensor Call::known(size_t i, std::string_view what) {
  type(i);
  Tensor t = importer_.known(*inputs_[i]);
  if (!t.defined())
    throw NeedsValue(
        fmt::format("its {} ('{}') depends on data, and has to be known while importing; import "
                    "the model with its value (gradus import --inputs F.npz)",
                    what, printable(inputs_[i]->name)),
        fmt::format("{} whose {} depends on data", op(), what));
  return t;
}

Ints Call::integers(size_t i, std::string_view what) {
  Tensor t = known(i, what);
  if (!is_integral(t.dtype()) || t.rank() > 1)
    fail("its {} is {}; a list of integers is wanted", what, describe(t));
  return t.to_int64s();
}

int64_t Call::integer(size_t i, std::string_view what) {
  Tensor t = known(i, what);
  if (!is_integral(t.dtype()) || t.numel() != 1)
    fail("its {} is {}; one integer is wanted", what, describe(t));
  return t.to_int64s()[0];
}

double Call::number(size_t i, std::string_view what) {
  Tensor t = known(i, what);
  if (t.numel() != 1) fail("its {} is {}; one number is wanted", what, describe(t));
  return t.item();
}

Dims Call::sizes(size_t i, std::string_view what) {
  if (item(i)->is_tensor() && item(i)->sizes) return *item(i)->sizes;
  const Ints values = integers(i, what);
  return Dims(values.begin(), values.end());
}

const pb::AttributeProto* Call::find(std::string_view name) const {
  for (const auto& a : node_.attribute()) {
    if (a.name() != name) continue;
    // Functions' own nodes have the values in place of such references.
    if (!a.ref_attr_name().empty())
      unsupported("an attribute of a function inside of an inner graph");
    return &a;
  }
  return nullptr;
}

const pb::AttributeProto* Call::find(std::string_view name, int type, const char* kind) const {
  const pb::AttributeProto* a = find(name);
  // Old files do not say the kind.
  if (a && a->type() != type && a->type() != pb::AttributeProto::UNDEFINED)
    fail("attribute '{}' is no {}", name, kind);
  return a;
}

int64_t Call::attribute(std::string_view name, int64_t absent) const {
  const auto* a = find(name, pb::AttributeProto::INT, "integer");
  return a ? a->i() : absent;
}

int64_t Call::size(std::string_view name, int64_t absent, int64_t least) const {
  const int64_t size = attribute(name, absent);
  if (size < least || size > INT32_MAX)
    fail("attribute '{}' is {}; it must be from {} to {}", name, size, least, INT32_MAX);
  return size;
}

DType Call::dtype(std::string_view name, int64_t absent) const {
  return dtype_of(static_cast<int>(attribute(name, absent)), fmt::format("attribute '{}'", name));
}

double Call::attribute(std::string_view name, double absent) const {
  const auto* a = find(name, pb::AttributeProto::FLOAT, "number");
  return a ? static_cast<double>(a->f()) : absent;
}

std::string Call::attribute(std::string_view name, const char* absent) const {
  const auto* a = find(name, pb::AttributeProto::STRING, "string");
  return a ? a->s() : absent;
}

std::optional<Ints> Call::integers(std::string_view name) const {
  const auto* a = find(name, pb::AttributeProto::INTS, "list of integers");
  if (!a) return std::nullopt;
  return Ints(a->ints().begin(), a->ints().end());
}

Dims Call::sizes(std::string_view name) const {
  const Ints values = integers(name).value_or(Ints{});
  return Dims(values.begin(), values.end());
}

std::vector<double> Call::numbers(std::string_view name) const {
  const auto* a = find(name, pb::AttributeProto::FLOATS, "list of numbers");
  return a ? std::vector<double>(a->floats().begin(), a->floats().end()) : std::vector<double>();
}

std::vector<std::string> Call::texts(std::string_view name) const {
  const auto* a = find(name, pb::AttributeProto::STRINGS, "list of strings");
  return a ? std::vector<std::string>(a->strings().begin(), a->strings().end())
           : std::vector<std::string>();
}

Tensor Call::tensor(std::string_view name) const {
  const auto* a = find(name, pb::AttributeProto::TENSOR, "tensor");
  if (!a) fail("attribute '{}' is missing", name);
  return importer_.read(a->t(), fmt::format("attribute '{}'", name));
}

const pb::GraphProto& Call::graph(std::string_view name) const {
  const auto* a = find(name, pb::AttributeProto::GRAPH, "graph");
  if (!a || !a->has_g()) fail("attribute '{}' is missing", name);
  return a->g();
}

size_t Call::outputs() const { return static_cast<size_t>(node_.output_size()); }

bool Call::wants(size_t i) const {
  return i < outputs() && !node_.output(static_cast<int>(i)).empty();
}

void Call::give(Value value) {
  if (value.is_number()) throw InternalError("a rule gives a number as a result");
  if (folding_)
    results_.push_back(Item::of(ops::EagerWorld::tensor(value)));
  else
    results_.push_back(Item::of(std::move(value)));
}

void Call::refuse(const std::string& what) const {
  throw Unsupported(what + " is not supported", what);
}

namespace {

using Table = std::map<std::string_view, std::vector<RuleEntry>>;

const Table& table() {
  static const Table built = [] {
    Table t;
    for (Rules family : {arithmetic_rules,    activation_rules, reduction_rules,    shape_rules,
                         creation_rules,      indexing_rules,   convolution_rules,  pooling_rules,
                         normalization_rules, loss_rules,       resize_rules,       sampling_rules,
                         recurrent_rules,     control_rules,    sequence_rules,     signal_rules,
                         training_rules,      bit_rules,        quantization_rules, attention_rules,
                         state_rules,         learned_rules,    tree_rules})
      for (const RuleEntry& r : family) t[r.name].push_back(r);
    return t;
  }();
  return built;
}

}  // namespace

LiteralList count_of(Call& c) {
  if (c.folding()) return {};
  return {{"count", c.importer().fresh_size()}};
}

void unary_rule(Call& c) { c.give(ops::unary(c.ours(), c.x())); }

Value between(const Value& x, const Value& low, const Value& high) {
  return ops::binary("minimum", ops::binary("maximum", x, low), high);
}

Value under(Value v, int64_t axis, int rank) {
  while (v.rank() + axis < rank) v = unsqueeze(v, v.rank());
  return v;
}

bool has_rule(std::string_view name) { return table().contains(name); }

const RuleEntry* find_rule(std::string_view name, int opset) {
  auto it = table().find(name);
  if (it == table().end()) return nullptr;
  const RuleEntry* best = nullptr;
  for (const RuleEntry& r : it->second)
    if (r.since <= opset && (!best || r.since > best->since)) best = &r;
  return best;
}

}  // namespace gradus::onnx
