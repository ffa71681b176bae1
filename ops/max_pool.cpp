// The greatest element of each window, and where it is.
#include <algorithm>
#include <bit>
#include <vector>

#include "base/error.h"
#include "ops/device_form.h"
#include "ops/image_axes.h"
#include "ops/isa.h"
#include "ops/operands.h"
#include "ops/pool_windows.h"
#include "ops/pooling.h"
#include "ops/rules.h"
#include "tensor/convert.h"

namespace gradus::ops {

namespace {

constexpr int64_t chunk_windows = 1 << 12;  // what one worker takes at a time

// Elements of a window along one axis: first, first + dilation, .. below last.
struct Range {
  int64_t first, last;
};

struct PoolPlan {
  DType dtype = DType::f32;
  ConvAxes axes;
  std::array<std::vector<Range>, conv_axes> ranges;  // one for each window of an axis
  ConvTensor x;
  int64_t channels = 0, planes = 0, windows = 1;  // planes: images times channels
  // Windows of the last axis that the padding cuts nothing off; none if windows have too many
  // elements for a table.
  Range whole{0, 0};
  // Of a window's elements, those in the padding counted: how far each is from the first, in the
  // image's row-major order and in memory.
  struct Element {
    int64_t at, memory;
  };
  std::vector<Element> elements;
};
constexpr int64_t most_elements = 256;

Range range_of(const ConvAxis& a, int64_t window) {
  const int64_t start = window * a.stride - a.padding;
  int64_t first = start;
  if (first < 0) first += (-first + a.dilation - 1) / a.dilation * a.dilation;
  return {first, std::min(start + (a.kernel - 1) * a.dilation + 1, a.image)};
}

template <class T, class C>
[[gnu::always_inline]] inline void pool_window(const PoolPlan& p, const T* plane, Range r0,
                                               Range r1, Range r2, T& value, int64_t& index) {
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = p.x.strides;
  int64_t at = (r0.first * a1.image + r1.first) * a2.image + r2.first;
  T found = plane[r0.first * s0 + r1.first * s1 + r2.first * s2];
  C best = convert<C>(found);
  for (int64_t i = r0.first; i < r0.last; i += a0.dilation)
    for (int64_t j = r1.first; j < r1.last; j += a1.dilation) {
      const T* row = plane + i * s0 + j * s1;
      for (int64_t k = r2.first; k < r2.last; k += a2.dilation) {
        const C c = convert<C>(row[k * s2]);
        if (!(c > best || c != c)) continue;
        best = c;
        found = row[k * s2];
        at = (i * a1.image + j) * a2.image + k;
      }
    }
  value = found;
  index = at;
}

constexpr int64_t tile = 64;  // windows at a time

// Whole windows of the last axis that follow one another.
struct Row {
  int64_t window0, window1;  // of the other axes
  int64_t first, count;
};

// Without a branch, also where the compiler would take one.
template <class T>
[[gnu::always_inline]] inline T choose(bool which, T a, T b) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t,
                         std::conditional_t<sizeof(T) == 4, uint32_t,
                                            std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  const auto mask = static_cast<Bits>(-static_cast<Bits>(which));
  return std::bit_cast<T>(static_cast<Bits>((std::bit_cast<Bits>(a) & mask) |
                                            (std::bit_cast<Bits>(b) & static_cast<Bits>(~mask))));
}

// Elements of the windows in turn, each compared with the best of its window so far: no branch
// depends on a value. `known_step` is how far windows lie apart in memory, or 0: who knows.
template <class T, class C, int64_t known_step>
[[gnu::always_inline]] inline void pool_tile(const PoolPlan& p, const T* plane, const Row& row,
                                             T* values, int64_t* indices) {
  using Ordinal = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = p.x.strides;
  const Range r0 = p.ranges[0][row.window0], r1 = p.ranges[1][row.window1];
  const int64_t step = known_step ? known_step : a2.stride * s2;
  // The first window's first element, or where it would be if the padding were there.
  const int64_t i0 = row.window0 * a0.stride - a0.padding;
  const int64_t j0 = row.window1 * a1.stride - a1.padding;
  const int64_t k0 = row.first * a2.stride - a2.padding;
  auto ordinal = [&](int64_t i, int64_t j) {
    return static_cast<Ordinal>(((i - i0) / a0.dilation * a1.kernel + (j - j0) / a1.dilation) *
                                a2.kernel);
  };
  C best[tile];
  Ordinal of[tile];
  const T* corner = plane + r0.first * s0 + r1.first * s1 + k0 * s2;
  for (int64_t k = 0; k < row.count; ++k) {
    best[k] = convert<C>(corner[k * step]);
    of[k] = ordinal(r0.first, r1.first);
  }
  for (int64_t i = r0.first; i < r0.last; i += a0.dilation)
    for (int64_t j = r1.first; j < r1.last; j += a1.dilation) {
      const Ordinal first = ordinal(i, j);
      for (int64_t t = 0; t < a2.kernel; ++t) {
        const T* line = plane + i * s0 + j * s1 + (k0 + t * a2.dilation) * s2;
        const auto here = static_cast<Ordinal>(first + t);
        for (int64_t k = 0; k < row.count; ++k) {
          const C c = convert<C>(line[k * step]);
          const bool better = (c > best[k]) | (c != c);
          best[k] = choose(better, c, best[k]);
          of[k] = choose(better, here, of[k]);
        }
      }
    }
  const T* start = plane + i0 * s0 + j0 * s1 + k0 * s2;
  const int64_t at = (i0 * a1.image + j0) * a2.image + k0;
  for (int64_t k = 0; k < row.count; ++k) {
    const PoolPlan::Element& e = p.elements[static_cast<size_t>(of[k])];
    values[k] = start[e.memory + k * step];
    indices[k] = at + e.at + k * a2.stride;
  }
}

template <class T, class C>
[[gnu::always_inline]] inline void pool_row(const PoolPlan& p, const T* plane, Row row, T* values,
                                            int64_t* indices) {
  const int64_t step = p.axes[2].stride * p.x.strides[2], last = row.first + row.count;
  for (; row.first < last; row.first += tile) {
    row.count = std::min(tile, last - row.first);
    if (step == 1)
      pool_tile<T, C, 1>(p, plane, row, values, indices);
    else if (step == 2)
      pool_tile<T, C, 2>(p, plane, row, values, indices);
    else
      pool_tile<T, C, 0>(p, plane, row, values, indices);
    values += row.count;
    indices += row.count;
  }
}

template <class T, class C>
void pool_row_base(const PoolPlan& p, const T* plane, const Row& row, T* values, int64_t* indices) {
  pool_row<T, C>(p, plane, row, values, indices);
}
#if GRADUS_HAS_V3
template <class T, class C>
[[gnu::target("arch=x86-64-v3")]] void pool_row_v3(const PoolPlan& p, const T* plane,
                                                   const Row& row, T* values, int64_t* indices) {
  pool_row<T, C>(p, plane, row, values, indices);
}
#endif

template <class T, class C>
auto best_row() {
#if GRADUS_HAS_V3
  if (cpu_has_v3()) return pool_row_v3<T, C>;
#endif
  return pool_row_base<T, C>;
}

// Windows [first, last), counted over all planes.
template <class T, class C>
void pool_windows(const PoolPlan& p, const T* x, int64_t first, int64_t last, T* values,
                  int64_t* indices) {
  const int64_t n2 = p.axes[2].windows, n1 = p.axes[1].windows;
  const auto whole_row = best_row<T, C>();
  for (int64_t i = first; i < last;) {
    const int64_t plane = i / p.windows, within = i % p.windows, start = within % n2;
    const T* source =
        x + plane / p.channels * p.x.batch_stride + plane % p.channels * p.x.channel_stride;
    const int64_t w1 = within / n2 % n1, w0 = within / n2 / n1;
    const int64_t end = std::min(n2, start + last - i);
    const int64_t whole = std::clamp(p.whole.first, start, end);
    const int64_t cut = std::clamp(p.whole.last, whole, end);
    auto one_by_one = [&](int64_t from, int64_t to) {
      for (int64_t k = from; k < to; ++k)
        pool_window<T, C>(p, source, p.ranges[0][w0], p.ranges[1][w1], p.ranges[2][k],
                          values[i + k - start], indices[i + k - start]);
    };
    one_by_one(start, whole);
    if (whole < cut)
      whole_row(p, source, {w0, w1, whole, cut - whole}, values + i + whole - start,
                indices + i + whole - start);
    one_by_one(cut, end);
    i += end - start;
  }
}

void make_table(PoolPlan& p) {
  const auto& [a0, a1, a2] = p.axes;
  if (a0.kernel > most_elements / a1.kernel || a0.kernel * a1.kernel > most_elements / a2.kernel)
    return;
  const auto [s0, s1, s2] = p.x.strides;
  for (int64_t i = 0; i < a0.kernel; ++i)
    for (int64_t j = 0; j < a1.kernel; ++j)
      for (int64_t k = 0; k < a2.kernel; ++k) {
        const int64_t di = i * a0.dilation, dj = j * a1.dilation, dk = k * a2.dilation;
        p.elements.push_back({(di * a1.image + dj) * a2.image + dk, di * s0 + dj * s1 + dk * s2});
      }
  auto is_whole = [&axis = a2](int64_t i) {
    const int64_t begin = i * axis.stride - axis.padding;
    return begin >= 0 && begin + (axis.kernel - 1) * axis.dilation < axis.image;
  };
  while (p.whole.first < a2.windows && !is_whole(p.whole.first)) ++p.whole.first;
  p.whole.last = p.whole.first;
  while (p.whole.last < a2.windows && is_whole(p.whole.last)) ++p.whole.last;
}

template <class T, class C>
void run_pool(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const PoolPlan& p = *static_cast<const PoolPlan*>(parameters);
  const T* x = reinterpret_cast<const T*>(args[0]);
  T* values = reinterpret_cast<T*>(args[1]);
  int64_t* indices = reinterpret_cast<int64_t*>(args[2]);
  const int64_t total = p.planes * p.windows;
  scope.workers.parallel_for((total + chunk_windows - 1) / chunk_windows, [&](int64_t chunk) {
    pool_windows<T, C>(p, x, chunk * chunk_windows, std::min(total, (chunk + 1) * chunk_windows),
                       values, indices);
  });
}

// What a dtype's elements are compared in.
template <class T>
using Compared = std::conditional_t<std::is_integral_v<T> || sizeof(T) != 2, T, float>;

}  // namespace

