// A number as an attribute that remembers whether it was written as an integer: `alpha`, `value`, a
// bound. Like a number in an operand's place, it decides the result's category, not its width.
#pragma once

#include "gradus/attributes.h"
#include "gradus/convert.h"

namespace gradus::ops {

struct NumberLiteral : ir::Number {
  NumberLiteral() : ir::Number(of(0.0)) {}
  NumberLiteral(double f) : ir::Number(of(f)) {}        // NOLINT: literals convert
  NumberLiteral(int64_t i) : ir::Number(of(i)) {}       // NOLINT
  NumberLiteral(int i) : ir::Number(of(int64_t{i})) {}  // NOLINT

  bool is_floating() const { return category == Category::floating; }
  // Towards zero and saturated where it was written with a fraction; NaN is 0.
  int64_t as_integer() const { return is_floating() ? convert<int64_t>(floating) : integer; }
  bool is_one() const { return as_double() == 1; }
};

bool read_literal(const Literal&, NumberLiteral&, std::string& what);
Literal write_literal(const NumberLiteral&);

// Refuses a coefficient with a fraction where result 0 is of integers, as ATen does.
void require_integral_coefficient(const ir::InferCall& call, std::string_view name,
                                  const NumberLiteral& n);

// The number that an attribute holds (a bool, an integer, a dimension expression, a float);
// throws Error naming the operator and the attribute for anything else.
ir::Number number_of(const Literal& literal, const ir::DimEnvironment* sizes, std::string_view op,
                     std::string_view attribute);

// n in x's world: `x + constant_like(x, n)`.
template <class S>
[[gnu::always_inline]] inline S constant_like(S x, const NumberLiteral& n) {
  if constexpr (S::is_floating)
    return like(x, n.as_double());
  else
    return like(x, n.as_integer());
}

}  // namespace gradus::ops
