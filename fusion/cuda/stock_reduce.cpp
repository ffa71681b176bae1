// Reductions of any dimensions, as two kernels.
#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/reducer_text.h"
#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view reduce_text = R"($REDUCER$
// Chunks of 1024 elements, sixteen lanes for each: of sixteen outputs at a time.
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  typedef $NAME$ R;
  __shared__ R::T parts[16][17];
  const u32 lane = $LANE$, column = $COLUMN$;
  const i64 tiles = (work.outputs + 15) / 16;
  for (i64 item = blockIdx.x; item < tiles * work.chunks; item += gridDim.x) {
    const i64 chunk = item / tiles, output = (item - chunk * tiles) * 16 + column;
    const bool there = output < work.outputs;
    i64 begin = 0, left = there ? output : 0;
#pragma unroll
    for (i32 d = $KEPT$ - 1; d >= 0; --d) {
      const i64 next = d ? left / work.kept_size[d] : 0;
      begin += (left - next * work.kept_size[d]) * work.kept_by[d];
      left = next;
    }
    const i64 end = there ? min(chunk * 1024 + 1024, work.count) : 0;
    R::T sum = R::identity();
    for (i64 r = chunk * 1024 + lane; r < end; r += 16) {
      i64 at = begin;
      left = r;
#pragma unroll
      for (i32 d = $REDUCED$ - 1; d >= 0; --d) {
        const i64 next = d ? left / work.reduced_size[d] : 0;
        at += (left - next * work.reduced_size[d]) * work.reduced_by[d];
        left = next;
      }
      sum = R::combine(sum, $VALUE$);
    }
    parts[lane][column] = sum;
    __syncthreads();
#pragma unroll
    for (u32 width = 8; width > 0; width /= 2) {
      if (lane < width)
        parts[lane][column] = R::combine(parts[lane][column], parts[lane + width][column]);
      __syncthreads();
    }
    if (lane == 0 && there) {
      const R::T result = parts[0][column];
      work.target[chunk * work.outputs + output] = $RESULT$;
    }
    __syncthreads();
  }
}
)";

constexpr std::string_view fold_partials_text = R"($REDUCER$
// Neighbouring partials combine, level by level; an odd last one passes as it is.
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  typedef $NAME$ R;
  const i64 stride = i64(gridDim.x) * 256;
  for (i64 o = i64(blockIdx.x) * 256 + threadIdx.x; o < work.outputs; o += stride) {
    R::T* const partial = work.partials + o;
    for (i64 n = work.chunks; n > 1; n = (n + 1) / 2) {
      for (i64 i = 0; i < n / 2; ++i)
        partial[i * work.outputs] =
            R::combine(partial[2 * i * work.outputs], partial[(2 * i + 1) * work.outputs]);
      if (n & 1) partial[n / 2 * work.outputs] = partial[(n - 1) * work.outputs];
    }
    const R::T result = partial[0];
    work.target[o] = $RESULT$;
  }
}
)";

DType accumulator_of(const work::Reduce& w) {
  const bool logical = w.reducer == work::Reducer::all || w.reducer == work::Reducer::any;
  return logical ? DType::boolean : dtype_of(compute_of(w.in));
}

int64_t chunks_of(const work::Reduce& w) {
  return std::max<int64_t>(1, (w.count + work::reduce_chunk - 1) / work::reduce_chunk);
}

std::string reduced(const work::Reduce& w) {
  const DType acc = accumulator_of(w);
  return unhold(w.out, convert(acc, w.out, acc == DType::boolean ? "(result != 0)" : "result"));
}

}  // namespace

int64_t partial_bytes(const work::Reduce& w) {
  return chunks_of(w) == 1 ? 0 : w.outputs * chunks_of(w) * 8;
}

void add_axes(Parameters& p, const work::Axes& kept, const work::Axes& reduced) {
  p.add("kept_size", each(kept, &work::Axis::size)).add("kept_by", each(kept, &work::Axis::stride));
  p.add("reduced_size", each(reduced, &work::Axis::size));
  p.add("reduced_by", each(reduced, &work::Axis::stride));
}

StockKernel reduce_kernel(const work::Reduce& w) {
  if (w.outputs == 0) return {};
  const DType acc = accumulator_of(w);
  const ReducerText reducer = reducer_text(w.reducer, acc);
  const int64_t chunks = chunks_of(w);
  const bool one = chunks == 1;
  Parameters p;
  p.in(memory_type(w.in), "source", 0);
  p.out(one ? memory_type(w.out) : accumulator_type(acc), "target",
        one ? 1 : work::Window::scratch);
  p.add("outputs", w.outputs).add("count", w.count).add("chunks", chunks);
  add_axes(p, w.kept, w.reduced);
  // Neighbouring threads read what lies together.
  const bool rows = w.reduced.back().stride == 1;
  return StockText(reduce_text)
      .with("REDUCER", reducer.definition)
      .with("NAME", reducer.name)
      .with("KEPT", static_cast<int>(w.kept.size()))
      .with("REDUCED", static_cast<int>(w.reduced.size()))
      .with("LANE", rows ? "threadIdx.x & 15" : "threadIdx.x >> 4")
      .with("COLUMN", rows ? "threadIdx.x >> 4" : "threadIdx.x & 15")
      .with("VALUE", convert(w.in, acc, "(" + hold(w.in, "work.source[at]") + ")"))
      .with("RESULT", one ? reduced(w) : "result")
      .kernel(p, (w.outputs + 15) / 16 * chunks);
}

StockKernel fold_kernel(const work::Reduce& w) {
  if (partial_bytes(w) == 0) return {};
  const ReducerText reducer = reducer_text(w.reducer, accumulator_of(w));
  Parameters p;
  p.out(reducer.name + "::T", "partials", work::Window::scratch)
      .out(memory_type(w.out), "target", 1);
  p.add("outputs", w.outputs).add("chunks", chunks_of(w));
  return StockText(fold_partials_text)
      .with("REDUCER", reducer.definition)
      .with("NAME", reducer.name)
      .with("RESULT", reduced(w))
      .kernel(p, blocks_of(w.outputs));
}

}  // namespace gradus::fusion::cuda
