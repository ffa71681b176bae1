// Of the evaluator: the Fourier transform, by its sum.
#include <cmath>
#include <numbers>

#include "tests/reference/parts.h"

namespace gradus::reference {

void evaluate(const Fourier& w, Args args) {
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
