#include "fusion/cuda/stock_convolution.h"

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view phase_text = R"(
struct Phase {
$PHASE$  __device__ __forceinline__ i64 taps_in_all() const { return taps[0] * taps[1] * taps[2]; }
  __device__ __forceinline__ i64 positions() const { return count[0] * count[1] * count[2]; }
};

// A row-major place among three sizes, as its indices.
struct Place {
  i64 at[3];
  __device__ __forceinline__ Place(const i64 (&size)[3], i64 place) {
    const i64 upper = place / max(size[2], i64(1));
    at[2] = place - upper * size[2];
    at[0] = upper / max(size[1], i64(1));
    at[1] = upper - at[0] * size[1];
  }
};

// Where a position reads with a tap; false outside of the source.
__device__ __forceinline__ bool find(const Phase& phase, const i64 (&by)[3], const Place& position,
                                     const Place& tap, i64& at) {
  bool inside = true;
#pragma unroll
  for (i32 d = 0; d < 3; ++d) {
    const i64 i = phase.offset[d] + position.at[d] * phase.move[d] + tap.at[d] * phase.tap_move[d];
    inside &= i >= 0 && i < phase.source_size[d];
    at += i * by[d];
  }
  return inside;
}
)";

constexpr std::string_view gather_text = R"(
// Tiles of 16 rows and 16 positions. Each element adds up channels and taps in order, in blocks of
// 256.
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const Phase& phase = work.phase[0];
  const u32 row = threadIdx.x >> 4, column = threadIdx.x & 15;
  const i64 taps = phase.taps_in_all(), positions = phase.positions(), all = work.channels * taps;
  const i64 down = (work.rows + 15) / 16, across = (positions + 15) / 16;
  for (i64 item = blockIdx.x; item < work.batch * work.groups * down * across; item += gridDim.x) {
    const i64 entry = item / (down * across), tile = item - entry * down * across;
    const i64 image = entry / work.groups, group = entry - image * work.groups;
    const i64 i = tile / across * 16 + row, j = tile % across * 16 + column;
    const $TYPE$* weights = work.weights + group * work.weight_group + i * work.weight_row;
    const $TYPE$* source = work.source + image * work.source_batch +
                           group * work.channels * work.source_channel;
    const Place position(phase.count, j);
    $HELD$ total = 0, sum = 0;
    for (i64 k = 0; k < all; k += 16) {
      if (k && k % 256 == 0) {
        total = total + sum;
        sum = 0;
      }
      const i64 k_a = k + column, k_b = k + row;
      a_tile[row][column] = 0;
      b_tile[row][column] = 0;
      if (i < work.rows && k_a < all) {
        const i64 channel = k_a / taps;
        const Place tap(phase.taps, k_a - channel * taps);
        i64 at = channel * work.weight_channel;
#pragma unroll
        for (i32 d = 0; d < 3; ++d)
          at += (phase.tap_first[d] + tap.at[d] * phase.tap_step[d]) * work.weight_by[d];
        const $TYPE$ x = weights[at];
        a_tile[row][column] = $HOLD$;
      }
      if (j < positions && k_b < all) {
        const i64 channel = k_b / taps;
        const Place tap(phase.taps, k_b - channel * taps);
        i64 at = channel * work.source_channel;
        if (find(phase, work.source_by, position, tap, at)) {
          const $TYPE$ x = source[at];
          b_tile[row][column] = $HOLD$;
        }
      }
      __syncthreads();
#pragma unroll
      for (u32 p = 0; p < 16; ++p) sum = $FMA$(a_tile[row][p], b_tile[p][column], sum);
      __syncthreads();
    }
    total = total + sum;
    if (i < work.rows && j < positions) {
      i64 at = image * work.target_batch + (group * work.rows + i) * work.target_channel;
#pragma unroll
      for (i32 d = 0; d < 3; ++d)
        at += (phase.first[d] + position.at[d] * phase.step[d]) * work.target_by[d];
      work.target[at] = $RESULT$;
    }
  }
}
)";

constexpr std::string_view weight_text = R"(
// Tiles of 16 rows and 16 of channels and taps. Positions of an image add up in order, in tiles of
// `width` and blocks of 256; then images, then parts of the batch.
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const Phase& phase = work.phase[0];
  const u32 row = threadIdx.x >> 4, column = threadIdx.x & 15;
  const i64 taps = phase.taps_in_all(), positions = phase.positions(), all = work.channels * taps;
  const i64 down = (work.rows + 15) / 16, across = (all + 15) / 16;
  for (i64 item = blockIdx.x; item < work.groups * down * across; item += gridDim.x) {
    const i64 group = item / (down * across), tile = item - group * down * across;
    const i64 i = tile / across * 16 + row, j = tile % across * 16 + column;
    const i64 channel = min(j, all - 1) / taps;
    const Place tap(phase.taps, min(j, all - 1) - channel * taps);
    const i64 x_at = (group * work.channels + channel) * work.x_channel;
    const i64 dy_at = (group * work.rows + i) * work.dy_channel;
    $HELD$ total = 0;
    for (i64 part = 0; part < work.parts; ++part) {
      $HELD$ of_part = 0;
      const i64 end = work.batch * (part + 1) / work.parts;
      for (i64 image = work.batch * part / work.parts; image < end; ++image)
        for (i64 begin = 0; begin < positions; begin += work.width) {
          const i64 width = min(work.width, positions - begin);
          $HELD$ of_tile = 0, sum = 0;
          for (i64 k = 0; k < width; k += 16) {
            if (k && k % 256 == 0) {
              of_tile = of_tile + sum;
              sum = 0;
            }
            a_tile[row][column] = 0;
            b_tile[row][column] = 0;
            if (i < work.rows && k + column < width) {
              const Place position(phase.count, begin + k + column);
              i64 at = image * work.dy_batch + dy_at;
#pragma unroll
              for (i32 d = 0; d < 3; ++d) at += position.at[d] * work.dy_by[d];
              const $TYPE$ x = work.dy[at];
              a_tile[row][column] = $HOLD$;
            }
            if (j < all && k + row < width) {
              const Place position(phase.count, begin + k + row);
              i64 at = image * work.x_batch + x_at;
              if (find(phase, work.x_by, position, tap, at)) {
                const $TYPE$ x = work.x[at];
                b_tile[row][column] = $HOLD$;
              }
            }
            __syncthreads();
#pragma unroll
            for (u32 p = 0; p < 16; ++p) sum = $FMA$(a_tile[row][p], b_tile[p][column], sum);
            __syncthreads();
          }
          of_part = of_part + (of_tile + sum);
        }
      total = total + of_part;
    }
    if (i < work.rows && j < all) work.result[(group * work.rows + i) * all + j] = $RESULT$;
  }
}
)";

