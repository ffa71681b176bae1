// Special functions, those among them that only derivatives ask for.
#pragma once

#include <numbers>

#include "gradus/rules.h"
#include "gradus/table.h"
#include "ops/declared.h"

namespace gradus::ops {

inline constexpr double two_over_sqrt_pi = 2 * std::numbers::inv_sqrtpi;

// e^(-x^2)
Value gaussian(const Value& x);
// The n-th derivative of digamma.
Value polygamma_of(int64_t n, const Value& x);

struct Erf
    : Function<Unary<Result::floating>> {  // y = 2 / sqrt(pi) * integral of e^-t^2 from 0 to x
  static constexpr std::string_view name = "erf",
                                    doc = "y = 2 / sqrt(pi) * integral of e^-t^2 from 0 to x";
  GRADUS_INLINE static auto scalar(auto x) { return erf(x); }
  static Value dx(VjpCall& d) { return d.dy() * (gaussian(d.x()) * two_over_sqrt_pi); }
};

struct Erfc : Function<Unary<Result::floating>> {  // y = 1 - erf(x)
  static constexpr std::string_view name = "erfc", doc = "y = 1 - erf(x)";
  GRADUS_INLINE static auto scalar(auto x) { return erfc(x); }
  static Value dx(VjpCall& d) { return d.dy() * (gaussian(d.x()) * -two_over_sqrt_pi); }
};

struct Erfinv : Function<Unary<Result::floating>> {  // x = erf(y)
  static constexpr std::string_view name = "erfinv", doc = "erf(y) = x";
  GRADUS_INLINE static auto scalar(auto x) { return erfinv(x); }
  static Value dx(VjpCall&);
};

struct Lgamma : Function<Unary<Result::floating>> {  // y = log |Gamma(x)|
  static constexpr std::string_view name = "lgamma", doc = "y = log |Gamma(x)|";
  GRADUS_INLINE static auto scalar(auto x) { return lgamma(x); }
  static Value dx(VjpCall& d) { return d.dy() * emit<Digamma>(d.x()); }
};

struct Digamma : LongFunction<Unary<Result::floating>> {  // y = d log |Gamma(x)| / dx
  static constexpr std::string_view name = "digamma", doc = "y = d log |Gamma(x)| / dx";
  GRADUS_INLINE static auto scalar(auto x) { return digamma(x); }
  static Value dx(VjpCall& d) { return d.dy() * polygamma_of(1, d.x()); }
};

struct Polygamma : LongFunction<Unary<Result::floating>> {  // y = d^n digamma(x) / dx^n
  static constexpr std::string_view name = "polygamma",
                                    doc = "y = the n-th derivative of digamma(x), n from 0 to 30";
  struct Attr {
    int64_t n = 0;
    static constexpr auto fields() { return std::tuple(required("n", &Attr::n)); }
  };
  GRADUS_INLINE static auto scalar(auto x, const Attr& a) {
    return polygamma(static_cast<int>(a.n), x);
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall& d, const Attr& a) { return d.dy() * polygamma_of(a.n + 1, d.x()); }
};

struct NormalCdf
    : Function<Unary<Result::floating>> {  // y = P(a standard normal number is below x)
  static constexpr std::string_view name = "normal_cdf", doc = "y = erfc(-x / sqrt(2)) / 2";
  GRADUS_INLINE static auto scalar(auto x) { return erfc(x * -std::numbers::sqrt2 / 2) * 0.5; }
  static Value dx(VjpCall& d) { return d.dy() * emit<NormalPdf>(d.x()); }
};

struct NormalPdf : Function<Unary<Result::floating>> {  // y = e^(-x^2 / 2) / sqrt(2 pi)
  static constexpr std::string_view name = "normal_pdf", doc = "y = e^(-x^2 / 2) / sqrt(2 pi)";
  GRADUS_INLINE static auto scalar(auto x) {
    return exp(x * x * -0.5) * (std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
  }
  static Value dx(VjpCall& d) { return -(d.dy() * (d.x() * d.y())); }
};

// log(e^x + e^y), from the larger one; infinities of one sign stay what they are.
struct Logaddexp : Function<Binary<Result::floating>> {  // z = log(e^x + e^y)
  static constexpr std::string_view name = "logaddexp", doc = "z = log(e^x + e^y)";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    S larger = maximum(x, y);
    S smaller = minimum(x, y);
    S sum = larger + log1p(exp(smaller - larger));
    return select(is_inf(x) & (x == y), x, sum);
  }
  static void vjp(VjpCall& d);
};

struct Xlogy : Function<Binary<Result::floating>> {  // z = x log(y), 0 where x = 0
  static constexpr std::string_view name = "xlogy", doc = "z = x * log(y); 0 where x is 0";
  template <class S>
  GRADUS_INLINE static S scalar(S x, S y) {
    S product = x * log(y);
    return select((x == 0.0) & (y == y), 0.0, product);
  }
  static void vjp(VjpCall& d);
};

using SpecialOperators = std::tuple<Erf, Erfc, Erfinv, Lgamma, Digamma, Polygamma, NormalCdf,
                                    NormalPdf, Logaddexp, Xlogy>;

}  // namespace gradus::ops
