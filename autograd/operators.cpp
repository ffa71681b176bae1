#include "autograd/operators.h"

#include "autograd/device_streams.h"
#include "autograd/operator_node.h"
#include "ops/evaluate.h"
#include "ops/kernel_memo.h"
#include "ops/registry.h"

namespace gradus::autograd {

namespace {

using ir::Attributes;
using ir::Operator;
using ir::Type;

Type type_of(const Tensor& t) {
  ir::Dims dims;
  for (int64_t n : t.shape()) dims.push_back(n);
  return Type(t.dtype(), std::move(dims), t.device());
}

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

Variables compose(const Operator& op, const Attributes& attributes,
                  std::span<const VariableOperand> operands) {
  VariableWorld world;
  SmallVector<ops::Value, 4> values;
  for (const VariableOperand& o : operands) values.push_back(value_of(world, o));
  ops::ComposeCall call{op, world, values, attributes, {}};
  op.compose(call);
  Variables results;
  for (const ops::Value& v : call.results) results.push_back(VariableWorld::variable(v));
  return results;
}

SmallVector<Tensor, 2> run(const Operator& op, const Attributes& attributes,
                           std::span<const VariableOperand> operands) {
  SmallVector<ops::EagerOperand, 4> in;
  Device device;
  for (const VariableOperand& o : operands) {
    if (const auto* v = std::get_if<Variable>(&o)) {
      in.emplace_back(v->data());
      if (v->data().device().kind != DeviceKind::cpu) device = v->data().device();
    } else if (const auto* n = std::get_if<ir::Number>(&o)) {
      in.emplace_back(*n);
    } else {
      in.emplace_back();
    }
  }
  if (device.kind == DeviceKind::cpu) return ops::evaluate(op, attributes, in, *current_context());
  if (DeviceStreams* streams = device_streams(device.kind))
    return streams->evaluate(op, attributes, in);
  throw Error("{}: nothing is registered that runs operators on {}", op.name, to_string(device));
}

// Results of an operator whose operands lead somewhere.
Variables record(const Operator& op, const Attributes& attributes,
                 std::span<const VariableOperand> operands, SmallVector<Tensor, 2> results) {
  SmallVector<Edge, 2> edges(operands.size());
  SmallVector<Type, 2> operand_types(operands.size());
  SmallVector<Type, 1> result_types;
  for (size_t i = 0; i < operands.size(); ++i)
    if (const auto* v = std::get_if<Variable>(&operands[i])) {
      edges[i] = v->gradient_edge();
      operand_types[i] = type_of(v->data());
    }
  for (const Tensor& t : results) result_types.push_back(type_of(t));
  Ref<Node> node;
  if (op.has_vjp(attributes)) {
    ops::TypeWorld types;
    SmallVector<ops::Value, 4> values;
    for (size_t i = 0; i < operands.size(); ++i)
      values.push_back(std::holds_alternative<Variable>(operands[i])
                           ? types.input(operand_types[i])
                           : value_of(types, operands[i]));
    RuleReads reads = probe_rule(op, attributes, values, result_types);
    auto recorded = make_ref<OperatorNode>(op, attributes, operands, std::move(operand_types),
                                           std::move(result_types), std::move(edges), reads);
    recorded->keep_results(results, reads);
    node = recorded;
  } else {
    node = make_ref<RefusingNode>(
        std::string(op.name),
        fmt::format("operator '{}' has no derivative; detach its operand", op.name),
        std::move(edges));
  }
  Variables out;
  for (Tensor& t : results) {
    if (is_floating(t.dtype())) {
      out.push_back(create_gradient_edge(std::move(t), node));
    } else {
      node->add_undefined_input();
      out.emplace_back(std::move(t));
    }
  }
  return out;
}

}  // namespace

Variables apply(const Operator& op, const Attributes& attributes,
                std::span<const VariableOperand> operands) {
  bool leads = false;
  for (size_t i = 0; i < operands.size(); ++i)
    if (const auto* v = std::get_if<Variable>(&operands[i])) {
      if (!v->defined()) throw Error("{}: operand {} is undefined", op.name, i);
      leads |= v->requires_grad();
    }
  if (op.compose && !op.has_vjp(attributes)) return compose(op, attributes, operands);
  SmallVector<Tensor, 2> results = run(op, attributes, operands);
  if (recording() && leads && !op.traits.zero_gradient)
    return record(op, attributes, operands, std::move(results));
  Variables out;
  for (Tensor& t : results) out.emplace_back(std::move(t));
  return out;
}

Variables apply(std::string_view name, std::initializer_list<VariableOperand> operands,
                const ir::LiteralList& attributes) {
  const Operator* op = ops::find(name);
  if (!op) throw Error("there is no operator '{}'", name);
  return apply(*op, op->read(attributes), std::span(operands.begin(), operands.size()));
}

ops::Value VariableWorld::value(const Variable& v) { return value_of(*this, v); }

Variable VariableWorld::variable(const ops::Value& v) {
  if (!v.defined()) return {};
  if (!v.payload) throw InternalError("a rule reads a value that was not kept for it");
  auto* body = const_cast<VariableBody*>(static_cast<const VariableBody*>(v.payload.get()));
  return Variable::of(Ref<VariableBody>(body));
}

SmallVector<ops::Value, 2> VariableWorld::emit(const Operator& op, Attributes attributes,
                                               std::span<const ops::Value> operands) {
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
