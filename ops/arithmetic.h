// Arithmetic on elements: sums, products, powers, extrema.
#pragma once

#include "gradus/rules.h"
#include "gradus/table.h"
#include "ops/declared.h"
#include "ops/number_literal.h"

namespace gradus::ops {

struct Neg : Unary<> {  // y = -x
  static constexpr std::string_view name = "neg", doc = "y = -x";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr bool refuses_bool = true;
  GRADUS_INLINE static auto scalar(auto x) { return -x; }
  static Value dx(VjpCall& d) { return -d.dy(); }
};

struct Abs : Unary<> {  // y = |x|
  static constexpr std::string_view name = "abs", doc = "y = |x|; its derivative at 0 is 0";
  GRADUS_INLINE static auto scalar(auto x) { return abs(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Sign>(d.x()); }
};

struct Sign : Unary<> {  // y = 1, 0 or -1; 0 for NaN
  static constexpr std::string_view name = "sign", doc = "y = 1 if x > 0, -1 if x < 0, else 0";
  static constexpr bool zero_gradient = true;
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    S negative = select(x < 0, like(x, -1), 0);
    return select(x > 0, 1, negative);
  }
};

struct Reciprocal : Unary<Result::floating> {  // y = 1 / x
  static constexpr std::string_view name = "reciprocal", doc = "y = 1 / x";
  GRADUS_INLINE static auto scalar(auto x) { return 1.0 / x; }
  static Value dx(VjpCall& d) { return -(d.dy() * emit<Square>(d.y())); }  // dx = -dy y^2
};

struct Square : Unary<> {  // y = x^2
  static constexpr std::string_view name = "square", doc = "y = x * x";
  GRADUS_INLINE static auto scalar(auto x) { return x * x; }
  static Value dx(VjpCall& d) { return d.dy() * (d.x() * 2.0); }
};

struct Sqrt : Unary<Result::floating> {  // y = sqrt(x)
  static constexpr std::string_view name = "sqrt", doc = "y = sqrt(x)";
  GRADUS_INLINE static auto scalar(auto x) { return sqrt(x); }
  static Value dx(VjpCall& d) { return d.dy() / (d.y() * 2.0); }  // dx = dy / 2y
};

struct Rsqrt : Unary<Result::floating> {  // y = 1 / sqrt(x)
  static constexpr std::string_view name = "rsqrt", doc = "y = 1 / sqrt(x)";
  GRADUS_INLINE static auto scalar(auto x) { return 1.0 / sqrt(x); }
  static Value dx(VjpCall&);
};

// The coefficient of add and sub.
struct AlphaAttr {
  NumberLiteral alpha = 1;
  static constexpr auto fields() { return std::tuple(field("alpha", &AlphaAttr::alpha)); }
};

struct Add : Binary<> {  // z = x + alpha y
  static constexpr std::string_view name = "add", doc = "z = x + alpha * y";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr bool accumulates = true;
  using Attr = AlphaAttr;
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y, const Attr& a) {
    if (a.alpha.is_one()) return x + y;
    return x + y * constant_like(y, a.alpha);
  }
  static void infer(InferCall&, const Attr&);
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy(); });
    d.give(1, [&] { return d.dy() * d.attr<Attr>().alpha.as_double(); });
  }
};

struct Sub : Binary<> {  // z = x - alpha y
  static constexpr std::string_view name = "sub", doc = "z = x - alpha * y";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr bool refuses_bool = true;
  using Attr = AlphaAttr;
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y, const Attr& a) {
    if (a.alpha.is_one()) return x - y;
    return x - y * constant_like(y, a.alpha);
  }
  static void infer(InferCall&, const Attr&);
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy(); });
    // Summed first, where y was broadcast: what is left has fewer elements.
    d.give(1, [&] {
      const NumberLiteral& alpha = d.attr<Attr>().alpha;
      const Value dy = sum_to(d.dy(), d.x_type(1).dims);
      return alpha.is_one() ? -dy : dy * -alpha.as_double();
    });
  }
};

struct Mul : Binary<> {  // z = x y
  static constexpr std::string_view name = "mul", doc = "z = x * y";
  static constexpr auto linear = ir::Linear::in_each;
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x * y; }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * d.x(1); });
    d.give(1, [&] { return d.dy() * d.x(0); });
  }
};

struct Div : Binary<Result::floating> {  // z = x / y
  static constexpr std::string_view name = "div", doc = "z = x / y; integers give f32";
  static constexpr auto linear = ir::Linear::in_first;
  GRADUS_INLINE static auto scalar(auto x, auto y) { return x / y; }
  static void vjp(VjpCall& d);
};