std::optional<DeviceForm> form_of_max_pool(ir::KernelFunction run, const void* parameters) {
  bool same = false;
  for (size_t d = 0; d < dtype_count; ++d)
    visit_dtype(static_cast<DType>(d), [&](auto tag) {
      using T = typename decltype(tag)::type;
      same |= run == run_pool<T, Compared<T>>;
    });
  if (!same) return std::nullopt;
  const auto& p = *static_cast<const PoolPlan*>(parameters);
  return DeviceForm{DeviceMaxPool{p.dtype, p.axes, p.x, p.channels, p.planes, p.windows}};
}

void MaxPool::infer(InferCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const Type& x = call.tensor(0);
  const int spatial = x.rank() - 2;
  if (spatial < 1 || spatial > conv_axes || x.dtype == DType::boolean)
    call.fail("'x' is {}; it must hold numbers and have 3, 4 or 5 dimensions, [N, C, ..]",
              to_string(x));
  check_windows(call, a.kernel, a.stride, a.padding, spatial);
  check_list(call, "dilation", a.dilation, spatial, 1);
  Dims dims{x.dims[0], x.dims[1]};
  for (int d = 0; d < spatial; ++d) dims.push_back(pooled_axis(call, a, d, x.dims[d + 2]).windows);
  call.out.emplace_back(x.dtype, dims, x.device);
  call.out.emplace_back(DType::i64, std::move(dims), x.device);
}

