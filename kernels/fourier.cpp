// Discrete Fourier transforms in f64, several lines of complex numbers at a time.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "base/slots.h"
#include "gradus/isa.h"
#include "kernels/copies.h"
#include "kernels/make.h"

namespace gradus::kernels {

namespace {

// Radices beyond this one cost more than a convolution.
constexpr int64_t largest_radix = 61;
constexpr int64_t most_lanes = 8;  // lines at a time

struct Complex {
  double re, im;
};
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

// Real and imaginary parts of numbers, each kind together: number k of line l at k * lanes + l.
struct Parts {
  double *re, *im;
  Parts from(int64_t at) const { return {re + at, im + at}; }
};

// to = x * w, for n numbers.
[[gnu::always_inline]] inline void turn(Parts x, Complex w, Parts to, int64_t n) {
  for (int64_t q = 0; q < n; ++q) {
    const double re = x.re[q], im = x.im[q];
    to.re[q] = re * w.re - im * w.im;
    to.im[q] = re * w.im + im * w.re;
  }
}

// What each step knows: `stride` transforms lie side by side, of `length` numbers left each, and of
// each number one for each lane.
struct Step {
  int64_t length, stride, lanes;
  const Complex* roots;
  int64_t width() const { return stride * lanes; }
};

[[gnu::always_inline]] inline void step_of_two(const Step& s, Parts x, Parts y) {
  const int64_t m = s.length / 2, n = s.width();
  for (int64_t p = 0; p < m; ++p) {
    const Complex w = s.roots[s.stride * p];
    const Parts a = x.from(n * p), b = x.from(n * (p + m));
    double* __restrict re = y.re + n * 2 * p, * __restrict im = y.im + n * 2 * p;
    for (int64_t q = 0; q < n; ++q) {
      re[q] = a.re[q] + b.re[q];
      im[q] = a.im[q] + b.im[q];
      const double c = a.re[q] - b.re[q], d = a.im[q] - b.im[q];
      re[q + n] = c * w.re - d * w.im;
      im[q + n] = c * w.im + d * w.re;
    }
  }
}

[[gnu::always_inline]] inline void step_of_four(const Step& s, Parts x, Parts y) {
  const int64_t m = s.length / 4, n = s.width();
  for (int64_t p = 0; p < m; ++p) {
    const Complex *r = s.roots, w1 = r[s.stride * p], w2 = r[2 * s.stride * p],
                  w3 = r[3 * s.stride * p];
    const Parts a = x.from(n * p), b = a.from(n * m), c = b.from(n * m), d = c.from(n * m);
    double* __restrict re = y.re + n * 4 * p, * __restrict im = y.im + n * 4 * p;
    for (int64_t q = 0; q < n; ++q) {
      const double even_re = a.re[q] + c.re[q], even_im = a.im[q] + c.im[q];
      const double odd_re = b.re[q] + d.re[q], odd_im = b.im[q] + d.im[q];
      const double across_re = a.re[q] - c.re[q], across_im = a.im[q] - c.im[q];
      // Times -i.
      const double turned_re = b.im[q] - d.im[q], turned_im = -(b.re[q] - d.re[q]);
      re[q] = even_re + odd_re;
      im[q] = even_im + odd_im;
      const double u1 = across_re + turned_re, v1 = across_im + turned_im;
      re[q + n] = u1 * w1.re - v1 * w1.im;
      im[q + n] = u1 * w1.im + v1 * w1.re;
      const double u2 = even_re - odd_re, v2 = even_im - odd_im;
      re[q + 2 * n] = u2 * w2.re - v2 * w2.im;
      im[q + 2 * n] = u2 * w2.im + v2 * w2.re;
      const double u3 = across_re - turned_re, v3 = across_im - turned_im;
      re[q + 3 * n] = u3 * w3.re - v3 * w3.im;
      im[q + 3 * n] = u3 * w3.im + v3 * w3.re;
    }
  }
}

[[gnu::always_inline]] inline void step_of_any(const Step& s, int64_t r, int64_t of, Parts x,
                                               Parts y) {
  const int64_t m = s.length / r, n = s.width();
  for (int64_t p = 0; p < m; ++p)
    for (int64_t k = 0; k < r; ++k) {
      const Parts to = y.from(n * (r * p + k));
      Parts from = x.from(n * p);
      std::copy_n(from.re, n, to.re);
      std::copy_n(from.im, n, to.im);
      for (int64_t j = 1, at = k; j < r; ++j, at = at + k < r ? at + k : at + k - r) {
        from = from.from(n * m);
        const Complex f = s.roots[of / r * at];
        double* __restrict re = to.re, * __restrict im = to.im;
        for (int64_t q = 0; q < n; ++q) {
          re[q] += from.re[q] * f.re - from.im[q] * f.im;
          im[q] += from.re[q] * f.im + from.im[q] * f.re;
        }
      }
      turn(to, s.roots[s.stride * p * k], to, n);
    }
}

// x [n] -> its transform, in `x`, for each lane; `other` has room for as many.
[[gnu::always_inline]] inline void transform_body(const Steps& steps, int64_t lanes, Parts x,
                                                  Parts other) {
  const Parts result = x;
  Step s{steps.n, 1, lanes, steps.roots.data()};
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
  if (x.re == result.re) return;
  std::copy_n(x.re, steps.n * lanes, result.re);
  std::copy_n(x.im, steps.n * lanes, result.im);
}
void transform(const Steps& steps, int64_t lanes, Parts x, Parts other) {
  Levels<transform_body>::run(steps, lanes, x, other);
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
  std::vector<double> room(static_cast<size_t>(4 * length));
  const Parts x{room.data(), room.data() + length};
  for (int64_t k = 0; k < length; ++k) {
    x.re[k] = c.spectrum[static_cast<size_t>(k)].re;
    x.im[k] = c.spectrum[static_cast<size_t>(k)].im;
  }
  transform(c.steps, 1, x, x.from(2 * length));
  for (int64_t k = 0; k < length; ++k) c.spectrum[static_cast<size_t>(k)] = {x.re[k], x.im[k]};
  return c;
}

// `a` and `other` have a length each.
void transform(const Chirp& c, int64_t lanes, Parts x, Parts a, Parts other) {
  const auto n = static_cast<int64_t>(c.turns.size()), length = c.steps.n;
  for (double* part : {a.re, a.im}) std::fill(part + n * lanes, part + length * lanes, 0.0);
  for (int64_t k = 0; k < n; ++k)
    turn(x.from(k * lanes), c.turns[static_cast<size_t>(k)], a.from(k * lanes), lanes);
  transform(c.steps, lanes, a, other);
  // The inverse transform is the transform with the parts exchanged, before and after.
  for (int64_t k = 0; k < length; ++k)
    turn(a.from(k * lanes), c.spectrum[static_cast<size_t>(k)], a.from(k * lanes), lanes);
  const Parts b{a.im, a.re};
  transform(c.steps, lanes, b, other);
  for (int64_t k = 0; k < n; ++k)
    turn(a.from(k * lanes), c.turns[static_cast<size_t>(k)], x.from(k * lanes), lanes);
}

// A transform of so many numbers, for several lines at a time.
struct Transform {
  int64_t n = 1;
  Steps steps;
  std::optional<Chirp> chirp;  // where it is made so
  int64_t length() const { return chirp ? chirp->steps.n : n; }
  // What a lane needs beside the numbers.
  int64_t room() const { return 2 * (chirp ? 2 : 1) * length(); }
};

void transform(const Transform& t, int64_t lanes, Parts x, double* room) {
  const int64_t length = t.length() * lanes;
  const Parts a{room, room + length};
  if (t.chirp)
    transform(*t.chirp, lanes, x, a, a.from(2 * length));
  else
    transform(t.steps, lanes, x, a);
}

struct FourierPlan {
  Layout lines;  // of the operand: its numbers' dimensions, but for the transform's
  DType dtype;
  int64_t n, inner;    // numbers of a line; lines that lie side by side in the result
  int64_t step, part;  // between a line's numbers in the operand, and between their parts
  bool inverse;
  double scale;
  Transform whole;
  std::vector<Complex> turns;  // of a real transform by half as many numbers; else empty
  int64_t lanes;               // lines at a time
  int64_t half() const { return n / 2 + 1; }
  int64_t beside() const { return turns.empty() ? 0 : half(); }
  int64_t room() const { return lanes * (2 * whole.n + 2 * beside() + whole.room()); }