Parameters parameters_of(const work::Phase& phase) {
  using Axis = work::PhaseAxis;
  constexpr std::pair<std::string_view, int64_t Axis::*> fields[] = {
      {"first", &Axis::first},       {"step", &Axis::step},
      {"count", &Axis::count},       {"tap_first", &Axis::tap_first},
      {"tap_step", &Axis::tap_step}, {"taps", &Axis::taps},
      {"offset", &Axis::offset},     {"move", &Axis::move},
      {"tap_move", &Axis::tap_move}, {"source_size", &Axis::source_size}};
  Parameters p;
  for (const auto& [name, field] : fields) p.add(name, each(phase.axes, field));
  return p;
}

void add_tensor(Parameters& p, const std::string& name, const work::ConvTensor& t) {
  p.add(name + "_batch", t.batch_stride).add(name + "_channel", t.channel_stride);
  p.add(name + "_by", t.strides);
}

StockKernel filled(std::string_view text, DType dtype, Parameters& p, const work::Phase& phase,
                   int64_t blocks) {
  const Parameters one[] = {parameters_of(phase)};
  p.add("Phase", "phase", one);
  const DType acc = dtype_of(compute_of(dtype));
  return StockText(std::string(phase_text) + std::string(text))
      .with("PHASE", one[0])
      .with("TYPE", memory_type(dtype))
      .with("HELD", name_of(held_type(dtype)))
      .with("HOLD", hold(dtype, "x"))
      .with("FMA", acc == DType::f64 ? "fma" : "fmaf")
      .with("RESULT", unhold(dtype, convert(acc, dtype, "total")))
      .kernel(p, blocks);
}

StockKernel weight_kernel(const work::Convolution& w) {
  const Layout &x = w.first, &dy = w.second;
  const work::Phase phase = work::window_phase(w.axes);
  const int64_t rows = dy.shape[1] / w.groups, channels = x.shape[1] / w.groups;
  const int64_t tiles = (rows + 15) / 16 * ((channels * phase.taps() + 15) / 16);
  if (w.result.numel() == 0) return {};
  const std::string_view type = memory_type(x.dtype);
  const work::KernelSums sums = work::kernel_sums(w);
  Parameters p;
  p.in(type, "x", 0).in(type, "dy", 1).out(type, "result", 2);
  p.add("batch", x.shape[0]).add("groups", w.groups).add("rows", rows).add("channels", channels);
  p.add("parts", sums.parts).add("width", sums.width);
  add_tensor(p, "x", work::ConvTensor(x));
  add_tensor(p, "dy", work::ConvTensor(dy));
  return filled(weight_text, x.dtype, p, phase, w.groups * tiles);
}

StockKernel gather_kernel(const work::Convolution& w, const work::Phase& phase) {
  const bool forward = w.direction == work::Direction::result;
  const Layout& weights = w.second;
  const int64_t outputs = weights.shape[0] / w.groups, batch = w.first.shape[0];
  const int64_t rows = forward ? outputs : weights.shape[1],
                channels = forward ? weights.shape[1] : outputs;
  const int64_t tiles = (rows + 15) / 16 * ((phase.positions() + 15) / 16);
  if (batch * w.groups * tiles == 0) return {};
  const std::string_view type = memory_type(w.first.dtype);
  Parameters p;
  p.in(type, "source", 0).in(type, "weights", 1).out(type, "target", 2);
  p.add("batch", batch).add("groups", w.groups).add("rows", rows).add("channels", channels);
  add_tensor(p, "source", work::ConvTensor(w.first));
  add_tensor(p, "target", work::ConvTensor(w.result));
  p.add("weight_group", outputs * weights.strides[0]);
  p.add("weight_row", weights.strides[forward ? 0 : 1]);
  p.add("weight_channel", weights.strides[forward ? 1 : 0]);
  p.add("weight_by", work::ConvTensor(weights).strides);
  return filled(gather_text, w.first.dtype, p, phase, batch * w.groups * tiles);
}

}  // namespace

std::vector<StockKernel> convolution_kernels(const work::Convolution& w) {
  if (w.direction == work::Direction::kernel) return {weight_kernel(w)};
  if (w.direction == work::Direction::result) return {gather_kernel(w, work::window_phase(w.axes))};
  std::vector<StockKernel> kernels;
  for (const work::Phase& phase : work::image_phases(w.axes))
    kernels.push_back(gather_kernel(w, phase));
  return kernels;
}

}  // namespace gradus::fusion::cuda