void MaxPool::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  const Layout& x = call.in[0];
  const int spatial = x.rank() - 2;
  PoolPlan p;
  p.dtype = x.dtype;
  p.x = ConvTensor(x);
  p.channels = x.shape[1];
  p.planes = x.shape[0] * x.shape[1];
  for (int d = 0; d < spatial; ++d) {
    if (x.shape[d + 2] < 1)
      call.fail("there is no greatest element in windows of 'x' {}", to_string(x.shape));
    pooled_axis(call, a, d, x.shape[d + 2]);
    ConvAxis& axis = p.axes[conv_axes - spatial + d];
    axis = {x.shape[d + 2],      call.out[0].shape[d + 2],
            along(a.kernel, d),  along(a.stride.value_or(a.kernel), d),
            along(a.padding, d), along(a.dilation, d)};
    p.windows *= axis.windows;
  }
  for (int d = 0; d < conv_axes; ++d)
    for (int64_t i = 0; i < p.axes[d].windows; ++i) {
      const Range r = range_of(p.axes[d], i);
      // The gaps of a window may skip the whole image.
      if (r.first >= r.last)
        call.fail("window {} of 'x' {} holds nothing but padding", i, to_string(x.shape));
      p.ranges[d].push_back(r);
    }
  make_table(p);
  visit_dtype(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    call.set_kernel(run_pool<T, Compared<T>>, std::move(p));
  });
}

