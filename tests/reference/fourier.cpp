// Of the evaluator: the Fourier transform, by its sum.
#include <cmath>
#include <numbers>

#include "tests/reference/parts.h"

namespace gradus::reference {

namespace {

// Of real numbers the first half, or real numbers of that.
void evaluate_real(const Fourier& w, Args args) {
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]};
  const auto dim = static_cast<size_t>(w.dim);
  const size_t rank = w.x.shape.size() - (w.of_real ? 0 : 1);
  const int64_t n = w.of_real ? w.x.shape[dim] : w.real_size, half = n / 2 + 1;
  int64_t lines = 1, inner = 1;
  for (size_t d = 0; d < rank; ++d) lines *= d == dim ? 1 : w.x.shape[d];
  for (size_t d = dim + 1; d < rank; ++d) inner *= w.x.shape[d];
  const int64_t parts = w.of_real ? 1 : 2, from = w.of_real ? n : half, to = w.of_real ? half : n;
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t outer = line / inner, at = line % inner;
    // Element m of the line, among all in row-major order.
    auto place = [&](int64_t m, int64_t of) { return (outer * of + m) * inner + at; };
    for (int64_t k = 0; k < to; ++k) {
      double re = 0, im = 0;
      for (int64_t m = 0; m < from; ++m) {
        const double turn =
            2 * std::numbers::pi * static_cast<double>(k * m % n) / static_cast<double>(n);
        const int64_t first = place(m, from) * parts;
        const double a = x.get<double>(offset_of(first, w.x));
        const double b =
            w.of_real || m == 0 || 2 * m == n ? 0 : x.get<double>(offset_of(first + 1, w.x));
        const double s = w.inverse ? std::sin(turn) : -std::sin(turn);
        re += a * std::cos(turn) - b * s;
        im += a * s + b * std::cos(turn);
      }
      const int64_t result = place(k, to) * (w.of_real ? 2 : 1);
      y.set(result, w.scale * re);
      if (w.of_real) y.set(result + 1, w.scale * im);
    }
  }
}

}  // namespace

void evaluate(const Fourier& w, Args args) {
  if (w.of_real || w.real_size > 0) return evaluate_real(w, args);
  const Array x{w.x.dtype, args[0]}, y{w.x.dtype, args[1]};
  const auto dim = static_cast<size_t>(w.dim);
  const int64_t n = w.x.shape[dim];
  int64_t step = 2;  // between numbers of a line of the result
  for (size_t d = dim + 1; d + 1 < w.x.shape.size(); ++d) step *= w.x.shape[d];
  for (int64_t at = 0; at < w.x.numel(); at += 2) {
    const int64_t k = at / step % n, first = at - k * step;
    double re = 0, im = 0;
    for (int64_t m = 0; m < n; ++m) {
      const double turn =
          2 * std::numbers::pi * static_cast<double>(k * m % n) / static_cast<double>(n);
      const double c = std::cos(turn), s = w.inverse ? std::sin(turn) : -std::sin(turn);
      const double a = x.get<double>(offset_of(first + m * step, w.x));
      const double b = x.get<double>(offset_of(first + m * step + 1, w.x));
      re += a * c - b * s;
      im += a * s + b * c;
    }
    y.set(at, w.scale * re);
    y.set(at + 1, w.scale * im);
  }
}

}  // namespace gradus::reference
