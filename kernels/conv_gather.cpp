#include "kernels/conv_gather.h"

#include <algorithm>

#include "base/slots.h"
#include "gradus/convert.h"
#include "gradus/isa.h"
#include "kernels/accumulate.h"
#include "kernels/conv_columns.h"
#include "kernels/conv_planes.h"
#include "kernels/gemm_kernel.h"

namespace gradus::kernels {

namespace {

// Elements that a tile copies and computes, about: they stay in a core's cache.
constexpr int64_t plane_elements = 1 << 16, least_row = 64;

// How products read the source.
enum class Reading : uint8_t {
  in_place,  // a position is an element of it
  planes,    // from copies with the padding around them: a tap's row of positions lies together
  columns,   // from a copy for each tap
};

// Positions of a phase that are worked on at a time: `rows` runs of `count` positions, whole rows
// of the last axis or else one run. What they read of a tap lies `pitch` apart from run to run.
struct GatherTile {
  int64_t first = 0, rows = 1, count = 0, pitch = 0;
  int64_t positions() const { return rows * count; }
  int64_t length() const { return (rows - 1) * pitch + count; }  // with what lies between the runs
};

// A phase of the target, and how it is worked on.
struct GatherPart {
  Phase phase;
  Reading reading = Reading::columns;
  int64_t weights = 0;  // elements before its packed kernels
  int64_t tiles = 0;
  int64_t each = 0;         // of a tile: positions, or rows of them where it reads planes
  int64_t wide = 0;         // of a row of a tile that reads planes
  bool joined = true;       // products of what lies between the runs are computed, too
  Planes planes;            // where it reads those
  std::vector<int64_t> at;  // of what is read, for each channel and tap