void MaxPool::vjp(VjpCall& d) {
  if (!d.has_dy(0)) return;
  d.give(0, [&] {
    const Type& x = d.x_type();
    auto flat = [&](const Dims& dims) {
      return Dims{dims[0], dims[1], ir::numel(std::span(dims).subspan(2))};
    };
    Value zeros = full(d.world, flat(x.dims), 0, x.dtype);
    Value at = reshape(d.y(1), flat(d.y_type(1).dims));
    Value dy = reshape(d.dy(0), flat(d.y_type(0).dims));
    return reshape(emit("scatter_add", {zeros, at, dy}, {{"dim", 2, {}}}), x.dims);
  });
}

namespace {

SmallVector<Value, 2> pooled(ComposeCall& c, int spatial) {
  const auto& a = c.attr<MaxPoolAttr>();
  const Value& x = tensor_operand(c, 0);
  if (x.rank() != spatial + 2 && x.rank() != spatial + 1)
    c.fail("operand 'x' is {}; it must have {} dimensions, or {} for one sample", to_string(x.type),
           spatial + 2, spatial + 1);
  const bool alone = x.rank() == spatial + 1;
  LiteralList list{{"kernel", Literal::list(a.kernel), {}},
                   {"padding", Literal::list(a.padding), {}},
                   {"dilation", Literal::list(a.dilation), {}},
                   {"ceil_mode", a.ceil_mode, {}}};
  if (a.stride) list.push_back({"stride", Literal::list(*a.stride), {}});
  SmallVector<Value, 1> in{alone ? unsqueeze(x, 0) : x};
  auto results = emit_all(c.world, "max_pool", in, list);
  if (alone)
    for (Value& r : results) r = squeeze(r, 0);
  return results;
}

}  // namespace

template <int spatial>
void MaxPoolNd<spatial>::compose(ComposeCall& c) {
  c.give(pooled(c, spatial)[0]);
}
template struct MaxPoolNd<1>;
template struct MaxPoolNd<2>;
template struct MaxPoolNd<3>;

void MaxPool2dIdx::compose(ComposeCall& c) {
  for (Value& r : pooled(c, 2)) c.give(r);
}

}  // namespace gradus::ops
