// The values of derivative rules and compositions. An operation on values is emitted into the world
// of the values: the world of a graph appends a node, the world of variables runs the operator.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "gradus/attributes.h"
#include "gradus/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

using ir::InferCall;
using ir::Operator;
using ir::Type;
class World;

// An operand of an operator that runs at once: none, a tensor, or a number.
using EagerOperand = std::variant<std::monostate, Tensor, ir::Number>;

// A tensor of a world, a number that is an operand, or undefined (a gradient that is structurally
// zero). Values are cheap to copy.
struct Value {
  World* world = nullptr;         // null for numbers and undefined values
  ir::Operand operand;            // a value of a graph, or the number
  Type type;                      // of a tensor
  Ref<const RefCounted> payload;  // data of a world that runs operators at once

  static Value number(double f) { return Value{nullptr, ir::Number::of(f), {}, {}}; }
  static Value number(int64_t i) { return Value{nullptr, ir::Number::of(i), {}, {}}; }
  // A size as an integer number.
  static Value number(const Dim& d) {
    return d.is_constant() ? number(d.value()) : Value{nullptr, d, {}, {}};
  }

  bool defined() const { return world || is_number(); }
  bool is_number() const {
    return std::holds_alternative<ir::Number>(operand) || std::holds_alternative<Dim>(operand);
  }
  bool is_tensor() const { return world != nullptr; }
  // The value of a number that is known at compile time.
  std::optional<double> constant() const;
  const Dims& dims() const { return type.dims; }
  int rank() const { return type.rank(); }
  DType dtype() const { return type.dtype; }
  ir::OperandType operand_type() const;
};

// The target of emitted operators.
class World {
 public:
  virtual ~World() = default;
  // Emits an operator, and returns one value per result. Throws Error as the type rule does.
  virtual SmallVector<Value, 2> emit(const Operator& op, Attributes attributes,
                                     std::span<const Value> operands) = 0;
  // The same with a number of results. The last result of an opaque operator may be its handle. A
  // world without handles returns only the other results.
  virtual SmallVector<Value, 2> emit_results(const Operator& op, Attributes attributes,
                                             std::span<const Value> operands, size_t results);
  // The value of a 0-d bool. nullopt in a world without values.
  virtual std::optional<bool> truth(const Value& value);
  // Nodes that are emitted while the result exists belong to this step of a loop whose steps are
  // emitted one by one. Null in a world that does not use this.
  virtual std::shared_ptr<void> enter_step(std::string_view loop, size_t step);
};

// A call of a derivative rule. For operands x, results y and their cotangents dy, the rule gives
// one gradient per wanted operand. A gradient that is not given is structurally zero. The caller
// undoes broadcasting, converts to the dtype of the operand, and adds contributions. A rule selects
// values with operators and does not branch on data. It names temporaries, because compilers
// evaluate operands in different orders.
struct VjpCall {
  const Operator& op;
  World& world;
  std::span<const Value> operands;
  std::span<const Value> results;
  std::span<const Value> cotangents;  // undefined if no cotangent arrives
  const Attributes& attributes;
  std::span<const bool> wanted;     // floating tensor operands whose gradient is requested
  SmallVector<Value, 4> gradients;  // one per operand

  // Operands and results as values, which are then saved for the derivative, or their types only,
  // which are not.
  const Value& x(size_t i = 0) const { return operands[i]; }
  const Value& y(size_t i = 0) const { return results[i]; }
  const Type& x_type(size_t i = 0) const { return operands[i].type; }
  const Type& y_type(size_t i = 0) const { return results[i].type; }
  bool given(size_t i) const { return i < operands.size() && operands[i].defined(); }
  bool wants(size_t i) const { return i < wanted.size() && wanted[i]; }
  // The cotangent of result i, or zeros if it is undefined. has_dy returns whether it is defined.
  Value dy(size_t i = 0);
  bool has_dy(size_t i = 0) const { return cotangents[i].defined(); }
  template <class A>
  const A& attr() const {
    return attributes_as<A>(attributes);
  }
  // Sets the gradient of operand i to `make()`, if it is wanted.
  template <class F>
  void give(size_t i, F make) {
    if (wants(i)) gradients[i] = make();
  }
};

// A call of a composition. It reads operands and appends results in order.
struct ComposeCall {
  const Operator& op;
  World& world;
  std::span<const Value> operands;
  const Attributes& attributes;
  SmallVector<Value, 2> results;

  const Value& x(size_t i = 0) const { return operands[i]; }
  bool given(size_t i) const { return i < operands.size() && operands[i].defined(); }
  template <class A>
  const A& attr() const {
    return attributes_as<A>(attributes);
  }
  void give(Value v) { results.push_back(std::move(v)); }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format("{}: {}", op.name, fmt::format(format, std::forward<Args>(args)...)));
  }
};

// A world that only infers types, for the type rules of compositions and dry runs of rules.
class TypeWorld final : public World {
 public:
  explicit TypeWorld(std::vector<ir::DimEquality>* equalities = nullptr)
      : equalities_(equalities) {}
  Value input(Type type);
  SmallVector<Value, 2> emit(const Operator& op, Attributes attributes,
                             std::span<const Value> operands) override;
  SmallVector<Value, 2> emit_results(const Operator& op, Attributes attributes,
                                     std::span<const Value> operands, size_t results) override;

 private:
  std::vector<ir::DimEquality>* equalities_;
};

}  // namespace gradus::ops

#pragma GCC visibility pop
