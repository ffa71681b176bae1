#include "ops/evaluate.h"

#include "ops/registry.h"

namespace gradus::ops {

namespace {

struct NoSizes final : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

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

Layout number_layout(const ir::Number& n) {
  return Layout(n.category == Category::floating   ? DType::f64
                : n.category == Category::integral ? DType::i64
                                                   : DType::boolean,
                {});
}

void store_number(const ir::Number& n, std::byte* target) {
  if (n.category == Category::floating)
    std::memcpy(target, &n.floating, 8);
  else if (n.category == Category::integral)
    std::memcpy(target, &n.integer, 8);
  else
    *target = static_cast<std::byte>(n.integer != 0);
}

SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                std::span<const EagerOperand> operands, Context& context) {
  SmallVector<Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> operand_types(operands.size());
  SmallVector<Layout, 4> layouts(operands.size());
  SmallVector<bool, 4> present(operands.size()), number(operands.size());
  SmallVector<std::byte*, 6> args(operands.size(), nullptr);
  alignas(8) std::byte numbers[8 * 16];
  if (operands.size() > 16 && !op.operands.back().variadic) throw Error("too many operands");
  for (size_t i = 0; i < operands.size(); ++i) {
    ir::OperandType& t = operand_types[i];
    if (auto* x = std::get_if<Tensor>(&operands[i])) {
      if (!x->defined()) throw Error("{}: operand {} is undefined", op.name, i);
      types[i] = type_of(*x);
      t.kind = ir::OperandType::Kind::tensor;
      t.type = &types[i];
      layouts[i] = x->layout();
      args[i] = const_cast<std::byte*>(x->data());  // kernels only read operands
      present[i] = true;
    } else if (auto* n = std::get_if<ir::Number>(&operands[i])) {
      GRADUS_CHECK(i < 16);
      t.kind = ir::OperandType::Kind::number;
      t.category = n->category;
      layouts[i] = number_layout(*n);
      store_number(*n, numbers + 8 * i);
      args[i] = numbers + 8 * i;
      present[i] = number[i] = true;
    }
  }
  SmallVector<Type, 2> result_types = infer(op, operand_types, attributes, nullptr);
  if (op.compose && !op.bind) return run_composition(op, attributes, operands, context);
  if (!op.bind) throw Error("{}: cannot be run on its own", op.name);
  NoSizes sizes;
  ir::BindCall bind{op, layouts, present, number, attributes, sizes, {}, {}, {}};
  for (const Type& t : result_types) bind.out.emplace_back(t.dtype, bind.evaluate(t.dims));
  bind.views.resize(bind.out.size());
  op.bind(bind);
  SmallVector<Tensor, 2> out;
  for (size_t i = 0; i < bind.out.size(); ++i) {
    if (bind.views[i].operand >= 0) {
      const Tensor& base = std::get<Tensor>(operands[static_cast<size_t>(bind.views[i].operand)]);
      out.push_back(base.view(bind.out[i], base.offset() + bind.views[i].offset));
      args.push_back(nullptr);
    } else {
      out.push_back(Tensor::empty(bind.out[i].dtype, bind.out[i].shape, context));
      args.push_back(const_cast<std::byte*>(out.back().data()));
    }
  }
  if (bind.kernel.run) {
    std::shared_ptr<std::byte[]> scratch(
        new (std::align_val_t(64)) std::byte[bind.kernel.scratch_bytes + 1],
        [](std::byte* p) { operator delete[](p, std::align_val_t(64)); });
    ir::KernelScope scope{context.workers(), scratch.get()};
    bind.kernel.run(bind.kernel.parameters.get(), args.data(), scope);
  }
  return out;
}

SmallVector<Tensor, 2> evaluate(std::string_view name, std::initializer_list<EagerOperand> operands,
                                const LiteralList& attributes) {
  const Operator* op = find(name);
  if (!op) throw Error("there is no operator '{}'", name);
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
