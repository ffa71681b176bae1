// Discrete Fourier transforms, one line of complex numbers after the other, in f64.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "base/slots.h"
#include "kernels/copies.h"
#include "kernels/make.h"

namespace gradus::kernels {

namespace {

// Radices beyond this one cost more than a convolution.
constexpr int64_t largest_radix = 61;

struct Complex {
  double re, im;
};
Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Complex turned_back(Complex a) { return {a.im, -a.re}; }  // times -i

// exp(-2 pi i k / n), 0 <= k < n: by an angle in the first eighth of the turn.
Complex root(int64_t k, int64_t n) {
  if (2 * k > n) {  // a turn less the angle
    const Complex w = root(n - k, n);
    return {w.re, -w.im};
  }
  if (4 * k > n) {  // half a turn less the angle
    const Complex w = root(n - 2 * k, 2 * n);
    return {-w.re, w.im};
  }
  if (8 * k > n) {  // a quarter of a turn less the angle
    const Complex w = root(n - 4 * k, 4 * n);
    return {-w.im, -w.re};
  }
  const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
  return {std::cos(angle), -std::sin(angle)};
}

// The transform of n numbers: by the steps of J. Cooley and J. Tukey (1965), in the order of
// T. Stockham (1966), which needs no exchange of places.
struct Steps {
  int64_t n = 1;
  std::vector<int64_t> radices;
  std::vector<Complex> roots;  // roots[k] = exp(-2 pi i k / n)
};

std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> radices;
  for (; n % 4 == 0; n /= 4) radices.push_back(4);
  for (int64_t r = 2; n > 1; ++r) {
    if (r * r > n) r = n;
    for (; n % r == 0; n /= r) radices.push_back(r);
  }
  return radices;
}

Steps steps_of(int64_t n) {
  Steps s{n, radices_of(n), {}};
  s.roots.reserve(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) s.roots.push_back(root(k, n));
  return s;
}

// What each step knows: `stride` transforms lie side by side, of `length` numbers left each.
struct Step {
  int64_t length, stride;
  const Complex* roots;
};

void step_of_two(const Step& s, const Complex* x, Complex* y) {
  const int64_t m = s.length / 2, t = s.stride;
  for (int64_t p = 0; p < m; ++p) {
    const Complex w = s.roots[t * p];
    const Complex *a = x + t * p, *b = x + t * (p + m);
    Complex* to = y + t * 2 * p;
    for (int64_t q = 0; q < t; ++q) {
      to[q] = a[q] + b[q];
      to[q + t] = (a[q] - b[q]) * w;
    }
  }
}

void step_of_four(const Step& s, const Complex* x, Complex* y) {
  const int64_t m = s.length / 4, t = s.stride;
  for (int64_t p = 0; p < m; ++p) {
    const Complex w1 = s.roots[t * p], w2 = s.roots[2 * t * p], w3 = s.roots[3 * t * p];
    const Complex* a = x + t * p;
    Complex* to = y + t * 4 * p;
    for (int64_t q = 0; q < t; ++q) {
      const Complex even = a[q] + a[q + 2 * t * m], odd = a[q + t * m] + a[q + 3 * t * m];
      const Complex across = a[q] - a[q + 2 * t * m];
      const Complex turned = turned_back(a[q + t * m] - a[q + 3 * t * m]);
      to[q] = even + odd;
      to[q + t] = (across + turned) * w1;
      to[q + 2 * t] = (even - odd) * w2;
      to[q + 3 * t] = (across - turned) * w3;
    }
  }
}

void step_of_any(const Step& s, int64_t r, int64_t n, const Complex* x, Complex* y) {
  const int64_t m = s.length / r, t = s.stride;
  for (int64_t p = 0; p < m; ++p)
    for (int64_t k = 0; k < r; ++k) {
      Complex* to = y + t * (r * p + k);
      const Complex* from = x + t * p;
      const Complex w = s.roots[t * p * k];
      std::copy_n(from, t, to);
      for (int64_t j = 1, turn = k; j < r; ++j, turn = turn + k < r ? turn + k : turn + k - r) {
        from += t * m;
        const Complex f = s.roots[n / r * turn];
        for (int64_t q = 0; q < t; ++q) to[q] = to[q] + from[q] * f;
      }
      for (int64_t q = 0; q < t; ++q) to[q] = to[q] * w;
    }
}

// x [n] -> its transform, in `x`; `other` has room for as many.
void transform(const Steps& steps, Complex* x, Complex* other) {
  Complex* const result = x;
  Step s{steps.n, 1, steps.roots.data()};
  for (int64_t r : steps.radices) {
    if (r == 4)
      step_of_four(s, x, other);
    else if (r == 2)
      step_of_two(s, x, other);
    else
      step_of_any(s, r, steps.n, x, other);
    std::swap(x, other);
    s.length /= r;
    s.stride *= r;
  }
  if (x != result) std::copy_n(x, steps.n, result);
}

// A transform as a convolution of a length that has small factors:
// k m = (k^2 + m^2 - (k - m)^2) / 2 (L. Bluestein, 1970).
struct Chirp {
  std::vector<Complex> turns;     // turns[k] = exp(-pi i k^2 / n)
  std::vector<Complex> spectrum;  // of the conjugate turns, both ways round, over the length
  Steps steps;
};

Chirp chirp_of(int64_t n) {
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  Chirp c{{}, std::vector<Complex>(static_cast<size_t>(length), Complex{0, 0}), steps_of(length)};
  int64_t square = 0;  // k^2 mod 2n
  const double scale = 1 / static_cast<double>(length);
  for (int64_t k = 0; k < n; ++k) {
    const Complex w = root(square, 2 * n);
    c.turns.push_back(w);
    const Complex back{w.re * scale, -w.im * scale};
    c.spectrum[static_cast<size_t>(k)] = back;
    c.spectrum[static_cast<size_t>((length - k) % length)] = back;
    square = (square + 2 * k + 1) % (2 * n);
  }
  std::vector<Complex> room(static_cast<size_t>(length));
  transform(c.steps, c.spectrum.data(), room.data());
  return c;
}

// `room` has two lengths.
void transform(const Chirp& c, Complex* x, Complex* room) {
  const auto n = static_cast<int64_t>(c.turns.size()), length = c.steps.n;
  Complex *a = room, *other = room + length;
  std::fill(a, a + length, Complex{0, 0});
  for (int64_t k = 0; k < n; ++k) a[k] = x[k] * c.turns[static_cast<size_t>(k)];
  transform(c.steps, a, other);
  for (int64_t k = 0; k < length; ++k) {
    const Complex y = a[k] * c.spectrum[static_cast<size_t>(k)];
    a[k] = {y.im, y.re};
  }
  transform(c.steps, a, other);
  for (int64_t k = 0; k < n; ++k)
    x[k] = Complex{a[k].im, a[k].re} * c.turns[static_cast<size_t>(k)];
}

struct FourierPlan {
  Layout lines;  // of the operand: its numbers' dimensions, but for the transform's
  DType dtype;
  int64_t n, inner;    // numbers of a line; lines that lie side by side in the result
  int64_t step, part;  // between a line's numbers in the operand, and between their parts
  bool inverse;
  double scale;
  Steps steps;
  std::optional<Chirp> chirp;  // where it is made so
  int64_t room;                // complex numbers for a line at work

