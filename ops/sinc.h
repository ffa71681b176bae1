// sin(pi x) / (pi x), and its derivatives, which have no poles.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "gradus/rules.h"
#include "gradus/table.h"

namespace gradus::ops {

// The n-th derivative of sin(pi x) / (pi x) by x.
Value sinc_derivative_of(int64_t n, const Value& x);

struct Sinc : Function<Unary<Result::floating>> {
  static constexpr std::string_view name = "sinc", doc = "y = sin(pi x) / (pi x); 1 at 0";
  template <class S>
  GRADUS_INLINE static S scalar(S x) {
    S u = select(x == 0.0, 1.0, x * std::numbers::pi);
    return select(x == 0.0, 1.0, sin(u) / u);
  }
  static Value dx(VjpCall& d) { return d.dy() * sinc_derivative_of(1, d.x()); }
};

// With f(u) = sin(u) / u and u = pi x, the result is pi^n times the n-th derivative of f:
//   near 0         the Taylor series, sum over even m + n of
//                  (-1)^((m + n) / 2) u^m / (m! (m + n + 1))
//   further away   from u f(u) = sin(u), differentiated k times: u f_k + k f_(k-1) = sin_k(u),
//                  where sin_k is the k-th derivative of sin
// The border keeps both from losing more than a few digits: the second one loses n! / u^n.
struct SincDerivative : LongFunction<Unary<Result::floating>> {
  static constexpr std::string_view name = "sinc_derivative",
                                    doc = "y = the n-th derivative of sinc(x), n from 0 to 30";
  struct Attr {
    int64_t n = 0;
    static constexpr auto fields() { return std::tuple(required("n", &Attr::n)); }
  };
  template <class S>
  GRADUS_INLINE static S scalar(S x, const Attr& a) {
    const int n = static_cast<int>(a.n);
    const double border = n / std::numbers::e + 1;
    S u = x * std::numbers::pi;
    typename S::Bool near = abs(u) < border;
    S small = select(near, u, 0.0), large = select(near, border, u);
    S y = select(near, series(small, n, border), recurrence(large, n));
    return y * std::pow(std::numbers::pi, n);
  }
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall& d, const Attr& a) { return d.dy() * sinc_derivative_of(a.n + 1, d.x()); }

 private:
  template <class S>
  GRADUS_INLINE static S series(S u, int n, double border) {
    // Powers from `first` to `last`, in steps of 2; border^last / last! is below an ulp.
    const int first = n % 2, last = first + 2 * static_cast<int>(9 + 1.6 * border);
    double factorial = std::tgamma(last + 1.0);
    S square = u * u, y = like(u, 0.0);
    for (int m = last; m >= first; m -= 2) {
      const double sign = (m + n) / 2 % 2 == 0 ? 1 : -1;
      y = fma(y, square, sign / (factorial * (m + n + 1)));
      if (m > 1) factorial /= static_cast<double>(m) * (m - 1);
    }
    return first == 1 ? y * u : y;
  }
  template <class S>
  GRADUS_INLINE static S recurrence(S u, int n) {
    S sine = sin(u), cosine = cos(u), y = sine / u;
    for (int k = 1; k <= n; ++k) {
      S slope = k % 2 == 0 ? sine : cosine;
      if (k % 4 >= 2) slope = -slope;
      y = (slope - y * static_cast<double>(k)) / u;
    }
    return y;
  }
};

using SincOperators = std::tuple<Sinc, SincDerivative>;

}  // namespace gradus::ops
