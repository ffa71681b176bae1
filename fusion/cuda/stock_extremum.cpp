#include "fusion/cuda/stock_extremum.h"

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view extremum_text = R"(
struct Work {
$FIELDS$};

struct Best {
  $HELD$ value;
  i64 place;  // -1: none
};
__device__ __forceinline__ bool better($HELD$ a, $HELD$ b) {
  return a $BETTER$ b || (a != a && b == b);
}
// The first NaN, else the first of the greatest or least.
__device__ __forceinline__ Best chosen(Best a, Best b) {
  if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
  if (better(a.value, b.value)) return a;
  if (better(b.value, a.value)) return b;
  return a.place < b.place ? a : b;
}


extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ Best parts[16][17];
  const u32 lane = threadIdx.x & 15, column = threadIdx.x >> 4;
  const i64 tiles = (work.outputs + 15) / 16;
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 output = tile * 16 + column;
    const bool there = output < work.outputs;
    const i64 begin = locate(there ? output : i64(0), work.kept_size, work.kept_by);
    Best best;
    best.value = 0;
    best.place = -1;
    for (i64 r = lane; r < (there ? work.count : 0); r += 16) {
      const i64 at = begin + locate(r, work.reduced_size, work.reduced_by);
      Best here;
      here.value = $VALUE$;
      here.place = r;
      best = chosen(best, here);
    }
    parts[lane][column] = best;
    __syncthreads();
#pragma unroll
    for (u32 width = 8; width > 0; width /= 2) {
      if (lane < width)
        parts[lane][column] = chosen(parts[lane][column], parts[lane + width][column]);
      __syncthreads();
    }
    if (lane == 0 && there) {
      const i64 place = parts[0][column].place;
      work.places[output] = place;
      if (work.values)
        work.values[output] = work.x[begin + locate(place, work.reduced_size, work.reduced_by)];
    }
    __syncthreads();
  }
}
)";

}  // namespace

StockKernel extremum_kernel(const work::Extremum& w) {
  const DType held = dtype_of(compute_of(w.dtype));
  const std::string_view type = memory_type(w.dtype);
  Parameters p;
  p.in(type, "x", 0);
  p.out(type, "values", w.value < 0 ? std::optional<Place>() : Place(1 + w.value));
  p.out("i64", "places", 1 + w.index).add("outputs", w.outputs).add("count", w.count);
  add_axes(p, w.kept, w.reduced);
  return StockText(extremum_text)
      .with("HELD", name_of(held_type(held)))
      .with("BETTER", w.greatest ? ">" : "<")
      .with("VALUE", convert(w.dtype, held, "(" + hold(w.dtype, "work.x[at]") + ")"))
      .kernel(p, (w.outputs + 15) / 16);
}

}  // namespace gradus::fusion::cuda