  int64_t place(int64_t line) const {
    int64_t at = 0;
    for (size_t d = lines.shape.size(); d-- > 0; line /= lines.shape[d])
      at += line % lines.shape[d] * lines.strides[d];
    return at;
  }
};

void load_line(const FourierPlan& p, const std::byte* first, double* parts) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  for (int64_t c = 0; c < 2; ++c)
    convert_row(p.dtype, first + c * p.part * size, p.step, DType::f64,
                reinterpret_cast<std::byte*>(parts + (p.inverse ? 1 - c : c)), 2, p.n);
}
void store_line(const FourierPlan& p, const double* parts, std::byte* first) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  for (int64_t c = 0; c < 2; ++c)
    convert_row(DType::f64, reinterpret_cast<const std::byte*>(parts + (p.inverse ? 1 - c : c)), 2,
                p.dtype, first + c * size, p.inner * 2, p.n);
}

// The inverse transform is the transform with the parts exchanged, before and after.
void run_fourier(const FourierPlan& p, std::byte* const* args, KernelScope& scope) {
  auto* scratch = reinterpret_cast<Complex*>(scope.scratch);
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  run_in_slots(scope.workers, p.lines.numel(), [&](int64_t line, int64_t slot) {
    Complex *x = scratch + slot * p.room, *other = x + p.n;
    load_line(p, args[0] + p.place(line) * size, &x->re);
    if (p.chirp)
      transform(*p.chirp, x, other);
    else
      transform(p.steps, x, other);
    if (p.scale != 1)
      for (int64_t k = 0; k < p.n; ++k) x[k] = {x[k].re * p.scale, x[k].im * p.scale};
    const int64_t outer = line / p.inner, at = line % p.inner;
    store_line(p, &x->re, args[1] + (outer * p.n * p.inner + at) * 2 * size);
  });
}

bool has_large_factor(int64_t n) {
  const std::vector<int64_t> radices = radices_of(n);
  return !radices.empty() && radices.back() > largest_radix;
}

}  // namespace

Kernel make_kernel(const Fourier& w) {
  if (w.x.numel() == 0) return {};
  const auto dim = static_cast<size_t>(w.dim);
  FourierPlan p{};
  p.dtype = p.lines.dtype = w.x.dtype;
  p.inner = 1;
  for (size_t d = 0; d + 1 < w.x.shape.size(); ++d) {
    if (d > dim) p.inner *= w.x.shape[d];
    if (d == dim) continue;
    p.lines.shape.push_back(w.x.shape[d]);
    p.lines.strides.push_back(w.x.strides[d]);
  }
  p.n = w.x.shape[dim];
  p.step = w.x.strides[dim];
  p.part = w.x.strides.back();
  p.inverse = w.inverse;
  p.scale = w.scale;
  if (has_large_factor(p.n))
    p.chirp = chirp_of(p.n);
  else
    p.steps = steps_of(p.n);
  p.room = p.n + (p.chirp ? 2 * p.chirp->steps.n : p.n);
  const int64_t slots = std::min(p.lines.numel(), most_slots());
  const auto scratch = static_cast<size_t>(slots * p.room) * sizeof(Complex);
  return Kernel::of<run_fourier>(std::move(p), scratch);
}

}  // namespace gradus::kernels