  GatherTile tile(int64_t i) const {
    const auto& [a0, a1, a2] = phase.axes;
    if (reading != Reading::planes) {
      const int64_t first = i * each, n = std::min(each, phase.positions() - first);
      return {first, 1, n, n};
    }
    const int64_t down = (a1.count + each - 1) / each, across = (a2.count + wide - 1) / wide;
    const int64_t row = i / across % down * each, column = i % across * wide;
    const int64_t first = (i / across / down * a1.count + row) * a2.count + column;
    return {first, std::min(each, a1.count - row), std::min(wide, a2.count - column), planes.pitch};
  }
};

// target [N, groups * rows, ..] = a kernel [rows, channels, taps] times what a source
// [N, groups * channels, ..] is read for it, for each group.
struct GatherPlan {
  std::vector<GatherPart> parts;
  ConvTensor source, target;
  DType dtype = DType::f32, work = DType::f32;
  int64_t batch = 0, groups = 1, rows = 0, channels = 0;
  int64_t weight_row = 0, weight_channel = 0, weight_group = 0;  // strides
  std::array<int64_t, conv_axes> weight_tap{};
  int64_t tiles = 0;  // of all parts
  size_t copy_at = 0, product_at = 0, slot_bytes = 0, slots_at = 0;
};

// One row of the kernels of a group, in the order of every part's products.
template <class T, class C>
void pack_weights(const GatherPlan& p, const T* w, int64_t group, int64_t row, C* packed) {
  w += group * p.weight_group + row * p.weight_row;
  for (const GatherPart& part : p.parts) {
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

// The products of a tile, into rows of tile.length() elements.
template <class C>
void multiply_tile(const GatherPlan& p, const GatherPart& part, const GatherTile& tile,
                   const C* weights, const C* read, C* product) {
  using K = GemmKernels<C>;
  const K& kernels = gemm_kernels<C>(cpu_level());
  const int64_t k = static_cast<int64_t>(part.at.size()), length = tile.length();
  const int64_t runs = part.joined ? 1 : tile.rows, run = part.joined ? length : tile.count;
  const int64_t width = p.rows == 1 ? K::wide : K::columns;
  if (k == 0) std::fill_n(product, p.rows * length, C(0));
  GemmTile<C> t;
  t.a_row = k;
  t.a_column = 1;
  t.b_row = 0;
  t.c_row = length;
  for (int64_t k0 = 0; k0 < k; k0 += gemm_block) {
    t.k = std::min(gemm_block, k - k0);
    t.first = k0 == 0;
    t.b_rows = part.at.data() + k0;
    for (int64_t begin = 0; begin < runs * tile.pitch; begin += tile.pitch)
      for (int64_t j = 0; j < run; j += width) {
        t.columns = std::min(width, run - j);
        t.b = read + begin + j;
        for (int64_t i = 0; i < p.rows; i += K::rows) {
          t.rows = std::min(K::rows, p.rows - i);
          t.a = weights + i * k + k0;
          t.c = product + i * length + begin + j;
          kernels.tile(t);
        }
      }
  }
}

template <class T, class C>
void gather_tile(const GatherPlan& p, const GatherPart& part, int64_t i, int64_t image,
                 int64_t group, const T* source, const C* weights, T* target, std::byte* scratch) {
  source += image * p.source.batch_stride + group * p.channels * p.source.channel_stride;
  target += image * p.target.batch_stride + group * p.rows * p.target.channel_stride;
  const GatherTile tile = part.tile(i);
  C* copy = reinterpret_cast<C*>(scratch + p.copy_at);
  const C* read = copy;
  if (part.reading == Reading::planes) {
    const Phase planes = part.planes.from(part.phase, tile.first, tile.rows);
    gather_columns(planes, p.source, source, p.channels, 0, planes.positions(), copy,
                   part.planes.plane);
  } else if (part.reading == Reading::columns) {
    gather_columns(part.phase, p.source, source, p.channels, tile.first, tile.count, copy,
                   part.each);
  } else if constexpr (std::is_same_v<T, C>) {
    read = source + tile.first;
  }
  C* product = reinterpret_cast<C*>(scratch + p.product_at);
  multiply_tile(p, part, tile,
                weights + part.weights + group * p.rows * p.channels * part.phase.taps(), read,
                product);
  for (int64_t r = 0; r < p.rows; ++r)
    scatter_positions(part.phase, p.target, product + r * tile.length(), tile.first,
                      tile.positions(), target + r * p.target.channel_stride,
                      tile.pitch - tile.count);
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
    const GatherPart* part = p.parts.data();
    for (; tile >= part->tiles; ++part) tile -= part->tiles;
    gather_tile(p, *part, tile, image, group, source, weights, reinterpret_cast<T*>(args[2]),
                scope.scratch + p.slots_at + static_cast<size_t>(slot) * p.slot_bytes);
  });
}

void read_planes(GatherPart& part, const GatherPlan& p) {
  const auto& [a0, a1, a2] = part.phase.axes;
  // Parts of about the same size, of which each fits.
  auto even = [](int64_t count, int64_t fitting) {
    const int64_t parts = (count + fitting - 1) / fitting;
    return (count + parts - 1) / parts;
  };
  const Planes one(part.phase, 1, 1);
  const int64_t position = p.channels * one.copy.taps() + p.rows;  // elements that it takes
  part.wide = even(a2.count, std::max(least_row, plane_elements / position));
  const int64_t row = Planes(part.phase, 1, part.wide).pitch * position;
  part.each = part.wide < a2.count ? 1 : even(a1.count, std::max<int64_t>(1, plane_elements / row));
  part.reading = Reading::planes;
  part.tiles = a0.count * ((a1.count + part.each - 1) / part.each) *
               ((a2.count + part.wide - 1) / part.wide);
  part.planes = Planes(part.phase, part.each, part.wide);
  part.at = part.planes.offsets(part.phase, p.channels);
}

// In place: elements of channels. Else columns, as many as are worked on at a time.
void read_in_order(GatherPart& part, const GatherPlan& p, bool in_place) {
  const int64_t positions = part.phase.positions(), k = p.channels * part.phase.taps();
  part.reading = in_place ? Reading::in_place : Reading::columns;
  part.each = tile_width(std::max(in_place ? 0 : k, p.rows), positions);
  part.tiles = (positions + part.each - 1) / part.each;
  for (int64_t i = 0; i < k; ++i)
    part.at.push_back(i * (in_place ? p.source.channel_stride : part.each));
}

// Multiplications of a position and an element of the kernels, by a whole phase: those of tiles are
// done, needed or not; a copied element takes as long as some of them.
struct ReadingCost {
  int64_t columns, joined, apart;
  ReadingCost(const Phase& phase, const GatherPlan& p) {
    const auto& [a0, a1, a2] = phase.axes;
    const int64_t element = static_cast<int64_t>(size_of(p.work)), step = 64 / element;
    const int64_t copied = 80 / element, rows = a0.count * a1.count;
    auto tiles = [&](int64_t n) { return (n + step - 1) / step * step; };
    const Planes planes(phase, a1.count, a2.count);
    const int64_t copies = copied * a0.count * planes.elements(1) / phase.taps();
    columns = p.rows * tiles(phase.positions()) + copied * phase.positions();
    joined = p.rows * a0.count * tiles((a1.count - 1) * planes.pitch + a2.count) + copies;
    apart = p.rows * rows * tiles(a2.count) + copies;
  }
};

GatherPart read_best(const Phase& phase, const GatherPlan& p) {
  GatherPart part;
  part.phase = phase;
  const bool in_place = p.dtype == p.work && p.source.lies_in_place(phase);
  if (in_place || phase.taps() == 0) {
    read_in_order(part, p, in_place);
    return part;
  }
  const ReadingCost cost(phase, p);
  if (cost.columns < std::min(cost.joined, cost.apart)) {
    read_in_order(part, p, false);
  } else {
    read_planes(part, p);
    part.joined = cost.joined <= cost.apart;
  }
  return part;
}

// The operands' sides of a plan.
GatherPlan result_plan(const Convolution& c) {
  const Layout& w = c.second;
  GatherPlan p;
  p.groups = c.groups;
  p.rows = w.shape[0] / c.groups;
  p.channels = w.shape[1];
  p.weight_row = w.strides[0];
  p.weight_channel = w.strides[1];
  p.weight_group = p.rows * w.strides[0];
  return p;
}

GatherPlan image_plan(const Convolution& c) {
  const Layout& w = c.second;
  GatherPlan p;
  p.groups = c.groups;
  p.rows = w.shape[1];
  p.channels = w.shape[0] / c.groups;
  p.weight_row = w.strides[1];
  p.weight_channel = w.strides[0];
  p.weight_group = p.channels * w.strides[0];
  return p;
}

}  // namespace

Kernel make_gather(const Convolution& w) {
  const bool image = w.direction == Direction::image;
  GatherPlan p = image ? image_plan(w) : result_plan(w);
  p.source = ConvTensor(w.first);
  p.target = ConvTensor(w.result);
  p.dtype = w.first.dtype;
  p.work = accumulation_dtype(p.dtype);
  p.batch = w.first.shape[0];
  p.weight_tap = ConvTensor(w.second).strides;
  int64_t weights = 0, copy = 0, product = 0;
  for (const Phase& phase : image ? image_phases(w.axes) : std::vector{window_phase(w.axes)}) {
    if (phase.positions() == 0) continue;
    GatherPart part = read_best(phase, p);
    const int64_t k = p.channels * phase.taps();
    part.weights = weights;
    weights += p.groups * p.rows * k;
    if (part.reading == Reading::planes)
      copy = std::max(copy, part.planes.elements(p.channels));
    else if (part.reading == Reading::columns)
      copy = std::max(copy, k * part.each);
    product = std::max(product, p.rows * part.tile(0).length());
    p.tiles += part.tiles;
    p.parts.push_back(std::move(part));
  }
  Region slot, shared;
  p.copy_at = slot.take(copy, p.work);
  p.product_at = slot.take(product, p.work);
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

}  // namespace gradus::kernels
