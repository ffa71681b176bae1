// Convolutions: by a library where it has one, else as matrix products over columns, tile by tile.
// Tiles, and the order in which partial sums add up, depend on sizes alone.
#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "gradus/error.h"
#include "kernels/accumulate.h"
#include "kernels/conv_columns.h"
#include "kernels/gemm.h"
#include "kernels/library_convolution.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // of partial sums added up at a time

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Parts of a slot's scratch memory, and of what all slots share.
struct Region {
  size_t bytes = 0;
  size_t take(int64_t elements, DType dtype) {
    size_t at = bytes;
    bytes += aligned(static_cast<size_t>(elements) * size_of(dtype));
    return at;
  }
};

template <class F>
void visit_work(DType dtype, F f) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>)
      f(tag, TypeTag<std::conditional_t<std::is_same_v<T, double>, double, float>>{});
  });
}

// target [N, groups * rows, ..] = a kernel [rows, channels, taps] times the columns of a source
// [N, groups * channels, ..], for each group.
struct GatherPlan {
  struct Part {  // a phase, and its products
    Phase phase;
    int64_t width, tiles;
    int64_t weights;  // elements before its packed kernels
    bool in_place;    // columns are read where they lie
  };
  std::vector<Part> parts;
  ConvTensor source, target;
  DType dtype = DType::f32, work = DType::f32;
  int64_t batch = 0, groups = 1, rows = 0, channels = 0;
  int64_t weight_row = 0, weight_channel = 0, weight_group = 0;  // strides
  std::array<int64_t, conv_axes> weight_tap{};
  int64_t tiles = 0;  // of all parts
  size_t columns_at = 0, product_at = 0, gemm_at = 0, slot_bytes = 0, slots_at = 0;

  Gemm product(const Part& p, int64_t n) const {
    Gemm g;
    g.dtype = work;
    g.m = rows;
    g.n = n;
    g.k = channels * p.phase.taps();
    g.a_row = g.k;
    g.a_column = g.b_column = 1;
    g.b_row = p.in_place ? source.channel_stride : n;
    return g;
  }
};

// One row of the kernels of a group, in the order of every part's columns.
template <class T, class C>
void pack_weights(const GatherPlan& p, const T* w, int64_t group, int64_t row, C* packed) {
  w += group * p.weight_group + row * p.weight_row;
  for (const GatherPlan::Part& part : p.parts) {
    const auto& [a0, a1, a2] = part.phase.axes;
    C* to = packed + part.weights + (group * p.rows + row) * p.channels * part.phase.taps();
    auto tap = [](const PhaseAxis& a, int64_t j) { return a.tap_first + j * a.tap_step; };
    for (int64_t c = 0; c < p.channels; ++c)
      for (int64_t j0 = 0; j0 < a0.taps; ++j0)
        for (int64_t j1 = 0; j1 < a1.taps; ++j1)
          for (int64_t j2 = 0; j2 < a2.taps; ++j2)
            *to++ = convert<C>(w[c * p.weight_channel + tap(a0, j0) * p.weight_tap[0] +
                                 tap(a1, j1) * p.weight_tap[1] + tap(a2, j2) * p.weight_tap[2]]);
  }
}

template <class T, class C>
void gather_tile(const GatherPlan& p, const GatherPlan::Part& part, int64_t tile, int64_t image,
                 int64_t group, const T* source, const C* weights, T* target, std::byte* scratch) {
  const int64_t first = tile * part.width;
  const int64_t n = std::min(part.width, part.phase.positions() - first);
  source += image * p.source.batch_stride + group * p.channels * p.source.channel_stride;
  target += image * p.target.batch_stride + group * p.rows * p.target.channel_stride;
  const Gemm g = p.product(part, n);
  C* columns = reinterpret_cast<C*>(scratch + p.columns_at);
  const std::byte* b = reinterpret_cast<const std::byte*>(source + first);
  if (!part.in_place) {
    gather_columns(part.phase, p.source, source, p.channels, first, n, columns);
    b = reinterpret_cast<const std::byte*>(columns);
  }
  C* product = reinterpret_cast<C*>(scratch + p.product_at);
  WorkerPool alone(1);
  gemm(g, reinterpret_cast<const std::byte*>(weights + part.weights + group * p.rows * g.k), b,
       reinterpret_cast<std::byte*>(product), scratch + p.gemm_at, alone);
  for (int64_t r = 0; r < p.rows; ++r)
    scatter_positions(part.phase, p.target, product + r * n, first, n,
                      target + r * p.target.channel_stride);
}

