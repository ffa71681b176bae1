// Convolutions: by a library where it has one, else as matrix products over columns, tile by tile.
// Tiles, and the order in which partial sums add up, depend on sizes alone.
#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "gradus/isa.h"
#include "kernels/accumulate.h"
#include "kernels/conv_columns.h"
#include "kernels/conv_gather.h"
#include "kernels/conv_planes.h"
#include "kernels/gemm.h"
#include "kernels/gemm_kernel.h"
#include "kernels/library_convolution.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // of partial sums added up at a time

// dw [O, C / groups, taps] = the sum over images and positions of dy times what x is read for it.
// An item is some channels of a group, over a part of the batch; the parts' sums add up in order.
struct WeightPlan {
  Phase windows, positions;
  ConvTensor x, dy;
  DType dtype = DType::f32, work = DType::f32;
  int64_t batch = 0, groups = 1, rows = 0, channels = 0;  // rows: O / groups
  int64_t channels_each = 1, channel_chunks = 0, parts = 1, width = 1;
  bool in_place = false;  // dy is read where it lies
  bool by_planes =
      false;  // x from copies with the padding around them, not from a copy for each tap
  Planes planes;
  std::vector<int64_t> at;  // of taps in them
  size_t copy_at = 0, rows_at = 0, panels_at = 0, moves_at = 0, product_at = 0, gemm_at = 0;
  size_t slot_bytes = 0, slots_at = 0;

  int64_t row() const { return channels * windows.taps(); }
  int64_t elements() const { return groups * rows * row(); }
  int64_t dy_row(int64_t n) const { return in_place ? dy.channel_stride : n; }
  Gemm product(int64_t chunk_rows, int64_t n) const {
    Gemm g;
    g.dtype = work;
    g.m = rows;
    g.n = chunk_rows;
    g.k = n;
    g.a_row = dy_row(n);
    g.a_column = g.b_row = 1;
    g.b_column = n;
    return g;
  }
};

// An item's positions [first, first + n) of an image: what of x is read, and dy's rows.
template <class T, class C>
struct WeightStep {
  const T* x;
  const C* dy;
  int64_t channels, first, n;
};

// Adds dy times the columns of x to `sums`, rows of p.row() elements.
template <class T, class C>
void add_columns(const WeightPlan& p, const WeightStep<T, C>& s, C* sums, std::byte* scratch) {
  C* columns = reinterpret_cast<C*>(scratch + p.copy_at);
  C* product = reinterpret_cast<C*>(scratch + p.product_at);
  const int64_t taps = s.channels * p.windows.taps();
  gather_columns(p.windows, p.x, s.x, s.channels, s.first, s.n, columns, s.n);
  WorkerPool alone(1);
  gemm(p.product(taps, s.n), reinterpret_cast<const std::byte*>(s.dy),
       reinterpret_cast<const std::byte*>(columns), reinterpret_cast<std::byte*>(product),
       scratch + p.gemm_at, alone);
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < taps; ++i) sums[r * p.row() + i] += product[r * taps + i];
}

// dy's rows as panels of columns, position by position.
template <class T, class C>
void pack_panels(const WeightPlan& p, const WeightStep<T, C>& s, C* panels) {
  constexpr int64_t step = GemmKernels<C>::columns;
  const int64_t row = p.dy_row(s.n);
  for (int64_t r = 0; r < p.rows; r += step, panels += step * s.n) {
    if (p.rows - r >= step) {
      gemm_kernels<C>(cpu_level()).transpose(s.dy + r * row, row, s.n, panels);
      continue;
    }
    for (int64_t i = 0; i < p.rows - r; ++i)
      for (int64_t q = 0; q < s.n; ++q) panels[q * step + i] = s.dy[(r + i) * row + q];
  }
}

