#include "fusion/cuda/stock_convolution.h"

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view phase_text = R"(
struct Phase {
  i64 first[3], step[3], count[3], tap_first[3], tap_step[3], taps[3];
  i64 offset[3], move[3], tap_move[3], source_size[3];
  __device__ __forceinline__ i64 taps_in_all() const { return taps[0] * taps[1] * taps[2]; }
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
  const $TYPE$* source;
  const $TYPE$* weights;
  $TYPE$* target;
  i64 batch, groups, rows, channels;
  i64 source_batch, source_channel, source_by[3];
  i64 target_batch, target_channel, target_by[3];
  i64 weight_group, weight_row, weight_channel, weight_by[3];
  Phase phase;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const Phase& phase = work.phase;
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
  const $TYPE$* x;
  const $TYPE$* dy;
  $TYPE$* result;
  i64 batch, groups, rows, channels, parts, width;
  i64 x_batch, x_channel, x_by[3];
  i64 dy_batch, dy_channel, dy_by[3];
  Phase phase;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const Phase& phase = work.phase;
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

Source filled(std::string_view text, DType dtype) {
  const DType acc = dtype_of(compute_of(dtype));
  return StockText(std::string(phase_text) + std::string(text))
      .with("TYPE", memory_type(dtype))
      .with("HELD", name_of(held_type(dtype)))
      .with("HOLD", hold(dtype, "x"))
      .with("FMA", acc == DType::f64 ? "fma" : "fmaf")
      .with("RESULT", unhold(dtype, convert(acc, dtype, "total")))
      .source();
}

}  // namespace

Source gather_source(DType dtype) { return filled(gather_text, dtype); }
Source weight_source(DType dtype) { return filled(weight_text, dtype); }

}  // namespace gradus::fusion::cuda