template <class T, class C>
void run_gather(const GatherPlan& p, std::byte* const* args, KernelScope& scope) {
  if (p.batch == 0 || p.rows == 0) return;
  const T* source = reinterpret_cast<const T*>(args[0]);
  C* weights = reinterpret_cast<C*>(scope.scratch);
  scope.workers.parallel_for(p.groups, [&](int64_t group) {
    for (int64_t row = 0; row < p.rows; ++row)
      pack_weights(p, reinterpret_cast<const T*>(args[1]), group, row, weights);
  });
  run_in_slots(scope.workers, p.batch * p.groups * p.tiles, [&](int64_t item, int64_t slot) {
    int64_t tile = item % p.tiles;
    const int64_t group = item / p.tiles % p.groups, image = item / p.tiles / p.groups;
    const GatherPlan::Part* part = p.parts.data();
    for (; tile >= part->tiles; ++part) tile -= part->tiles;
    gather_tile(p, *part, tile, image, group, source, weights, reinterpret_cast<T*>(args[2]),
                scope.scratch + p.slots_at + static_cast<size_t>(slot) * p.slot_bytes);
  });
}

Kernel make_gather(const Convolution& w, GatherPlan p, std::vector<Phase> phases) {
  p.source = ConvTensor(w.first);
  p.target = ConvTensor(w.result);
  p.dtype = w.first.dtype;
  p.work = accumulation_dtype(p.dtype);
  p.batch = w.first.shape[0];
  p.weight_tap = ConvTensor(w.second).strides;
  int64_t weights = 0, columns = 0, product = 0;
  size_t gemm_bytes = 0;
  for (Phase& phase : phases) {
    const int64_t positions = phase.positions(), rows = p.channels * phase.taps();
    if (positions == 0) continue;
    const bool in_place = p.dtype == p.work && p.source.lies_in_place(phase);
    const int64_t width = tile_width(std::max(in_place ? 0 : rows, p.rows), positions);
    GatherPlan::Part part{phase, width, 0, weights, in_place};
    part.tiles = (positions + part.width - 1) / part.width;
    weights += p.groups * p.rows * rows;
    columns = std::max(columns, part.in_place ? 0 : rows * part.width);
    product = std::max(product, p.rows * part.width);
    for (int64_t n : {part.width, positions % part.width})
      gemm_bytes = std::max(gemm_bytes, gemm_scratch_bytes(p.product(part, n), false));
    p.tiles += part.tiles;
    p.parts.push_back(std::move(part));
  }
  Region slot, shared;
  p.columns_at = slot.take(columns, p.work);
  p.product_at = slot.take(product, p.work);
  p.gemm_at = slot.take(static_cast<int64_t>(gemm_bytes), DType::u8);
  p.slot_bytes = slot.bytes;
  shared.take(weights, p.work);
  p.slots_at = shared.bytes;
  const int64_t slots = std::min(p.batch * p.groups * p.tiles, most_slots());
  const size_t scratch = p.slots_at + static_cast<size_t>(slots) * p.slot_bytes;
  Kernel kernel;
  visit_work(p.dtype, [&](auto t, auto c) {
    kernel = Kernel::of<run_gather<typename decltype(t)::type, typename decltype(c)::type>>(
        std::move(p), scratch);
  });
  return kernel;
}

