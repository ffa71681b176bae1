// Kernels that run along one dimension, element after element.
#include <algorithm>
#include <limits>

#include "gradus/error.h"
#include "gradus/isa.h"
#include "gradus/scalar/math.h"
#include "kernels/cursor.h"
#include "kernels/make.h"
#include "kernels/tiles.h"

namespace gradus::kernels {

namespace {

constexpr int64_t tile = 256;               // elements converted at a time
constexpr int64_t task_elements = 1 << 15;  // what one worker takes at a time, about

template <class C>
[[gnu::always_inline]] inline C add(C a, C b) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class C>
[[gnu::always_inline]] inline C multiply(C a, C b) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

// The state before the first element.
template <ScanStep step, class C>
constexpr C first_state() {
  if (step == ScanStep::log_sum_exp) return -std::numeric_limits<C>::infinity();
  return step == ScanStep::prod ? C(1) : C(0);
}
// The state after one more element of each operand; `cut` is 0 or 1.
template <ScanStep step, class C>
[[gnu::always_inline]] inline C next_state(C s, C a, C b, C cut) {
  if constexpr (step == ScanStep::cut_recurrence) return cut != 0 ? b : add(multiply(a, s), b);
  if constexpr (step == ScanStep::sum) return add(s, a);
  if constexpr (step == ScanStep::prod) return multiply(s, a);
  if constexpr (step == ScanStep::recurrence) return add(multiply(a, s), b);
  if constexpr (step == ScanStep::log_sum_exp) {
    using S = scalar::Num<C>;
    bool above = s > a || s != s;
    C high = above ? s : a, low = above ? a : s;
    if (high - high != 0) return high;  // an infinity or NaN decides
    return high + scalar::log1p(scalar::exp(S{low - high})).value;
  }
}

// m rows of n columns: state[t] runs over the rows, which lie `step` elements apart in `a`, `b` and
// `out` (negative in reverse).
using ScanLoop = void (*)(const void* a, const void* b, const void* cut, void* out, int64_t m,
                          int64_t n, int64_t step, void* state);

template <ScanStep kind, class C, bool exclusive>
[[gnu::always_inline]] inline void scan_loop(const void* a, const void* b, const void* cut,
                                             void* out, int64_t m, int64_t n, int64_t step,
                                             void* state) {
  const C* __restrict x = static_cast<const C*>(a);
  const C* __restrict z = static_cast<const C*>(b);
  const C* __restrict k = static_cast<const C*>(cut);
  C* __restrict y = static_cast<C*>(out);
  C* __restrict s = static_cast<C*>(state);
  if (n == 1) {
    C now = s[0];
    for (int64_t i = 0; i < m; ++i) {
      C next = next_state<kind>(now, x[i * step], z[i * step], k[i * step]);
      y[i * step] = exclusive ? now : next;
      now = next;
    }
    s[0] = now;
    return;
  }
  for (int64_t i = 0; i < m; ++i, x += step, z += step, k += step, y += step)
    for (int64_t t = 0; t < n; ++t) {
      C next = next_state<kind>(s[t], x[t], z[t], k[t]);
      y[t] = exclusive ? s[t] : next;
      s[t] = next;
    }
}

template <ScanStep kind, class C>
ScanLoop choose(bool exclusive) {
  return exclusive ? Levels<scan_loop<kind, C, true>>::best()
                   : Levels<scan_loop<kind, C, false>>::best();
}

// How operands lie: what comes before the scanned dimension, and what comes after it.
struct Side {
  DType dtype;
  Axes outer, inner;  // not joined, so that all operands' axes match
  int64_t stride;     // along the scanned dimension
};

struct Plan {
  ScanLoop loop;
  Compute compute;
  double float_identity;
  int64_t integer_identity;
  bool reverse;
  DType out_dtype;
  SmallVector<Side, 2> sides;
  int64_t length = 1, outer = 1, inner = 1;
};

Side side_of(const Layout& in, int dim) {
  Side s{in.dtype, {}, {}, in.rank() ? in.strides[static_cast<size_t>(dim)] : 1};
  for (int d = 0; d < in.rank(); ++d) {
    auto i = static_cast<size_t>(d);
    if (d != dim) (d < dim ? s.outer : s.inner).push_back({in.shape[i], in.strides[i]});
  }
  if (s.outer.empty()) s.outer.push_back({1, 0});
  if (s.inner.empty()) s.inner.push_back({1, 0});
  return s;
}

const std::byte* at(const std::byte* x, DType dtype, int64_t offset) {
  return x + offset * static_cast<int64_t>(size_of(dtype));
}

// One outer index, `width` columns from inner index `first` on.
struct Strip {
  int64_t outer, first, width;
};

void load(const Plan& p, size_t k, const std::byte* x, const Strip& strip, int64_t i, int64_t m,
          std::byte* buffer) {
  const Side& s = p.sides[k];
  DType tile_dtype = p.compute == Compute::i64 ? DType::i64 : DType::f64;
  int64_t base = Cursor(s.outer, strip.outer).offset() + i * s.stride;
  if (strip.width == 1) {
    base += Cursor(s.inner, strip.first).offset();
    return load_tile(s.dtype, tile_dtype, at(x, s.dtype, base), s.stride, m, buffer);
  }
  Cursor c(s.inner, strip.first);
  for (int64_t done = 0; done < strip.width;) {
    int64_t n = std::min(strip.width - done, c.run());
    load_tile(s.dtype, tile_dtype, at(x, s.dtype, base + c.offset()), s.inner.back().stride, n,
              buffer + done * 8);
    c.advance(n);
    done += n;
  }
}

// Narrow strips go by tiles along the scanned dimension, wide ones row by row.
void run_strip(const Plan& p, std::byte* const* args, const Strip& strip) {
  // Of f64 or i64.
  alignas(64) std::byte state[tile * 8], in[3][tile * 8], out[tile * 8];
  if (p.compute == Compute::i64)
    std::fill_n(reinterpret_cast<int64_t*>(state), strip.width, p.integer_identity);
  else
    std::fill_n(reinterpret_cast<double*>(state), strip.width, p.float_identity);
  const bool one = strip.width == 1;
  const int64_t rows = one ? tile : 1;
  const DType tile_dtype = p.compute == Compute::i64 ? DType::i64 : DType::f64;
  for (int64_t done = 0; done < p.length;) {
    int64_t m = std::min(rows, p.length - done);
    int64_t i = p.reverse ? p.length - done - m : done;
    for (size_t k = 0; k < p.sides.size(); ++k) load(p, k, args[k], strip, i, m, in[k]);
    const std::byte* b = p.sides.size() > 1 ? in[1] : in[0];
    const std::byte* cut = p.sides.size() > 2 ? in[2] : in[0];
    int64_t start = p.reverse && one ? (m - 1) * 8 : 0;
    p.loop(in[0] + start, b + start, cut + start, out + start, m, strip.width, p.reverse ? -1 : 1,
           state);
    std::byte* y = args[p.sides.size()] + ((strip.outer * p.length + i) * p.inner + strip.first) *
                                              static_cast<int64_t>(size_of(p.out_dtype));
    if (p.inner == 1 || !one) {
      store_tile(tile_dtype, p.out_dtype, out, one ? m : strip.width, y);
    } else {
      for (int64_t j = 0; j < m; ++j)
        store_tile(tile_dtype, p.out_dtype, out + j * 8, 1,
                   y + j * p.inner * static_cast<int64_t>(size_of(p.out_dtype)));
    }
    done += m;
  }
}

void run(const Plan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t strips = (p.inner + tile - 1) / tile, units = p.outer * strips;
  const int64_t per_unit = p.length * std::min(p.inner, tile);
  const int64_t batch = std::max<int64_t>(1, task_elements / std::max<int64_t>(per_unit, 1));
  scope.workers.parallel_parts(units, batch, [&](int64_t first_unit, int64_t last) {
    for (int64_t u = first_unit; u < last; ++u) {
      int64_t first = u % strips * tile;
      run_strip(p, args, {u / strips, first, std::min(tile, p.inner - first)});
    }
  });
}

template <ScanStep kind>
void choose_loop(Plan& p, bool exclusive) {
  p.float_identity = first_state<kind, double>();
  if constexpr (kind != ScanStep::log_sum_exp) {
    p.integer_identity = first_state<kind, int64_t>();
    if (p.compute == Compute::i64) {
      p.loop = choose<kind, int64_t>(exclusive);
      return;
    }
  }
  p.loop = choose<kind, double>(exclusive);
}

struct MaxPlan {
  Side side;
  Compute compute;
  int64_t length, outer, inner;
};

template <class C>
void max_line(const MaxPlan& p, std::byte* const* args, int64_t line) {
  const int64_t o = line / p.inner, j = line % p.inner;
  const std::byte* x = at(args[0], p.side.dtype,
                          Cursor(p.side.outer, o).offset() + Cursor(p.side.inner, j).offset());
  auto* indices = reinterpret_cast<int64_t*>(args[2]);
  C in[tile];
  C best = 0;
  int64_t where = 0;
  for (int64_t i = 0; i < p.length; ++i) {
    if (i % tile == 0)
      load_tile(p.side.dtype, dtype_of(p.compute), at(x, p.side.dtype, i * p.side.stride),
                p.side.stride, std::min(tile, p.length - i), in);
    C v = in[i % tile];
    if (i == 0 || v != v || (best == best && v >= best)) {
      best = v;
      where = i;
    }
    int64_t y = (o * p.length + i) * p.inner + j;
    indices[y] = where;
    store_tile(dtype_of(p.compute), p.side.dtype, &best, 1,
               args[1] + y * static_cast<int64_t>(size_of(p.side.dtype)));
  }
}

void run_max(const MaxPlan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t lines = p.outer * p.inner;
  const int64_t batch = std::max<int64_t>(1, task_elements / p.length);
  scope.workers.parallel_parts(lines, batch, [&](int64_t first, int64_t last) {
    visit_compute(p.compute, [&](auto tag) {
      for (int64_t l = first; l < last; ++l) max_line<typename decltype(tag)::type>(p, args, l);
    });
  });
}

template <class P>
void set_extents(P& p, const Layout& y, int dim) {
  p.length = y.rank() ? y.shape[static_cast<size_t>(dim)] : 1;
  p.outer = p.inner = 1;
  for (int d = 0; d < y.rank(); ++d)
    if (d != dim) (d < dim ? p.outer : p.inner) *= y.shape[static_cast<size_t>(d)];
}

}  // namespace

Kernel make_kernel(const Scan& w) {
  if (w.in[0].numel() == 0) return {};
  Plan p;
  p.compute = is_floating(w.out) ? compute_of(w.out) : Compute::i64;  // which wraps as u64 does
  p.reverse = w.reverse;
  p.out_dtype = w.out;
  set_extents(p, w.in[0], w.dim);
  for (const Layout& in : w.in) p.sides.push_back(side_of(in, w.dim));
  switch (w.next) {
    case ScanStep::sum:
      choose_loop<ScanStep::sum>(p, w.exclusive);
      break;
    case ScanStep::prod:
      choose_loop<ScanStep::prod>(p, w.exclusive);
      break;
    case ScanStep::recurrence:
      choose_loop<ScanStep::recurrence>(p, w.exclusive);
      break;
    case ScanStep::cut_recurrence:
      choose_loop<ScanStep::cut_recurrence>(p, w.exclusive);
      break;
    case ScanStep::log_sum_exp:
      choose_loop<ScanStep::log_sum_exp>(p, w.exclusive);
      break;
  }
  return Kernel::of<run>(std::move(p));
}

Kernel make_kernel(const RunningMax& w) {
  if (w.x.numel() == 0) return {};
  MaxPlan p{side_of(w.x, w.dim), compute_of(w.x.dtype), 1, 1, 1};
  set_extents(p, w.x, w.dim);
  return Kernel::of<run_max>(std::move(p));
}

}  // namespace gradus::kernels
