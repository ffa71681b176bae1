// Values as derivative rules and compositions see them: an operation on values is emitted into the
// world they live in. In a graph's world it appends a node, in the engine's it runs.
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

// An operand of an operator that runs at once: a tensor, a number, or none.
using EagerOperand = std::variant<std::monostate, Tensor, ir::Number>;

// A tensor of some world, a number (an operand written as one), or undefined (a gradient that is
// structurally zero). Cheap enough to pass by const reference and to return.
struct Value {
  World* world = nullptr;         // null for numbers and undefined ones
  ir::Operand operand;            // a graph's value, or the number
  Type type;                      // of a tensor
  Ref<const RefCounted> payload;  // what an eager world keeps

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
  // The number's value where it is known when compiling.
  std::optional<double> constant() const;
  const Dims& dims() const { return type.dims; }
  int rank() const { return type.rank(); }
  DType dtype() const { return type.dtype; }
  ir::OperandType operand_type() const;
};

class World {
 public:
  virtual ~World() = default;
  // One value per result. Throws Error as the type rule does.
  virtual SmallVector<Value, 2> emit(const Operator& op, Attributes attributes,
                                     std::span<const Value> operands) = 0;
  // The same with so many results: an opaque operator's last one may be its handle. A world without
  // handles has only the others.
  virtual SmallVector<Value, 2> emit_results(const Operator& op, Attributes attributes,
                                             std::span<const Value> operands, size_t results);
  // What a 0-d bool is, in a world that has values.
  virtual std::optional<bool> truth(const Value& value);
  // What is emitted while the result lives belongs to this step of a loop that is emitted step by
  // step. Null in a world that does not name them.
  virtual std::shared_ptr<void> enter_step(std::string_view loop, size_t step);
};

// A call of a derivative rule: given operands x, results y and their cotangents dy, the rule gives
// one gradient per wanted operand. The caller undoes broadcasting, casts back to the operand's
// dtype, and adds up; a rule need not. A gradient not given is structurally zero.
// Rules select, they never branch on data; they name temporaries, because the order in which
// compilers evaluate operands differs.
struct VjpCall {
  const Operator& op;
  World& world;
  std::span<const Value> operands;
  std::span<const Value> results;
  std::span<const Value> cotangents;  // undefined where no cotangent arrives
  const Attributes& attributes;
  std::span<const bool> wanted;     // floating tensor operands whose gradient is asked for
  SmallVector<Value, 4> gradients;  // one per operand

  // Operands and results as values (saved for the derivative), or by type only (not saved).
  const Value& x(size_t i = 0) const { return operands[i]; }
  const Value& y(size_t i = 0) const { return results[i]; }
  const Type& x_type(size_t i = 0) const { return operands[i].type; }
  const Type& y_type(size_t i = 0) const { return results[i].type; }
  bool given(size_t i) const { return i < operands.size() && operands[i].defined(); }
  bool wants(size_t i) const { return i < wanted.size() && wanted[i]; }
  // The cotangent of result i, zeros where none arrives. has_dy tells.
  Value dy(size_t i = 0);
  bool has_dy(size_t i = 0) const { return cotangents[i].defined(); }
  template <class A>
  const A& attr() const {
    return attributes_as<A>(attributes);
  }
  // `make` is called only if the gradient is wanted.
  template <class F>
  void give(size_t i, F make) {
    if (wants(i)) gradients[i] = make();
  }
};

// A call of a composition: operands in, results pushed in order.
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

// A world that only infers types: the type rule of compositions, and a dry run of rules.
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