  int64_t place(int64_t line) const {
    int64_t at = 0;
    for (size_t d = lines.shape.size(); d-- > 0; line /= lines.shape[d])
      at += line % lines.shape[d] * lines.strides[d];
    return at;
  }
};

// The inverse transform is the transform with the parts exchanged, before and after.
double* part_of(const FourierPlan& p, Parts x, int64_t part) {
  return (part == 1) != p.inverse ? x.im : x.re;
}

void load_line(const FourierPlan& p, const std::byte* first, Parts x) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  for (int64_t c = 0; c < 2; ++c)
    convert_row(p.dtype, first + c * p.part * size, p.step, DType::f64,
                reinterpret_cast<std::byte*>(part_of(p, x, c)), p.lanes, p.n);
}
void store_line(const FourierPlan& p, Parts x, std::byte* first) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  for (int64_t c = 0; c < 2; ++c)
    convert_row(DType::f64, reinterpret_cast<const std::byte*>(part_of(p, x, c)), p.lanes, p.dtype,
                first + c * size, p.inner * 2, p.n);
}

void run_fourier(const FourierPlan& p, std::byte* const* args, KernelScope& scope) {
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  const int64_t lines = p.lines.numel(), numbers = p.n * p.lanes;
  run_in_slots(scope.workers, (lines + p.lanes - 1) / p.lanes, [&](int64_t group, int64_t slot) {
    double* own = scratch + slot * p.room();
    const Parts x{own, own + numbers};
    const int64_t first = group * p.lanes, count = std::min(p.lanes, lines - first);
    if (count < p.lanes) std::fill_n(own, 2 * numbers, 0.0);
    for (int64_t l = 0; l < count; ++l)
      load_line(p, args[0] + p.place(first + l) * size, x.from(l));
    transform(p.whole, p.lanes, x, own + 2 * numbers);
    if (p.scale != 1)
      for (int64_t i = 0; i < 2 * numbers; ++i) own[i] *= p.scale;
    for (int64_t l = 0; l < count; ++l) {
      const int64_t outer = (first + l) / p.inner, at = (first + l) % p.inner;
      store_line(p, x.from(l), args[1] + (outer * p.n * p.inner + at) * 2 * size);
    }
  });
}

