// Convolutions: by a library where it has one, else as matrix products over columns, tile by tile.
// Tiles, and the order in which partial sums add up, depend on sizes alone.
#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "kernels/accumulate.h"
#include "kernels/conv_columns.h"
#include "kernels/conv_gather.h"
#include "kernels/gemm.h"
#include "kernels/library_convolution.h"

namespace gradus::kernels {

namespace {

constexpr int64_t chunk_elements = 1 << 15;  // of partial sums added up at a time

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
      gather_columns(p.windows, p.x, x + image * p.x.batch_stride, channels, q, width, columns,
                     width);
      const std::byte* a = reinterpret_cast<const std::byte*>(dy_image + q);
      if (!p.in_place) {
        gather_columns(p.positions, p.dy, dy_image, p.rows, q, width, rows, width);
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
  return w.direction == Direction::kernel ? make_weight(w) : make_gather(w);
}

}  // namespace gradus::kernels
