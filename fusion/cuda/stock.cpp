#include "fusion/cuda/stock.h"

#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/reducer_text.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view copy_text = R"(
// Copies elements from one order into another, or writes one everywhere.
typedef $COUNT$ Count;
struct Work {
  const $FROM$* source;
  $TO$* target;
  i64 items, value;
  i64 size[$RANK$], from[$RANK$], to[$RANK$];
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items); item += step) {
    Count left = item;
    i64 from = 0, to = 0;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const Count size = Count(work.size[d]), next = d ? left / size : 0, i = left - next * size;
      from += i64(i) * work.from[d];
      to += i64(i) * work.to[d];
      left = next;
    }
    work.target[to] = $VALUE$;
  }
}
)";

constexpr std::string_view reduce_text = R"($REDUCER$
// Chunks of 1024 elements, sixteen lanes for each: of sixteen outputs at a time.
struct Work {
  const $FROM$* source;
  $TO$* target;
  i64 outputs, count, chunks;
  i64 kept_size[$KEPT$], kept_by[$KEPT$], reduced_size[$REDUCED$], reduced_by[$REDUCED$];
};

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
  $NAME$::T* partials;
  $TO$* target;
  i64 outputs, chunks;
};

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

constexpr std::string_view product_text = R"(
// Tiles of 16 by 16. Each element adds up k in order, in blocks of 256.
struct Work {
  const $TYPE$* a;
  const $TYPE$* b;
  $TYPE$* c;
  i64 batch, m, n, k, a_row, a_column, b_row, b_column;
  i64 size[$RANK$], a_by[$RANK$], b_by[$RANK$];
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const u32 row = threadIdx.x >> 4, column = threadIdx.x & 15;
  const i64 down = (work.m + 15) / 16, across = (work.n + 15) / 16;
  for (i64 item = blockIdx.x; item < work.batch * down * across; item += gridDim.x) {
    const i64 entry = item / (down * across), tile = item - entry * down * across;
    const i64 i = tile / across * 16 + row, j = tile % across * 16 + column;
    const $TYPE$* a = work.a;
    const $TYPE$* b = work.b;
    i64 left = entry;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const i64 next = left / work.size[d];
      a += (left - next * work.size[d]) * work.a_by[d];
      b += (left - next * work.size[d]) * work.b_by[d];
      left = next;
    }
    $HELD$ total = 0, sum = 0;
    for (i64 k = 0; k < work.k; k += 16) {
      if (k && k % 256 == 0) {
        total = $ADD$;
        sum = 0;
      }
      const i64 k_a = k + column, k_b = k + row;
      a_tile[row][column] = 0;
      b_tile[row][column] = 0;
      if (i < work.m && k_a < work.k) {
        const $TYPE$ x = a[i * work.a_row + k_a * work.a_column];
        a_tile[row][column] = $HOLD$;
      }
      if (j < work.n && k_b < work.k) {
        const $TYPE$ x = b[k_b * work.b_row + j * work.b_column];
        b_tile[row][column] = $HOLD$;
      }
      __syncthreads();
#pragma unroll
      for (u32 p = 0; p < 16; ++p) {
        const $HELD$ u = a_tile[row][p], v = b_tile[p][column];
        sum = $MULTIPLY$;
      }
      __syncthreads();
    }
    total = $ADD$;
    if (i < work.m && j < work.n) work.c[(entry * work.m + i) * work.n + j] = $RESULT$;
  }
}
)";

constexpr std::string_view triangle_text = R"(
// Keeps a triangle of each matrix.
typedef $COUNT$ Count;
struct Work {
  const $TYPE$* source;
  $TYPE$* target;
  i64 items, rows, columns, diagonal;
  i64 size[$RANK$], by[$RANK$];
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items); item += step) {
    const Count above = item / Count(work.columns);
    const i64 column = i64(item - above * Count(work.columns)), row = i64(above % Count(work.rows));
    Count left = item;
    i64 at = 0;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const Count size = Count(work.size[d]), next = left / size;
      at += i64(left - next * size) * work.by[d];
      left = next;
    }
    work.target[item] = column - row $KEEPS$ work.diagonal ? work.source[at] : $TYPE$(0);
  }
}
)";

