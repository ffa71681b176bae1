// Elementary functions, and the special ones that their derivatives lead to.
#pragma once

#include <numbers>

#include "ops/rules.h"
#include "ops/table.h"

namespace gradus::ops {

inline constexpr double ln2 = std::numbers::ln2, ln10 = std::numbers::ln10;
inline constexpr double two_over_sqrt_pi = 2 * std::numbers::inv_sqrtpi;

// 1 / sqrt(1 - x^2), by factors: exact differences near x = 1 and x = -1.
Value rsqrt_one_minus_square(const Value& x);
// e^(-x^2)
Value gaussian(const Value& x);
// The n-th derivative of digamma.
Value polygamma_of(int64_t n, const Value& x);

struct Exp : Unary<Result::floating> {  // y = e^x
  static constexpr std::string_view name = "exp", doc = "y = e^x";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return exp(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * d.y(); });
  }
};

struct Exp2 : Unary<Result::floating> {  // y = 2^x
  static constexpr std::string_view name = "exp2", doc = "y = 2^x";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return exp2(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (d.y() * ln2); });
  }
};

// Its slope is exp(x), which y + 1 would lose to rounding for small results.
struct Expm1 : Unary<Result::floating> {  // y = e^x - 1
  static constexpr std::string_view name = "expm1", doc = "y = e^x - 1";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return expm1(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("exp", d.x()); });
  }
};

struct Log : Unary<Result::floating> {  // y = log(x)
  static constexpr std::string_view name = "log", doc = "y = log(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return log(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / d.x(); });
  }
};

struct Log2 : Unary<Result::floating> {  // y = log(x) / log(2)
  static constexpr std::string_view name = "log2", doc = "y = log(x) / log(2)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return log2(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / (d.x() * ln2); });
  }
};

struct Log10 : Unary<Result::floating> {  // y = log(x) / log(10)
  static constexpr std::string_view name = "log10", doc = "y = log(x) / log(10)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return log10(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / (d.x() * ln10); });
  }
};

struct Log1p : Unary<Result::floating> {  // y = log(1 + x)
  static constexpr std::string_view name = "log1p", doc = "y = log(1 + x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return log1p(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / (d.x() + 1.0); });
  }
};

struct Sin : Unary<Result::floating> {  // y = sin(x)
  static constexpr std::string_view name = "sin", doc = "y = sin(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return sin(x);
  }
  template <class S>
  GRADUS_INLINE static auto is_usual(S x) {
    return is_moderate_angle(x);
  }
  template <class S>
  GRADUS_INLINE static S scalar_usual(S x) {
    return sin_moderate(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("cos", d.x()); });
  }
};

struct Cos : Unary<Result::floating> {  // y = cos(x)
  static constexpr std::string_view name = "cos", doc = "y = cos(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return cos(x);
  }
  template <class S>
  GRADUS_INLINE static auto is_usual(S x) {
    return is_moderate_angle(x);
  }
  template <class S>
  GRADUS_INLINE static S scalar_usual(S x) {
    return cos_moderate(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return -(d.dy() * unary("sin", d.x())); });
  }
};

struct Tan : Unary<Result::floating> {  // y = tan(x)
  static constexpr std::string_view name = "tan", doc = "y = tan(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return tan(x);
  }
  template <class S>
  GRADUS_INLINE static auto is_usual(S x) {
    return is_moderate_angle(x);
  }
  template <class S>
  GRADUS_INLINE static S scalar_usual(S x) {
    return tan_moderate(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (unary("square", d.y()) + 1.0); });
  }
};

struct Asin : Unary<Result::floating> {  // y = arcsin(x)
  static constexpr std::string_view name = "asin", doc = "y = arcsin(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return asin(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * rsqrt_one_minus_square(d.x()); });
  }
};

struct Acos : Unary<Result::floating> {  // y = arccos(x)
  static constexpr std::string_view name = "acos", doc = "y = arccos(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return acos(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return -(d.dy() * rsqrt_one_minus_square(d.x())); });
  }
};

struct Atan : Unary<Result::floating> {  // y = arctan(x)
  static constexpr std::string_view name = "atan", doc = "y = arctan(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return atan(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / (unary("square", d.x()) + 1.0); });
  }
};

struct Sinh : Unary<Result::floating> {  // y = (e^x - e^-x) / 2
  static constexpr std::string_view name = "sinh", doc = "y = (e^x - e^-x) / 2";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return sinh(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("cosh", d.x()); });
  }
};

struct Cosh : Unary<Result::floating> {  // y = (e^x + e^-x) / 2
  static constexpr std::string_view name = "cosh", doc = "y = (e^x + e^-x) / 2";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return cosh(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("sinh", d.x()); });
  }
};

struct Tanh : Unary<Result::floating> {  // y = (e^x - e^-x) / (e^x + e^-x)
  static constexpr std::string_view name = "tanh", doc = "y = (e^x - e^-x) / (e^x + e^-x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return tanh(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (1.0 - unary("square", d.y())); });
  }
};