// dw [O, C / groups, taps] = the sum over images and positions of dy times x's columns. An item is
// some channels of a group, over a part of the batch; the parts' sums add up in order.
struct WeightPlan {
  Phase windows, positions;
  ConvTensor x, dy;
  DType dtype = DType::f32, work = DType::f32;
  int64_t batch = 0, groups = 1, rows = 0, channels = 0;  // rows: O / groups
  int64_t channels_each = 1, channel_chunks = 0, parts = 1, width = 1;
  bool in_place = false;  // dy is read where it lies
  size_t columns_at = 0, rows_at = 0, product_at = 0, gemm_at = 0, slot_bytes = 0, slots_at = 0;

  int64_t row() const { return channels * windows.taps(); }
  int64_t elements() const { return groups * rows * row(); }
  Gemm product(int64_t chunk_rows, int64_t n) const {
    Gemm g;
    g.dtype = work;
    g.m = rows;
    g.n = chunk_rows;
    g.k = n;
    g.a_row = in_place ? dy.channel_stride : n;
    g.a_column = g.b_row = 1;
    g.b_column = n;
    return g;
  }
};

// Channels [channel, channel + channels) of a group over images [first, last), into `sums`, rows of
// p.row() elements.
template <class T, class C>
void weight_item(const WeightPlan& p, const T* x, const T* dy, int64_t channels, int64_t first,
                 int64_t last, C* sums, std::byte* scratch) {
  const int64_t n = channels * p.windows.taps(), positions = p.positions.positions();
  C* columns = reinterpret_cast<C*>(scratch + p.columns_at);
  C* rows = reinterpret_cast<C*>(scratch + p.rows_at);
  C* product = reinterpret_cast<C*>(scratch + p.product_at);
  for (int64_t r = 0; r < p.rows; ++r) std::fill_n(sums + r * p.row(), n, C(0));
  WorkerPool alone(1);
  for (int64_t image = first; image < last; ++image) {
    const T* dy_image = dy + image * p.dy.batch_stride;
    for (int64_t q = 0; q < positions; q += p.width) {
      const int64_t width = std::min(p.width, positions - q);
      gather_columns(p.windows, p.x, x + image * p.x.batch_stride, channels, q, width, columns);
      const std::byte* a = reinterpret_cast<const std::byte*>(dy_image + q);
      if (!p.in_place) {
        gather_columns(p.positions, p.dy, dy_image, p.rows, q, width, rows);
        a = reinterpret_cast<const std::byte*>(rows);
      }
      gemm(p.product(n, width), a, reinterpret_cast<const std::byte*>(columns),
           reinterpret_cast<std::byte*>(product), scratch + p.gemm_at, alone);
      for (int64_t r = 0; r < p.rows; ++r)
        for (int64_t i = 0; i < n; ++i) sums[r * p.row() + i] += product[r * n + i];
    }
  }
}

template <class T, class C>
void run_weight(const WeightPlan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t elements = p.elements();
  if (elements == 0) return;
  const T *x = reinterpret_cast<const T*>(args[0]), *dy = reinterpret_cast<const T*>(args[1]);
  C* sums = reinterpret_cast<C*>(scope.scratch);
  run_in_slots(
      scope.workers, p.parts * p.groups * p.channel_chunks, [&](int64_t item, int64_t slot) {
        const int64_t chunk = item % p.channel_chunks, channel = chunk * p.channels_each;
        const int64_t group = item / p.channel_chunks % p.groups;
        const int64_t part = item / p.channel_chunks / p.groups;
        weight_item(p, x + (group * p.channels + channel) * p.x.channel_stride,
                    dy + group * p.rows * p.dy.channel_stride,
                    std::min(p.channels_each, p.channels - channel), p.batch * part / p.parts,
                    p.batch * (part + 1) / p.parts,
                    sums + part * elements + group * p.rows * p.row() + channel * p.windows.taps(),
                    scope.scratch + p.slots_at + static_cast<size_t>(slot) * p.slot_bytes);
      });
  T* dw = reinterpret_cast<T*>(args[2]);
  scope.workers.parallel_parts(elements, chunk_elements, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      C sum = sums[i];
      for (int64_t part = 1; part < p.parts; ++part) sum += sums[part * elements + i];
      dw[i] = convert<T>(sum);
    }
  });
}

