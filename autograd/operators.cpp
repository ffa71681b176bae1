#include <algorithm>
#include <array>

#include "autograd/loop_call.h"
#include "autograd/opaque_values.h"
#include "autograd/operator_node.h"
#include "autograd/recorder.h"
#include "autograd/shape_tensor.h"
#include "gradus/apply.h"
#include "gradus/device_streams.h"
#include "gradus/per_thread.h"
#include "gradus/registry.h"
#include "kernels/evaluate.h"
#include "ops/roles.h"
#include "ops/solvers.h"

namespace gradus::autograd {

using ir::Attributes;
using ir::Operator;
using ir::Type;

Type type_of(const Tensor& t) {
  return Type(t.dtype(), ir::Dims(t.shape().begin(), t.shape().end()), t.device());
}
Type type_of(const InputMetadata& m) {
  return Type(m.dtype, ir::Dims(m.shape.begin(), m.shape.end()), m.device);
}

namespace {

ops::Value value_of(ops::World& world, const VariableOperand& o) {
  if (const auto* v = std::get_if<Variable>(&o)) {
    ops::Value value;
    value.world = &world;
    value.type = type_of(v->data());
    value.payload = v->body();
    return value;
  }
  if (const auto* n = std::get_if<ir::Number>(&o)) return ops::Value{nullptr, *n, {}, {}};
  return {};
}

// The type rule is a program's, which what it is composed of may not hold: a mean of integers.
void check_types(const Operator& op, const Attributes& attributes,
                 std::span<const ops::Value> operands) {
  SmallVector<ir::OperandType, 4> types(operands.size());
  for (size_t i = 0; i < operands.size(); ++i)
    if (const auto* n = std::get_if<ir::Number>(&operands[i].operand))
      types[i] = {ir::OperandType::Kind::number, nullptr, n->category};
    else if (operands[i].world)
      types[i] = {ir::OperandType::Kind::tensor, &operands[i].type};
  ops::infer(op, types, attributes, nullptr);
}

Variables compose(const Operator& op, const Attributes& attributes,
                  std::span<const VariableOperand> operands) {
  VariableWorld world;
  SmallVector<ops::Value, 4> values;
  for (const VariableOperand& o : operands) values.push_back(value_of(world, o));
  check_types(op, attributes, values);
  ops::ComposeCall call{op, world, values, attributes, {}};
  op.compose(call);
  // What is made of no operand is made on the cpu; results lie where operands do.
  Device device;
  for (const VariableOperand& o : operands)
    if (const auto* v = std::get_if<Variable>(&o); v && v->data().device() != Device())
      device = v->data().device();
  Variables results;
  for (const ops::Value& v : call.results) {
    results.push_back(VariableWorld::variable(v));
    if (device != Device() && results.back().defined())
      results.back() = move_to(results.back(), device);
  }
  return results;
}

// The node of an operator whose operands lead somewhere; its inputs may still have to be added.
Ref<Node> node_of(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands,
                  std::span<const Tensor> results) {
  const Operator& op = call->op();
  SmallVector<Edge, 2> edges;
  edges.reserve(operands.size());
  for (const Variable* v : operands) edges.push_back(v ? v->gradient_edge() : Edge());
  if (op.has_vjp(call->attributes()))
    return make_ref<OperatorNode>(call, operands, results, std::move(edges));
  return make_ref<RefusingNode>(
      std::string(op.name),
      fmt::format("operator '{}' has no derivative; detach its operand", op.name),
      std::move(edges));
}

Variables record(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands,
                 SmallVector<Tensor, 2>& results) {
  Ref<Node> node = node_of(call, operands, results);
  const bool has_inputs = node->inputs() != 0;
  Variables out;
  for (uint32_t k = 0; k < results.size(); ++k) {
    Tensor& t = results[k];
    if (!is_floating(t.dtype())) {
      if (!has_inputs) node->add_undefined_input();
      out.emplace_back(std::move(t));
    } else if (has_inputs) {
      bool last = k + 1 == results.size();
      out.emplace_back(std::move(t), Edge{last ? std::move(node) : node, k});
    } else {
      out.push_back(create_gradient_edge(std::move(t), node));
    }
  }
  return out;
}

// As ops::counted, by copies of what lies on a device.
Attributes counted(const Operator& op, const Attributes& attributes,
                   std::span<const Variable* const> operands) {
  SmallVector<Type, 4> types(operands.size());
  SmallVector<ir::OperandType, 4> in(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    types[i] = type_of(operands[i]->data());
    in[i].kind = ir::OperandType::Kind::tensor;
    in[i].type = &types[i];
  }
  if (!ops::lacks_count(op, attributes, in)) return attributes;
  SmallVector<Variable, 4> here(operands.size());
  SmallVector<const Tensor*, 4> tensors(operands.size(), nullptr);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i]) continue;
    here[i] = move_to(operands[i]->detach(), Device());
    tensors[i] = &here[i].data();
  }
  return ops::counted(op, attributes, tensors);
}

}  // namespace

namespace {

// The call's results without their values, of which a recorder wants the types alone. Empty where
// there is no memory for that: they are computed then.
SmallVector<Tensor, 2> shapes_of(const OperatorCall& call) {
  SmallVector<Tensor, 2> results;
  if (call.device() != Device()) return results;
  for (const Type& type : call.results())
    if (!results.emplace_back(shape_tensor(type)).defined()) return {};
  return results;
}

}  // namespace

