// Comparisons, logic, tests of elements, and selection by them.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"
#include "ops/number_literal.h"

namespace gradus::ops {

// Comparisons are done in the operands' common dtype, as ATen does; false with NaN except ne.
struct Comparison : Binary<Result::boolean> {
  static constexpr bool zero_gradient = true;
};

struct Eq : Comparison {  // z = x == y
  static constexpr std::string_view name = "eq", doc = "z = x == y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x == y; }
};

struct Ne : Comparison {  // z = x != y
  static constexpr std::string_view name = "ne", doc = "z = x != y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x != y; }
};

struct Lt : Comparison {  // z = x < y
  static constexpr std::string_view name = "lt", doc = "z = x < y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x < y; }
};

struct Le : Comparison {  // z = x <= y
  static constexpr std::string_view name = "le", doc = "z = x <= y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x <= y; }
};

struct Gt : Comparison {  // z = x > y
  static constexpr std::string_view name = "gt", doc = "z = x > y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x > y; }
};

struct Ge : Comparison {  // z = x >= y
  static constexpr std::string_view name = "ge", doc = "z = x >= y";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x >= y; }
};

// Logic reads any dtype as truth: not zero (NaN is true).
struct Logic : Comparison {
  static constexpr std::array<Role, 2> roles{Role::condition, Role::condition};
};

struct LogicalAnd : Logic {  // z = x and y
  static constexpr std::string_view name = "logical_and", doc = "z = x and y";
  template <class S>
  GRADUS_INLINE static auto scalar(typename S::Bool x, typename S::Bool y) {
    return x & y;
  }
};

struct LogicalOr : Logic {  // z = x or y
  static constexpr std::string_view name = "logical_or", doc = "z = x or y";
  template <class S>
  GRADUS_INLINE static auto scalar(typename S::Bool x, typename S::Bool y) {
    return x | y;
  }
};

struct LogicalXor : Logic {  // z = either x or y
  static constexpr std::string_view name = "logical_xor", doc = "z = x or y, not both";
  template <class S>
  GRADUS_INLINE static auto scalar(typename S::Bool x, typename S::Bool y) {
    return x ^ y;
  }
};

struct LogicalNot : Unary<Result::boolean> {  // y = not x
  static constexpr std::string_view name = "logical_not", doc = "y = not x";
  static constexpr std::array<Role, 1> roles{Role::condition};
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static auto scalar(typename S::Bool x) {
    return !x;
  }
};

// Tests of floating values; integers are finite.
struct Isnan : Unary<Result::boolean> {  // y = x is NaN
  static constexpr std::string_view name = "isnan", doc = "y = x is NaN";
  static constexpr bool zero_gradient = true;
  GRADUS_INLINE static auto scalar(auto x) { return x != x; }
};

struct Isinf : Unary<Result::boolean> {  // y = x is infinite
  static constexpr std::string_view name = "isinf", doc = "y = x is an infinity of either sign";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static auto scalar(S x) {
    if constexpr (S::is_floating)
      return is_inf(x);
    else
      return x != x;
  }
};

struct Isfinite : Unary<Result::boolean> {  // y = x is finite
  static constexpr std::string_view name = "isfinite", doc = "y = x is neither NaN nor an infinity";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static auto scalar(S x) {
    if constexpr (S::is_floating)
      return is_finite(x);
    else
      return x == x;
  }
};

struct Where : Pointwise<3, Result::same> {  // z = x where the condition holds, else y
  static constexpr std::string_view name = "where", doc = "z = x where cond, else y";
  static constexpr std::array<std::string_view, 3> inputs{"cond", "x", "y"};
  static constexpr std::array<std::string_view, 1> results{"z"};
  static constexpr std::array<Role, 3> roles{Role::condition, Role::value, Role::value};
  template <class S>
  GRADUS_INLINE static S scalar(typename S::Bool condition, S x, S y) {
    return select(condition, x, y);
  }
  static void infer(InferCall&);
  static void vjp(VjpCall& d) {
    d.give(1, [&] { return keep_where(d.x(0), d.dy()); });
    d.give(2, [&] { return where(d.x(0), num(0.0), d.dy()); });
  }
};

struct MaskedFill : Pointwise<2, Result::same> {  // y = value where the mask holds, else x
  static constexpr std::string_view name = "masked_fill", doc = "y = value where mask, else x";
  static constexpr std::array<std::string_view, 2> inputs{"x", "mask"};
  static constexpr std::array<Role, 2> roles{Role::value, Role::condition};
  struct Attr {
    NumberLiteral value;
    static constexpr auto fields() { return std::tuple(required("value", &Attr::value)); }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, typename S::Bool mask, const Attr& a) {
    return select(mask, constant_like(x, a.value), x);
  }
  static void infer(InferCall&);
  static Value dx(VjpCall& d) { return where(d.x(1), num(0.0), d.dy()); }
};

struct Clamp : Unary<> {  // y = min(max(x, lower), upper); upper where lower > upper
  static constexpr std::string_view name = "clamp";
  static constexpr std::string_view doc =
      "y = x kept within [min, max]; derivative 1 on the bounds";
  struct Attr {
    std::optional<NumberLiteral> min, max;
    static constexpr auto fields() {
      return std::tuple(field("min", &Attr::min), field("max", &Attr::max));
    }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    S y = x;
    if (a.min) {
      S lower = constant_like(x, *a.min);
      y = select(y < lower, lower, y);
    }
    if (a.max) {
      S upper = constant_like(x, *a.max);
      y = select(y > upper, upper, y);
    }
    return y;
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using ComparisonOperators =
    std::tuple<Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalOr, LogicalXor, LogicalNot, Isnan, Isinf,
               Isfinite, Where, MaskedFill, Clamp>;

}  // namespace gradus::ops