Kernel make_result(const Convolution& c) {
  const Layout& w = c.second;
  GatherPlan p;
  p.groups = c.groups;
  p.rows = w.shape[0] / c.groups;
  p.channels = w.shape[1];
  p.weight_row = w.strides[0];
  p.weight_channel = w.strides[1];
  p.weight_group = p.rows * w.strides[0];
  return make_gather(c, std::move(p), {window_phase(c.axes)});
}

Kernel make_image(const Convolution& c) {
  const Layout& w = c.second;
  GatherPlan p;
  p.groups = c.groups;
  p.rows = w.shape[1];
  p.channels = w.shape[0] / c.groups;
  p.weight_row = w.strides[1];
  p.weight_channel = w.strides[0];
  p.weight_group = p.channels * w.strides[0];
  return make_gather(c, std::move(p), image_phases(c.axes));
}

Kernel make_weight(const Convolution& c) {
  const Layout &x = c.first, &dy = c.second;
  const ConvAxes& axes = c.axes;
  const KernelSums sums = kernel_sums(c);
  WeightPlan p;
  p.windows = window_phase(axes);
  p.positions = identity_phase({axes[0].windows, axes[1].windows, axes[2].windows});
  p.x = ConvTensor(x);
  p.dy = ConvTensor(dy);
  p.dtype = x.dtype;
  p.work = accumulation_dtype(p.dtype);
  p.batch = x.shape[0];
  p.groups = c.groups;
  p.rows = dy.shape[1] / c.groups;
  p.channels = x.shape[1] / c.groups;
  const int64_t taps = p.windows.taps(), positions = p.positions.positions();
  p.channels_each = sums.channels_each;
  p.channel_chunks = (p.channels + p.channels_each - 1) / p.channels_each;
  p.parts = sums.parts;
  p.in_place = p.dtype == p.work && p.dy.lies_in_place(p.positions);
  const int64_t n = p.channels_each * taps;
  p.width = sums.width;
  size_t gemm_bytes = 0;
  for (int64_t rows : {n, (p.channels % p.channels_each) * taps})
    for (int64_t width : {p.width, positions % p.width})
      gemm_bytes = std::max(gemm_bytes, gemm_scratch_bytes(p.product(rows, width), false));
  Region slot, shared;
  p.columns_at = slot.take(n * p.width, p.work);
  p.rows_at = slot.take(p.in_place ? 0 : p.rows * p.width, p.work);
  p.product_at = slot.take(p.rows * n, p.work);
  p.gemm_at = slot.take(static_cast<int64_t>(gemm_bytes), DType::u8);
  p.slot_bytes = slot.bytes;
  shared.take(p.parts * p.elements(), p.work);
  p.slots_at = shared.bytes;
  const int64_t slots = std::min(p.parts * p.groups * p.channel_chunks, most_slots());
  const size_t scratch = p.slots_at + static_cast<size_t>(slots) * p.slot_bytes;
  Kernel kernel;
  visit_work(p.dtype, [&](auto t, auto work) {
    kernel = Kernel::of<run_weight<typename decltype(t)::type, typename decltype(work)::type>>(
        std::move(p), scratch);
  });
  return kernel;
}

}  // namespace

Kernel make_kernel(const Convolution& w) {
  if (auto kernel = make_library(w)) return *kernel;
  switch (w.direction) {
    case Direction::result:
      return make_result(w);
    case Direction::image:
      return make_image(w);
    case Direction::kernel:
      return make_weight(w);
  }
  GRADUS_CHECK(false);
  return {};
}

}  // namespace gradus::kernels