Variables apply(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands) {
  Recorder* recorder = thread_state().recorder;
  SmallVector<const Tensor*, 4> tensors;
  bool leads = false;
  for (const Variable* v : operands) {
    tensors.push_back(v ? &v->data() : nullptr);
    leads |= v && v->requires_grad();
  }
  SmallVector<Tensor, 2> results;
  if (recorder && recorder->shapes_only()) [[unlikely]]
    results = shapes_of(*call);
  if (results.empty()) results = call->run(tensors);
  Variables out;
  if (recording() && leads && !call->op().traits.zero_gradient)
    out = record(call, operands, results);
  else
    for (Tensor& t : results) out.emplace_back(std::move(t));
  if (recorder) [[unlikely]]
    recorder->called(*call, operands, out);
  return out;
}

Variables apply(const Operator& op, const Attributes& attributes,
                std::span<const VariableOperand> operands) {
  SmallVector<const Variable*, 4> variables(operands.size(), nullptr);
  for (size_t i = 0; i < operands.size(); ++i) {
    variables[i] = std::get_if<Variable>(&operands[i]);
    if (variables[i] && !variables[i]->defined())
      throw Error("{}: operand {} is undefined", op.name, i);
  }
  if (op.data_sized) {
    ir::Attributes with_count = counted(op, attributes, variables);
    if (with_count.get() != attributes.get()) {
      if (Recorder* recorder = thread_state().recorder)
        recorder->meets(fmt::format("'{}', whose result's size its data decides", op.name));
      return apply(op, with_count, operands);
    }
  }
  if (op.traits.loop && thread_state().recorder) return apply_loop(op, attributes, operands);
  if (ops::solver_in(op, attributes)) return apply_loop(op, attributes, operands);
  if (op.compose && !op.has_vjp(attributes)) return compose(op, attributes, operands);
  return apply(OperatorCall::find(op, attributes, operands), variables);
}

Variable clone(const Variable& v) {
  const Operator& copy = ops::copy_operator();
  return apply(copy, copy.read({}), std::array<VariableOperand, 1>{v})[0];
}

namespace {

// The operators that a thread named last, by a hash of little. Operators are never taken away.
struct Named {
  std::array<const Operator*, 64> operators{};
};

const Operator& named(std::string_view name) {
  size_t place = name.size();
  for (size_t i = 0; i < std::min<size_t>(name.size(), 3); ++i)
    place = place * 7 + static_cast<unsigned char>(name[i]);
  auto& known = PerThread<Named>::get().operators;
  const Operator*& op = known[place % known.size()];
  if (op && op->name == name) return *op;
  const Operator* found = ops::find(name);
  if (!found) throw Error("there is no operator '{}'{}", name, ops::advice(name));
  op = found;
  return *found;
}

}  // namespace

Variables apply(std::string_view name, std::initializer_list<VariableOperand> operands,
                const ir::LiteralList& attributes) {
  const Operator& op = named(name);
  return apply(op, op.read(attributes), std::span(operands.begin(), operands.size()));
}

ops::Value VariableWorld::value(const Variable& v) { return value_of(*this, v); }

Variable VariableWorld::variable(const ops::Value& v) {
  if (!v.defined()) return {};
  if (!v.payload) throw InternalError("a rule reads a value that was not kept for it");
  auto* body = const_cast<VariableBody*>(static_cast<const VariableBody*>(v.payload.get()));
  return Variable::of(Ref<VariableBody>(body));
}

std::optional<bool> VariableWorld::truth(const ops::Value& value) {
  if (Recorder* recorder = thread_state().recorder)
    recorder->meets("'if', whose predicate decides what runs");
  return move_to(variable(value).detach(), Device()).data().to_doubles()[0] != 0;
}

std::shared_ptr<void> VariableWorld::enter_step(std::string_view loop, size_t step) {
  ThreadState state = thread_state();
  if (state.anomaly == AnomalyMode::off) return nullptr;
  state.place = [outer = std::move(state.place),
                 here = fmt::format("step {} of '{}'", step, loop)] {
    const std::string place = outer ? outer() : std::string();
    return place.empty() ? here : place + ", " + here;
  };
  return std::make_shared<StateGuard>(std::move(state));
}

SmallVector<ops::Value, 2> VariableWorld::emit_results(const Operator& op, Attributes attributes,
                                                       std::span<const ops::Value> operands,
                                                       size_t results) {
  return op.traits.opaque ? emit_opaque(*this, op, attributes, operands, results)
                          : emit(op, std::move(attributes), operands);
}

SmallVector<ops::Value, 2> VariableWorld::emit(const Operator& op, Attributes attributes,
                                               std::span<const ops::Value> operands) {
  if (op.traits.structural) {
    const ir::Node node{&op, attributes, {}, {}, {}};
    if (const Tensor* constant = ops::constant_in(node)) return {value(Variable(*constant))};
  }
  SmallVector<VariableOperand, 4> in;
  for (const ops::Value& v : operands) {
    if (v.world)
      in.emplace_back(variable(v));
    else if (const auto* n = std::get_if<ir::Number>(&v.operand))
      in.emplace_back(*n);
    else if (const auto* d = std::get_if<ir::Dim>(&v.operand))
      in.emplace_back(ir::Number::of(d->value()));
    else
      in.emplace_back();
  }
  SmallVector<ops::Value, 2> out;
  for (const Variable& r : apply(op, attributes, in)) out.push_back(value(r));
  return out;
}

}  // namespace gradus::autograd