struct Asinh : Unary<Result::floating> {  // y = log(x + sqrt(x^2 + 1))
  static constexpr std::string_view name = "asinh", doc = "y = log(x + sqrt(x^2 + 1))";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return asinh(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() / binary("hypot", d.x(), num(1.0)); });
  }
};

struct Acosh : Unary<Result::floating> {  // y = log(x + sqrt(x^2 - 1))
  static constexpr std::string_view name = "acosh", doc = "y = log(x + sqrt(x^2 - 1)), x >= 1";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return acosh(x);
  }
  static void vjp(VjpCall& d);
};

struct Atanh : Unary<Result::floating> {  // y = log((1 + x) / (1 - x)) / 2
  static constexpr std::string_view name = "atanh", doc = "y = log((1 + x) / (1 - x)) / 2";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return atanh(x);
  }
  static void vjp(VjpCall& d);
};

struct Erf : Unary<Result::floating> {  // y = 2 / sqrt(pi) * integral of e^-t^2 from 0 to x
  static constexpr std::string_view name = "erf",
                                    doc = "y = 2 / sqrt(pi) * integral of e^-t^2 from 0 to x";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return erf(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (gaussian(d.x()) * two_over_sqrt_pi); });
  }
};

struct Erfc : Unary<Result::floating> {  // y = 1 - erf(x)
  static constexpr std::string_view name = "erfc", doc = "y = 1 - erf(x)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return erfc(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * (gaussian(d.x()) * -two_over_sqrt_pi); });
  }
};

struct Erfinv : Unary<Result::floating> {  // x = erf(y)
  static constexpr std::string_view name = "erfinv", doc = "erf(y) = x";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return erfinv(x);
  }
  static void vjp(VjpCall& d);
};

struct Lgamma : Unary<Result::floating> {  // y = log |Gamma(x)|
  static constexpr std::string_view name = "lgamma", doc = "y = log |Gamma(x)|";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return lgamma(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("digamma", d.x()); });
  }
};

struct Digamma : Unary<Result::floating> {  // y = d log |Gamma(x)| / dx
  static constexpr std::string_view name = "digamma", doc = "y = d log |Gamma(x)| / dx";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return digamma(x);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * polygamma_of(1, d.x()); });
  }
};

struct Polygamma : Unary<Result::floating> {  // y = d^n digamma(x) / dx^n
  static constexpr std::string_view name = "polygamma",
                                    doc = "y = the n-th derivative of digamma(x), n from 0 to 30";
  struct Attr {
    int64_t n = 0;
    static constexpr auto fields() { return std::tuple(required("n", &Attr::n)); }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    return polygamma(static_cast<int>(a.n), x);
  }
  static void infer(InferCall&);
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * polygamma_of(d.attr<Attr>().n + 1, d.x()); });
  }
};

struct NormalCdf : Unary<Result::floating> {  // y = P(a standard normal number is below x)
  static constexpr std::string_view name = "normal_cdf", doc = "y = erfc(-x / sqrt(2)) / 2";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return erfc(x * -std::numbers::sqrt2 / 2) * 0.5;
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return d.dy() * unary("normal_pdf", d.x()); });
  }
};

struct NormalPdf : Unary<Result::floating> {  // y = e^(-x^2 / 2) / sqrt(2 pi)
  static constexpr std::string_view name = "normal_pdf", doc = "y = e^(-x^2 / 2) / sqrt(2 pi)";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    return exp(x * x * -0.5) * (std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
  }
  static void vjp(VjpCall& d) {
    d.give(0, [&] { return -(d.dy() * (d.x() * d.y())); });
  }
};

// log(e^x + e^y), from the larger one; infinities of one sign stay what they are.
struct Logaddexp : Binary<Result::floating> {  // z = log(e^x + e^y)
  static constexpr std::string_view name = "logaddexp", doc = "z = log(e^x + e^y)";
  static constexpr std::array<std::string_view, 1> results{"z"};
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    S larger = maximum(x, y);
    S smaller = minimum(x, y);
    S sum = larger + log1p(exp(smaller - larger));
    return select(is_inf(x) & (x == y), x, sum);
  }
  static void vjp(VjpCall& d);
};

struct Xlogy : Binary<Result::floating> {  // z = x log(y), 0 where x = 0
  static constexpr std::string_view name = "xlogy", doc = "z = x * log(y); 0 where x is 0";
  static constexpr std::array<std::string_view, 1> results{"z"};
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    S product = x * log(y);
    return select((x == 0.0) & (y == y), 0.0, product);
  }
  static void vjp(VjpCall& d);
};

using ElementaryOperators =
    std::tuple<Exp, Exp2, Expm1, Log, Log2, Log10, Log1p, Sin, Cos, Tan, Asin, Acos, Atan, Sinh,
               Cosh, Tanh, Asinh, Acosh, Atanh, Erf, Erfc, Erfinv, Lgamma, Digamma, Polygamma,
               NormalCdf, NormalPdf, Logaddexp, Xlogy>;

}  // namespace gradus::ops