// Real numbers of an even n are the parts of half as many complex ones, z[m] = x[2 m] + i x[2 m +
// 1], whose transform is e + i o, where e and o are those of the numbers at even and at odd places:
// so that y[k] = e[k] + w^k o[k] with w = exp(-2 pi i / n), and e and o are told apart by their
// symmetry (J. Cooley, P. Lewis and P. Welch, 1970). For an odd n the imaginary parts are 0.

// z's transform, of n / 2 numbers -> y, of n / 2 + 1.
void from_halves(const FourierPlan& p, Parts z, Parts y) {
  const int64_t h = p.whole.n, lanes = p.lanes;
  for (int64_t k = 0; k <= h; ++k) {
    const Parts a = z.from((k == h ? 0 : k) * lanes), b = z.from((k == 0 ? 0 : h - k) * lanes);
    const Parts to = y.from(k * lanes);
    const Complex w = p.turns[static_cast<size_t>(k)];
    for (int64_t l = 0; l < lanes; ++l) {
      const double even_re = (a.re[l] + b.re[l]) / 2, even_im = (a.im[l] - b.im[l]) / 2;
      const double odd_re = (a.im[l] + b.im[l]) / 2, odd_im = (b.re[l] - a.re[l]) / 2;
      to.re[l] = even_re + (odd_re * w.re - odd_im * w.im);
      to.im[l] = even_im + (odd_re * w.im + odd_im * w.re);
    }
  }
}