// The same by the product's transpose: x's elements are read wherever they lie in a copy.
template <class T, class C>
void add_planes(const WeightPlan& p, const WeightStep<T, C>& s, C* sums, std::byte* scratch) {
  using K = GemmKernels<C>;
  C* copy = reinterpret_cast<C*>(scratch + p.copy_at);
  C* panels = reinterpret_cast<C*>(scratch + p.panels_at);
  C* product = reinterpret_cast<C*>(scratch + p.product_at);
  int64_t* moves = reinterpret_cast<int64_t*>(scratch + p.moves_at);
  const int64_t across = p.windows.axes[2].count, taps = s.channels * p.windows.taps();
  const int64_t row = s.first / across, rows = (s.first + s.n - 1) / across - row + 1;
  const Phase copied = p.planes.from(p.windows, row * across, rows);
  gather_columns(copied, p.x, s.x, s.channels, 0, copied.positions(), copy, p.planes.plane);
  for (int64_t i = 0; i < s.n; ++i)
    moves[i] = ((s.first + i) / across - row) * p.planes.pitch + (s.first + i) % across;
  pack_panels(p, s, panels);
  GemmTile<C> t{};
  t.b_row = K::columns;
  t.c_row = p.rows;
  for (int64_t k = 0; k < s.n; k += gemm_block) {
    t.k = std::min(gemm_block, s.n - k);
    t.first = k == 0;
    t.a_columns = moves + k;
    for (int64_t j = 0; j < p.rows; j += K::columns) {
      t.columns = std::min(K::columns, p.rows - j);
      t.b = panels + j * s.n + k * K::columns;
      for (int64_t i = 0; i < taps; i += K::rows) {
        t.rows = std::min(K::rows, taps - i);
        t.a = copy;
        t.a_rows = p.at.data() + i;
        t.c = product + i * p.rows + j;
        gemm_kernels<C>(cpu_level()).tile(t);
      }
    }
  }
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < taps; ++i) sums[r * p.row() + i] += product[i * p.rows + r];
}

// Channels [channel, channel + channels) of a group over images [first, last), into `sums`.
template <class T, class C>
void weight_item(const WeightPlan& p, const T* x, const T* dy, int64_t channels, int64_t first,
                 int64_t last, C* sums, std::byte* scratch) {
  const int64_t positions = p.positions.positions();
  C* rows = reinterpret_cast<C*>(scratch + p.rows_at);
  for (int64_t r = 0; r < p.rows; ++r)
    std::fill_n(sums + r * p.row(), channels * p.windows.taps(), C(0));
  for (int64_t image = first; image < last; ++image) {
    const T* dy_image = dy + image * p.dy.batch_stride;
    for (int64_t q = 0; q < positions; q += p.width) {
      WeightStep<T, C> step{x + image * p.x.batch_stride, rows, channels, q,
                            std::min(p.width, positions - q)};
      if constexpr (std::is_same_v<T, C>)
        if (p.in_place) step.dy = dy_image + q;
      if (!p.in_place) gather_columns(p.positions, p.dy, dy_image, p.rows, q, step.n, rows, step.n);
      p.by_planes ? add_planes(p, step, sums, scratch) : add_columns(p, step, sums, scratch);
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

// As many as the tiles of a product have columns for.
int64_t in_tiles(int64_t n, DType dtype) {
  const int64_t step = 64 / static_cast<int64_t>(size_of(dtype));
  return (n + step - 1) / step * step;
}

// Multiplications of a position, those that fill tiles among them; an element that is copied and
// transposed takes as long as some.
void choose_reading(WeightPlan& p, int64_t taps) {
  const PhaseAxis &depth = p.windows.axes[0], &across = p.windows.axes[2];
  const int64_t copied = 128 / static_cast<int64_t>(size_of(p.work));
  const int64_t columns = p.rows * in_tiles(taps, p.work) + copied * taps;
  p.by_planes =
      depth.count == 1 && p.positions.positions() > 0 && taps * in_tiles(p.rows, p.work) <= columns;
  if (!p.by_planes) return;
  const int64_t rows =
      std::min(p.windows.axes[1].count, (p.width + across.count - 2) / across.count + 1);
  p.planes = Planes(p.windows, rows, across.count);
  p.at = p.planes.offsets(p.windows, p.channels_each);
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
  choose_reading(p, n);
  size_t gemm_bytes = 0;
  for (int64_t rows : {n, (p.channels % p.channels_each) * taps})
    for (int64_t width : {p.width, positions % p.width})
      if (!p.by_planes)
        gemm_bytes = std::max(gemm_bytes, gemm_scratch_bytes(p.product(rows, width), false));
  const int64_t copied = p.by_planes ? p.planes.elements(p.channels_each) : n * p.width;
  const int64_t panels = p.by_planes ? in_tiles(p.rows, p.work) * p.width : 0;
  Region slot, shared;
  p.copy_at = slot.take(copied, p.work);
  p.rows_at = slot.take(p.in_place ? 0 : p.rows * p.width, p.work);
  p.panels_at = slot.take(panels, p.work);
  p.moves_at = slot.take(p.by_planes ? p.width : 0, DType::i64);
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
  return w.direction == Direction::kernel ? make_weight(w) : make_gather(w);
}

}  // namespace gradus::kernels