constexpr std::string_view scan_text = R"(
// Runs along a dimension, element after element.
struct Work {
  const $A$* a;
  const $B$* b;
  $OUT$* result;
  i64 lines, length, inner, a_by, b_by;
  i64 size[$RANK$], a_of[$RANK$], b_of[$RANK$];
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const i64 stride = i64(gridDim.x) * 256;
  for (i64 line = i64(blockIdx.x) * 256 + threadIdx.x; line < work.lines; line += stride) {
    const $A$* a = work.a;
    const $B$* b = work.b;
    i64 left = line;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const i64 next = left / work.size[d], i = left - next * work.size[d];
      a += i * work.a_of[d];
      b += i * work.b_of[d];
      left = next;
    }
    const i64 outer = line / work.inner, inner = line - outer * work.inner;
    $STATE$ s = $IDENTITY$;
    for (i64 k = 0; k < work.length; ++k) {
      const i64 i = $REVERSE$ ? work.length - 1 - k : k;
      const $STATE$ u = $LOAD_A$, v = $LOAD_B$;
      const $STATE$ next = $NEXT$;
      const $STATE$ y = $EXCLUSIVE$ ? s : next;
      work.result[(outer * work.length + i) * work.inner + inner] = $RESULT$;
      s = next;
    }
  }
}
)";

constexpr std::string_view range_text = R"(
typedef $COUNT$ Count;
struct Work {
  $TYPE$* target;
  i64 items, start, step, first, by;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count stride = Count(gridDim.x) * 256;
  for (Count i = Count(blockIdx.x) * 256 + threadIdx.x; i < Count(work.items); i += stride) {
    const $NUMBER$ x = $VALUE$;
    work.target[i] = $RESULT$;
  }
}
)";

DType accumulator_of(const work::Reduce& w) {
  const bool logical = w.reducer == work::Reducer::all || w.reducer == work::Reducer::any;
  return logical ? DType::boolean : dtype_of(compute_of(w.in));
}

std::string reduced(const work::Reduce& w) {
  const DType acc = accumulator_of(w);
  return unhold(w.out, convert(acc, w.out, acc == DType::boolean ? "(result != 0)" : "result"));
}

}  // namespace

Source copy_source(const work::Copy& move, bool wide) {
  const DType from = move.source.dtype, to = move.target.dtype;
  const bool converts = !move.fills && from != to;
  StockText text(copy_text);
  text.with("COUNT", count_type(wide)).with("RANK", static_cast<int>(move.shape.size()));
  text.with("FROM", converts ? memory_type(from) : bits_type(to));
  text.with("TO", converts ? memory_type(to) : bits_type(to));
  if (move.fills)
    text.with("VALUE", fmt::format("{}(work.value)", bits_type(to)));
  else if (converts)
    text.with("VALUE", unhold(to, convert(from, to, "(" + hold(from, "work.source[from]") + ")")));
  else
    text.with("VALUE", "work.source[from]");
  return text.source();
}

Source reduce_source(const work::Reduce& w, bool one_chunk) {
  const DType acc = accumulator_of(w);
  const ReducerText reducer = reducer_text(w.reducer, acc);
  // Neighbouring threads read what lies together.
  const bool rows = w.reduced.back().stride == 1;
  return StockText(reduce_text)
      .with("REDUCER", reducer.definition)
      .with("NAME", reducer.name)
      .with("FROM", memory_type(w.in))
      .with("TO", one_chunk ? memory_type(w.out) : accumulator_type(acc))
      .with("KEPT", static_cast<int>(w.kept.size()))
      .with("REDUCED", static_cast<int>(w.reduced.size()))
      .with("LANE", rows ? "threadIdx.x & 15" : "threadIdx.x >> 4")
      .with("COLUMN", rows ? "threadIdx.x >> 4" : "threadIdx.x & 15")
      .with("VALUE", convert(w.in, acc, "(" + hold(w.in, "work.source[at]") + ")"))
      .with("RESULT", one_chunk ? reduced(w) : "result")
      .source();
}