// The other way: of y, n / 2 + 1 numbers -> n / 2 whose transform back has the real signal's
// numbers at even places in its real parts, the others in its imaginary ones. The signal is the
// real part of a sum over y, so that y[k] counts half, and half for its mirror image.
void to_halves(const FourierPlan& p, Parts y, Parts z) {
  const int64_t h = p.whole.n, lanes = p.lanes;
  for (int64_t k = 0; k < h; ++k) {
    const Parts a = y.from(k * lanes), b = y.from((h - k) * lanes), to = z.from(k * lanes);
    const Complex w = p.turns[static_cast<size_t>(k)];  // conjugate: it turns back
    const double share = k == 0 ? 1 : 0.5;
    for (int64_t l = 0; l < lanes; ++l) {
      const double a_im = k == 0 ? 0 : a.im[l], b_im = k == 0 ? 0 : b.im[l];
      const double even_re = (a.re[l] + b.re[l]) * share, even_im = (a_im - b_im) * share;
      const double re = (a.re[l] - b.re[l]) * share, im = (a_im + b_im) * share;
      const double odd_re = re * w.re + im * w.im, odd_im = im * w.re - re * w.im;
      to.re[l] = even_re - odd_im;
      to.im[l] = even_im + odd_re;
    }
  }
}

// Each of the lines, with room for its lane; whatever has no line is 0.
template <class Load, class Store>
void run_real(const FourierPlan& p, KernelScope& scope, Load load, Store store) {
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  const int64_t lines = p.lines.numel();
  run_in_slots(scope.workers, (lines + p.lanes - 1) / p.lanes, [&](int64_t group, int64_t slot) {
    double* own = scratch + slot * p.room();
    const int64_t first = group * p.lanes, count = std::min(p.lanes, lines - first);
    const Parts x{own, own + p.whole.n * p.lanes};
    double* after = own + 2 * p.whole.n * p.lanes;
    const Parts half{after, after + p.beside() * p.lanes};
    double* room = after + 2 * p.beside() * p.lanes;
    if (count < p.lanes) std::fill_n(own, room - own, 0.0);
    load(first, count, x, half);
    transform(p.whole, p.lanes, x, room);
    store(first, count, x, half);
  });
}

void run_of_real(const FourierPlan& p, std::byte* const* args, KernelScope& scope) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  auto bytes = [](double* x) { return reinterpret_cast<std::byte*>(x); };
  auto load = [&](int64_t first, int64_t count, Parts x, Parts) {
    if (p.turns.empty()) std::fill_n(x.im, p.n * p.lanes, 0.0);
    for (int64_t l = 0; l < count; ++l) {
      const std::byte* from = args[0] + p.place(first + l) * size;
      const int64_t step = p.turns.empty() ? p.step : 2 * p.step;
      convert_row(p.dtype, from, step, DType::f64, bytes(x.re + l), p.lanes, p.whole.n);
      if (!p.turns.empty())
        convert_row(p.dtype, from + p.step * size, step, DType::f64, bytes(x.im + l), p.lanes,
                    p.whole.n);
    }
  };
  auto store = [&](int64_t first, int64_t count, Parts x, Parts half) {
    if (!p.turns.empty()) from_halves(p, x, half);
    const Parts y = p.turns.empty() ? x : half;
    for (double* part : {y.re, y.im})
      for (int64_t i = 0; p.scale != 1 && i < p.half() * p.lanes; ++i) part[i] *= p.scale;
    for (int64_t l = 0; l < count; ++l) {
      const int64_t outer = (first + l) / p.inner, at = (first + l) % p.inner;
      std::byte* to = args[1] + (outer * p.half() * p.inner + at) * 2 * size;
      convert_row(DType::f64, bytes(y.re + l), p.lanes, p.dtype, to, p.inner * 2, p.half());
      convert_row(DType::f64, bytes(y.im + l), p.lanes, p.dtype, to + size, p.inner * 2, p.half());
    }
  };
  run_real(p, scope, load, store);
}

