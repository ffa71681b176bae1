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

namespace {

// How an operator is run on operands of these kinds and layouts.
struct BoundCall {
  const ir::Operator* op = nullptr;
  ir::Attributes attributes;
  SmallVector<uint8_t, 8> kinds;  // EagerOperand's index; of a number with its category
  SmallVector<Layout, 2> in;
  SmallVector<Layout, 1> out;
  SmallVector<ir::BindCall::View, 2> views;
  ir::Kernel kernel;
};

uint8_t kind_of(const EagerOperand& o) {
  const auto* n = std::get_if<ir::Number>(&o);
  return static_cast<uint8_t>(o.index() | (n ? static_cast<size_t>(n->category) << 4 : 0));
}

// The calls that this thread has bound, the latest in each place.
BoundCall& place_of(const ir::Operator& op, const ir::Attributes& attributes,
                    std::span<const EagerOperand> operands) {
  constexpr size_t places = 256;
  thread_local std::vector<BoundCall> calls(places);
  size_t hash = reinterpret_cast<size_t>(&op) ^ reinterpret_cast<size_t>(attributes.get()) * 31;
  for (const EagerOperand& o : operands) {
    hash = (hash ^ kind_of(o)) * 0x9e3779b97f4a7c15;
    if (const auto* t = std::get_if<Tensor>(&o); t && t->defined())
      for (int64_t n : t->shape()) hash = (hash ^ static_cast<size_t>(n)) * 0x9e3779b97f4a7c15;
  }
  return calls[(hash >> 40) % places];
}

bool matches(const BoundCall& call, const ir::Operator& op, const ir::Attributes& attributes,
             std::span<const EagerOperand> operands) {
  if (call.op != &op || call.attributes.get() != attributes.get() ||
      call.kinds.size() != operands.size())
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (call.kinds[i] != kind_of(operands[i])) return false;
    const auto* t = std::get_if<Tensor>(&operands[i]);
    if (t && !(t->defined() && t->layout() == call.in[i])) return false;
  }
  return true;
}

// Infers and binds. `call.op` stays null for a composition, which is not bound.
BoundCall bind(const ir::Operator& op, const ir::Attributes& attributes,
               std::span<const EagerOperand> operands) {
  BoundCall call;
  SmallVector<Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> operand_types(operands.size());
  SmallVector<bool, 4> present(operands.size()), number(operands.size());
  call.in.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    ir::OperandType& t = operand_types[i];
    call.kinds.push_back(kind_of(operands[i]));
    if (auto* x = std::get_if<Tensor>(&operands[i])) {
      if (!x->defined()) throw Error("{}: operand {} is undefined", op.name, i);
      types[i] = type_of(*x);
      t.kind = ir::OperandType::Kind::tensor;
      t.type = &types[i];
      call.in[i] = x->layout();
      present[i] = true;
    } else if (auto* n = std::get_if<ir::Number>(&operands[i])) {
      t.kind = ir::OperandType::Kind::number;
      t.category = n->category;
      call.in[i] = number_layout(*n);
      present[i] = number[i] = true;
    }
  }
  SmallVector<Type, 2> result_types = infer(op, operand_types, attributes, nullptr);
  if (op.compose && !op.bind) return call;
  if (!op.bind) throw Error("{}: cannot be run on its own", op.name);
  NoSizes sizes;
  ir::BindCall bind{op, call.in, present, number, attributes, sizes, {}, {}, {}};
  for (const Type& t : result_types) bind.out.emplace_back(t.dtype, bind.evaluate(t.dims));
  bind.views.resize(bind.out.size());
  op.bind(bind);
  call.op = &op;
  call.attributes = attributes;
  call.out.append(bind.out.begin(), bind.out.end());
  call.views.append(bind.views.begin(), bind.views.end());
  call.kernel = std::move(bind.kernel);
  return call;
}

}  // namespace

SmallVector<Tensor, 2> evaluate(const ir::Operator& op, const ir::Attributes& attributes,
                                std::span<const EagerOperand> operands, Context& context) {
  if (operands.size() > 16 && !op.operands.back().variadic) throw Error("too many operands");
  BoundCall& place = place_of(op, attributes, operands);
  if (!matches(place, op, attributes, operands)) {
    BoundCall fresh = bind(op, attributes, operands);
    if (!fresh.op) return run_composition(op, attributes, operands, context);
    place = std::move(fresh);
  }
  // A kernel may come back here, on this thread: the place is not looked at once it runs.
  SmallVector<std::byte*, 6> args(operands.size(), nullptr);
  alignas(8) std::byte numbers[8 * 16];
  for (size_t i = 0; i < operands.size(); ++i) {
    if (auto* x = std::get_if<Tensor>(&operands[i])) {
      args[i] = const_cast<std::byte*>(x->data());  // kernels only read operands
    } else if (auto* n = std::get_if<ir::Number>(&operands[i])) {
      GRADUS_CHECK(i < 16);
      store_number(*n, numbers + 8 * i);
      args[i] = numbers + 8 * i;
    }
  }
  SmallVector<Tensor, 2> out;
  for (size_t i = 0; i < place.out.size(); ++i) {
    const ir::BindCall::View& view = place.views[i];
    if (view.operand >= 0) {
      const Tensor& base = std::get<Tensor>(operands[static_cast<size_t>(view.operand)]);
      out.push_back(base.view(place.out[i], base.offset() + view.offset));
      args.push_back(nullptr);
    } else {
      out.push_back(Tensor::empty(place.out[i].dtype, place.out[i].shape, context));
      args.push_back(const_cast<std::byte*>(out.back().data()));
    }
  }
  if (!place.kernel.run) return out;
  ir::Kernel kernel = place.kernel;
  std::unique_ptr<std::byte, void (*)(std::byte*)> scratch(
      nullptr, [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); });
  if (kernel.scratch_bytes)
    scratch.reset(
        static_cast<std::byte*>(::operator new(kernel.scratch_bytes, std::align_val_t(64))));
  ir::KernelScope scope{context.workers(), scratch.get()};
  kernel.run(kernel.parameters.get(), args.data(), scope);
  return out;
}

SmallVector<Tensor, 2> evaluate(std::string_view name, std::initializer_list<EagerOperand> operands,
                                const LiteralList& attributes) {
  const Operator* op = find(name);
  if (!op) throw Error("there is no operator '{}'{}", name, advice(name));
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
