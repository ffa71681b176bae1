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
    const i64 begin = locate(there ? output : i64(0), work.kept_size, work.kept_by);
    const i64 end = there ? min(chunk * 1024 + 1024, work.count) : 0;
    R::T sum = R::identity();
    for (i64 r = chunk * 1024 + lane; r < end; r += 16) {
      const i64 at = begin + locate(r, work.reduced_size, work.reduced_by);
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

// Neighbouring partials combine, level by level; an odd last one passes as it is.
constexpr std::string_view fold_body = R"(    typedef $NAME$ R;
    R::T* const partial = work.partials + item;
    for (i64 n = work.chunks; n > 1; n = (n + 1) / 2) {
      for (i64 i = 0; i < n / 2; ++i)
        partial[i * work.items] =
            R::combine(partial[2 * i * work.items], partial[(2 * i + 1) * work.items]);
      if (n & 1) partial[n / 2 * work.items] = partial[(n - 1) * work.items];
    }
    const R::T result = partial[0];
    work.target[item] = $RESULT$;
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
  p.add("chunks", chunks_of(w));
  return StockText(for_each_item(fold_body, reducer.definition))
      .with("NAME", reducer.name)
      .with("RESULT", reduced(w))
      .kernel_of_items(p, w.outputs);
}

}  // namespace gradus::fusion::cuda