// The transform back has the parts exchanged, before and after.
void run_to_real(const FourierPlan& p, std::byte* const* args, KernelScope& scope) {
  const auto size = static_cast<int64_t>(size_of(p.dtype));
  auto bytes = [](double* x) { return reinterpret_cast<std::byte*>(x); };
  auto load = [&](int64_t first, int64_t count, Parts x, Parts half) {
    const Parts to = p.turns.empty() ? x : half;
    if (p.turns.empty())  // zeros follow
      for (double* part : {x.re, x.im})
        std::fill(part + p.half() * p.lanes, part + p.n * p.lanes, 0.0);
    for (int64_t l = 0; l < count; ++l) {
      const std::byte* from = args[0] + p.place(first + l) * size;
      convert_row(p.dtype, from, p.step, DType::f64, bytes(to.re + l), p.lanes, p.half());
      convert_row(p.dtype, from + p.part * size, p.step, DType::f64, bytes(to.im + l), p.lanes,
                  p.half());
    }
    if (p.turns.empty())
      std::fill_n(x.im, p.lanes, 0.0);  // of the first number
    else
      to_halves(p, half, x);
    std::swap_ranges(x.re, x.re + p.whole.n * p.lanes, x.im);
  };
  auto store = [&](int64_t first, int64_t count, Parts x, Parts) {
    for (double* part : {x.re, x.im})
      for (int64_t i = 0; p.scale != 1 && i < p.whole.n * p.lanes; ++i) part[i] *= p.scale;
    for (int64_t l = 0; l < count; ++l) {
      const int64_t outer = (first + l) / p.inner, at = (first + l) % p.inner;
      std::byte* to = args[1] + (outer * p.n * p.inner + at) * size;
      const int64_t step = p.turns.empty() ? p.inner : 2 * p.inner;
      convert_row(DType::f64, bytes(x.im + l), p.lanes, p.dtype, to, step, p.whole.n);
      if (!p.turns.empty())
        convert_row(DType::f64, bytes(x.re + l), p.lanes, p.dtype, to + p.inner * size, step,
                    p.whole.n);
    }
  };
  run_real(p, scope, load, store);
}

bool has_large_factor(int64_t n) {
  const std::vector<int64_t> radices = radices_of(n);
  return !radices.empty() && radices.back() > largest_radix;
}

Transform transform_of(int64_t n) {
  if (has_large_factor(n)) return {n, {}, chirp_of(n)};
  return {n, steps_of(n), {}};
}

}  // namespace

Kernel make_kernel(const Fourier& w) {
  if (w.x.numel() == 0) return {};
  const auto dim = static_cast<size_t>(w.dim);
  const size_t outer = w.x.shape.size() - (w.of_real ? 0 : 1);
  FourierPlan p{};
  p.dtype = p.lines.dtype = w.x.dtype;
  p.inner = 1;
  for (size_t d = 0; d < outer; ++d) {
    if (d > dim) p.inner *= w.x.shape[d];
    if (d == dim) continue;
    p.lines.shape.push_back(w.x.shape[d]);
    p.lines.strides.push_back(w.x.strides[d]);
  }
  p.n = w.real_size > 0 ? w.real_size : w.x.shape[dim];
  p.step = w.x.strides[dim];
  p.part = w.x.strides.back();
  p.inverse = w.inverse;
  p.scale = w.scale;
  const bool real = w.of_real || w.real_size > 0, halved = real && p.n % 2 == 0;
  p.whole = transform_of(halved ? p.n / 2 : p.n);
  for (int64_t k = 0; halved && k <= p.n / 2; ++k) p.turns.push_back(root(k, p.n));
  p.lanes = std::min(p.lines.numel(), most_lanes);
  const int64_t slots = std::min(p.lines.numel(), most_slots());
  const auto scratch = static_cast<size_t>(slots * p.room()) * sizeof(double);
  if (w.of_real) return Kernel::of<run_of_real>(std::move(p), scratch);
  if (w.real_size > 0) return Kernel::of<run_to_real>(std::move(p), scratch);
  return Kernel::of<run_fourier>(std::move(p), scratch);
}

}  // namespace gradus::kernels