struct Pow : Function<Binary<>> {  // z = x^y
  static constexpr std::string_view name = "pow", doc = "z = x^y";
  // Integers: by squaring, wrapping; a negative power is 0 but for x = 1 and x = -1.
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    if constexpr (S::is_floating)
      return pow(x, y);
    else
      return integer_power(x, y);
  }
  static void bind(BindCall& call);  // by a number: see ops/powers.h
  static void vjp(VjpCall& d);

 private:
  template <class S>
  GRADUS_INLINE static S integer_power(S x, S y) {
    S result = like(x, 1), factor = x, rest = y;
    for (int bit = 0; bit < (S::is_unsigned ? 64 : 63); ++bit) {
      result = select((rest & 1) != 0, result * factor, result);
      factor = factor * factor;
      rest = lshr(rest, 1);
    }
    if constexpr (S::is_unsigned) return result;
    S odd_sign = select((y & 1) != 0, like(x, -1), 1);
    S minus_one = select(x == -1, odd_sign, 0);
    S negative = select(x == 1, 1, minus_one);
    return select(y < 0, negative, result);
  }
};

struct Maximum : Binary<> {  // z = max(x, y)
  static constexpr std::string_view name = "maximum";
  static constexpr std::string_view doc =
      "z = max(x, y), NaN if either is; ties halve the gradient";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return maximum(x, y); }
  static void vjp(VjpCall& d);
};

struct Minimum : Binary<> {  // z = min(x, y)
  static constexpr std::string_view name = "minimum";
  static constexpr std::string_view doc =
      "z = min(x, y), NaN if either is; ties halve the gradient";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return minimum(x, y); }
  static void vjp(VjpCall& d);
};

struct Fmax : Binary<> {  // z = max(x, y)
  static constexpr std::string_view name = "fmax",
                                    doc = "z = max(x, y), the other one if one is NaN; ties: x";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return fmax(x, y); }
  static void vjp(VjpCall& d);
};

struct Fmin : Binary<> {  // z = min(x, y)
  static constexpr std::string_view name = "fmin",
                                    doc = "z = min(x, y), the other one if one is NaN; ties: x";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return fmin(x, y); }
  static void vjp(VjpCall& d);
};

struct Atan2 : Function<Binary<Result::floating>> {  // z = the angle of the point (y, x)
  static constexpr std::string_view name = "atan2",
                                    doc = "z = atan(x / y) in the quadrant of (y, x)";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return atan2(x, y); }
  static void vjp(VjpCall& d);
};

struct Hypot : Function<Binary<Result::floating>> {  // z = sqrt(x^2 + y^2)
  static constexpr std::string_view name = "hypot", doc = "z = sqrt(x^2 + y^2) without overflow";
  GRADUS_INLINE static auto scalar(auto x, auto y) { return hypot(x, y); }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (d.x(0) / d.y()); });
    d.give(1, [&] { return d.dy() * (d.x(1) / d.y()); });
  }
};

struct Lerp : Pointwise<3, Result::floating> {  // y = start + weight (end - start)
  static constexpr std::string_view name = "lerp", doc = "y = start + weight * (end - start)";
  static constexpr std::array<std::string_view, 3> inputs{"start", "end", "weight"};
  // From the nearer end, so that weights 0 and 1 give the ends themselves.
  template <class S>
  GRADUS_INLINE static S scalar(S start, S end, S weight) {
    S way = end - start;
    S from_start = start + weight * way;
    S from_end = end - way * (1.0 - weight);
    return select(weight < 0.5, from_start, from_end);
  }
  static void vjp(VjpCall& d);
};

// The factor of addcmul and addcdiv.
struct ValueAttr {
  NumberLiteral value = 1;
  static constexpr auto fields() { return std::tuple(field("value", &ValueAttr::value)); }
};

struct Addcmul : Pointwise<3, Result::same> {  // y = x + value t1 t2
  static constexpr std::string_view name = "addcmul", doc = "y = x + value * t1 * t2";
  static constexpr std::array<std::string_view, 3> inputs{"x", "t1", "t2"};
  using Attr = ValueAttr;
  template <class S>
  GRADUS_INLINE static S scalar(S x, S t1, S t2, const Attr& a) {
    if (a.value.is_one()) return x + t1 * t2;
    return x + constant_like(x, a.value) * t1 * t2;
  }
  static void infer(InferCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct Addcdiv : Pointwise<3, Result::floating> {  // y = x + value t1 / t2
  static constexpr std::string_view name = "addcdiv", doc = "y = x + value * t1 / t2";
  static constexpr std::array<std::string_view, 3> inputs{"x", "t1", "t2"};
  using Attr = ValueAttr;
  template <class S>
  GRADUS_INLINE static S scalar(S x, S t1, S t2, const Attr& a) {
    if (a.value.is_one()) return x + t1 / t2;
    return x + constant_like(x, a.value) * t1 / t2;
  }
  static void vjp(VjpCall&, const Attr&);
};

using ArithmeticOperators =
    std::tuple<Neg, Abs, Sign, Reciprocal, Square, Sqrt, Rsqrt, Add, Sub, Mul, Div, Pow, Maximum,
               Minimum, Fmax, Fmin, Atan2, Hypot, Lerp, Addcmul, Addcdiv>;

}  // namespace gradus::ops
