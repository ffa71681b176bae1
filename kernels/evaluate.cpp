#include "kernels/evaluate.h"

#include "gradus/read_watch.h"
#include "gradus/registry.h"

namespace gradus::ops {

namespace {

struct Payload final : RefCounted {
  explicit Payload(Tensor t) : tensor(std::move(t)) {}
  Tensor tensor;
};

Type type_of(const Tensor& t) {
  Dims dims;
  for (int64_t n : t.shape()) dims.push_back(n);
  return Type(t.dtype(), std::move(dims), t.device());
}

SmallVector<Tensor, 2> run_composition(const Operator& op, const Attributes& attributes,
                                       std::span<const EagerOperand> operands, Context& context) {
  EagerWorld world(context);
  SmallVector<Value, 4> values;
  for (const EagerOperand& o : operands) {
    if (auto* t = std::get_if<Tensor>(&o))
      values.push_back(world.value(*t));
    else if (auto* n = std::get_if<ir::Number>(&o))
      values.push_back(Value{nullptr, *n, {}, {}});
    else
      values.emplace_back();
  }
  ComposeCall call{op, world, values, attributes, {}};
  op.compose(call);
  SmallVector<Tensor, 2> out;
  for (const Value& v : call.results) out.push_back(EagerWorld::tensor(v));
  return out;
}

}  // namespace

SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& given,
                                std::span<const EagerOperand> operands, Context& context) {
  SmallVector<CallOperand, 4> to_bind(operands.size());
  SmallVector<RunOperand, 4> to_run(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto* x = std::get_if<Tensor>(&operands[i])) {
      if (!x->defined()) throw Error("{}: operand {} is undefined", op.name, i);
      to_bind[i] = {&x->layout(), x->device(), nullptr};
      to_run[i].tensor = x;
    } else if (const auto* n = std::get_if<ir::Number>(&operands[i])) {
      to_bind[i].number = to_run[i].number = n;
    }
  }
  ir::Attributes attributes = given;
  if (op.data_sized) {
    SmallVector<const Tensor*, 4> tensors;
    for (const RunOperand& o : to_run) tensors.push_back(o.tensor);
    attributes = counted(op, given, tensors);
  }
  auto call = bound_call(op, attributes, to_bind);
  if (!call) return run_composition(op, attributes, operands, context);
  return run_call(*call, to_run, context);
}

SmallVector<Tensor, 2> evaluate(std::string_view name, std::initializer_list<EagerOperand> operands,
                                const LiteralList& attributes) {
  const Operator* op = find(name);
  if (!op) throw Error("there is no operator '{}'{}", name, advice(name));
  if (const ReadWatch* watch = ReadWatch::current()) [[unlikely]]
    for (const EagerOperand& o : operands)
      if (const auto* t = std::get_if<Tensor>(&o)) watch->reads(*t);
  return evaluate(*op, op->read(attributes), std::span(operands.begin(), operands.size()),
                  *Context::default_context());
}

Value EagerWorld::value(Tensor tensor) {
  Value v;
  v.world = this;
  v.type = type_of(tensor);
  v.payload = make_ref<Payload>(std::move(tensor));
  return v;
}

const Tensor& EagerWorld::tensor(const Value& v) {
  return static_cast<const Payload&>(*v.payload).tensor;
}

std::optional<bool> EagerWorld::truth(const Value& v) { return tensor(v).to_doubles()[0] != 0; }

SmallVector<Value, 2> EagerWorld::emit(const Operator& op, Attributes attributes,
                                       std::span<const Value> operands) {
  SmallVector<EagerOperand, 4> in;
  for (const Value& v : operands) {
    if (v.world)
      in.emplace_back(tensor(v));
    else if (auto* n = std::get_if<ir::Number>(&v.operand))
      in.emplace_back(*n);
    else
      in.emplace_back();
  }
  SmallVector<Value, 2> out;
  for (Tensor& t : evaluate(op, attributes, in, context_)) out.push_back(value(std::move(t)));
  return out;
}

}  // namespace gradus::ops