Source fold_source(const work::Reduce& w) {
  const ReducerText reducer = reducer_text(w.reducer, accumulator_of(w));
  return StockText(fold_partials_text)
      .with("REDUCER", reducer.definition)
      .with("NAME", reducer.name)
      .with("TO", memory_type(w.out))
      .with("RESULT", reduced(w))
      .source();
}

Source product_source(DType dtype, int batch_rank) {
  const bool floating = is_floating(dtype);
  const DType acc = dtype_of(compute_of(dtype));
  return StockText(product_text)
      .with("TYPE", memory_type(dtype))
      .with("HELD", name_of(held_type(dtype)))
      .with("HOLD", hold(dtype, "x"))
      .with("RANK", batch_rank)
      .with("ADD", floating ? "total + sum" : "i64(u64(total) + u64(sum))")
      .with("MULTIPLY", !floating           ? "i64(u64(sum) + u64(u) * u64(v))"
                        : acc == DType::f64 ? "fma(u, v, sum)"
                                            : "fmaf(u, v, sum)")
      .with("RESULT", unhold(dtype, convert(acc, dtype, "total")))
      .source();
}

Source triangle_source(const work::Triangle& w, bool wide) {
  return StockText(triangle_text)
      .with("COUNT", count_type(wide))
      .with("TYPE", bits_type(w.x.dtype))
      .with("RANK", w.x.rank())
      .with("KEEPS", w.lower ? "<=" : ">=")
      .source();
}

Source scan_source(const work::Scan& w, int rank) {
  const DType state = is_floating(w.out) ? DType::f64 : DType::i64;
  const bool two = w.in.size() > 1, floating = state == DType::f64;
  auto load = [&](size_t k, const char* element) {
    const DType d = w.in[k].dtype;
    return convert(d, state, "(" + hold(d, element) + ")");
  };
  const std::string_view next =
      w.next == work::ScanStep::sum    ? (floating ? "s + u" : "i64(u64(s) + u64(u))")
      : w.next == work::ScanStep::prod ? (floating ? "s * u" : "i64(u64(s) * u64(u))")
                                       : (floating ? "u * s + v" : "i64(u64(u) * u64(s) + u64(v))");
  return StockText(scan_text)
      .with("A", memory_type(w.in[0].dtype))
      .with("B", memory_type(w.in[two ? 1 : 0].dtype))
      .with("OUT", memory_type(w.out))
      .with("RANK", rank)
      .with("STATE", name_of(held_type(state)))
      .with("IDENTITY", w.next == work::ScanStep::prod ? "1" : "0")
      .with("REVERSE", w.reverse ? "true" : "false")
      .with("EXCLUSIVE", w.exclusive ? "true" : "false")
      .with("LOAD_A", load(0, "a[i * work.a_by]"))
      .with("LOAD_B", two ? load(1, "b[i * work.b_by]") : "0")
      .with("NEXT", next)
      .with("RESULT", unhold(w.out, convert(state, w.out, "y")))
      .source();
}

Source range_source(const work::Range& w, bool wide) {
  const std::string of_floats =
      "__longlong_as_double(work.first) + double(i) * "
      "__longlong_as_double(work.by)";
  return StockText(range_text)
      .with("COUNT", count_type(wide))
      .with("TYPE", memory_type(w.dtype))
      .with("NUMBER", w.integral ? "i64" : "double")
      .with("VALUE", w.integral ? "i64(u64(work.start) + u64(i) * u64(work.step))" : of_floats)
      .with("RESULT", unhold(w.dtype, convert(w.integral ? DType::i64 : DType::f64, w.dtype, "x")))
      .source();
}

}  // namespace gradus::fusion::cuda
