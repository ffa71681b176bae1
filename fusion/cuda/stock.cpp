#include "fusion/cuda/stock.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

// From one order into another, or one element everywhere.
constexpr std::string_view copy_body =
    R"(    work.target[locate(item, work.size, work.to)] = $VALUE$;
)";

constexpr std::string_view product_text = R"(
// Tiles of 16 by 16. Each element adds up k in order, in blocks of 256.
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  __shared__ $HELD$ a_tile[16][17], b_tile[16][17];
  const u32 row = threadIdx.x >> 4, column = threadIdx.x & 15;
  const i64 down = (work.m + 15) / 16, across = (work.n + 15) / 16;
  for (i64 item = blockIdx.x; item < work.batch * down * across; item += gridDim.x) {
    const i64 entry = item / (down * across), tile = item - entry * down * across;
    const i64 i = tile / across * 16 + row, j = tile % across * 16 + column;
    const $TYPE$* a = work.a + locate(entry, work.size, work.a_by);
    const $TYPE$* b = work.b + locate(entry, work.size, work.b_by);
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

constexpr std::string_view triangle_body = R"(    const Count above = item / Count(work.columns);
    const i64 column = i64(item - above * Count(work.columns)), row = i64(above % Count(work.rows));
    const i64 at = locate(item, work.size, work.by);
    work.target[item] = column - row $KEEPS$ work.offset ? work.source[at] : $TYPE$(0);
)";

// Runs along a dimension, element after element.
constexpr std::string_view scan_body =
    R"(    const $A$* a = work.a + locate(item, work.size, work.a_of);
    const $B$* b = work.b + locate(item, work.size, work.b_of);
    const i64 outer = i64(item) / work.inner, inner = i64(item) - outer * work.inner;
    $STATE$ s = $IDENTITY$;
    for (i64 k = 0; k < work.length; ++k) {
      const i64 i = $REVERSE$ ? work.length - 1 - k : k;
      const $STATE$ u = $LOAD_A$, v = $LOAD_B$;
      const $STATE$ next = $NEXT$;
      const $STATE$ y = $EXCLUSIVE$ ? s : next;
      work.result[(outer * work.length + i) * work.inner + inner] = $RESULT$;
      s = next;
    }
)";

constexpr std::string_view range_body = R"(    const $NUMBER$ x = $VALUE$;
    work.target[item] = $RESULT$;
)";

}  // namespace

StockKernel copy_kernel(const work::Copy& move) {
  const DType from = move.source.dtype, to = move.target.dtype;
  const bool converts = !move.fills && from != to;
  const auto source = move.fills ? std::optional<Place>() : Place(move.source);
  int64_t value = 0;
  if (move.fills) std::memcpy(&value, move.pattern.data(), size_of(to));
  Parameters p;
  p.in(converts ? memory_type(from) : bits_type(to), "source", source);
  p.out(converts ? memory_type(to) : bits_type(to), "target", move.target);
  p.add("value", value).add("size", move.shape);
  p.add("from", move.source.strides).add("to", move.target.strides);
  std::string element = "work.source[locate(item, work.size, work.from)]";
  if (move.fills) element = fmt::format("{}(work.value)", bits_type(to));
  if (converts) element = unhold(to, convert(from, to, "(" + hold(from, element) + ")"));
  return StockText(for_each_item(copy_body))
      .with("VALUE", element)
      .kernel_of_items(p, numel(move.shape));
}

StockKernel product_kernel(work::Gemm g) {
  using Batch = work::Gemm::Batch;
  if (g.batch.empty()) g.batch.push_back({1, 0, 0});
  int64_t batch = 1;
  for (const Batch& b : g.batch) batch *= b.size;
  if (batch * g.m * g.n == 0) return {};
  const bool floating = is_floating(g.dtype);
  const DType acc = dtype_of(compute_of(g.dtype));
  const std::string_view type = memory_type(g.dtype);
  Parameters p;
  p.in(type, "a", 0).in(type, "b", 1).out(type, "c", 2);
  p.add("batch", batch).add("m", g.m).add("n", g.n).add("k", g.k);
  p.add("a_row", g.a_row).add("a_column", g.a_column);
  p.add("b_row", g.b_row).add("b_column", g.b_column);
  p.add("size", each(g.batch, &Batch::size));
  p.add("a_by", each(g.batch, &Batch::a_stride)).add("b_by", each(g.batch, &Batch::b_stride));
  return StockText(product_text)
      .with("TYPE", type)
      .with("HELD", name_of(held_type(g.dtype)))
      .with("HOLD", hold(g.dtype, "x"))
      .with("ADD", floating ? "total + sum" : "i64(u64(total) + u64(sum))")
      .with("MULTIPLY", !floating           ? "i64(u64(sum) + u64(u) * u64(v))"
                        : acc == DType::f64 ? "fma(u, v, sum)"
                                            : "fmaf(u, v, sum)")
      .with("RESULT", unhold(g.dtype, convert(acc, g.dtype, "total")))
      .kernel(p, batch * ((g.m + 15) / 16) * ((g.n + 15) / 16));
}

StockKernel triangle_kernel(const work::Triangle& w) {
  const auto rank = static_cast<size_t>(w.x.rank());
  const int64_t rows = w.x.shape[rank - 2], columns = w.x.shape[rank - 1];
  const std::string_view type = bits_type(w.x.dtype);
  Parameters p;
  p.in(type, "source", 0).out(type, "target", 1).add("rows", rows).add("columns", columns);
  p.add("offset", std::clamp(w.diagonal, -rows - 1, columns + 1));
  p.add("size", w.x.shape).add("by", w.x.strides);
  return StockText(for_each_item(triangle_body))
      .with("TYPE", type)
      .with("KEEPS", w.lower ? "<=" : ">=")
      .kernel_of_items(p, w.x.numel());
}

StockKernel scan_kernel(const work::Scan& w) {
  const bool two = w.in.size() > 1;
  const Layout &a = w.in[0], &b = w.in[two ? 1 : 0];
  if (a.numel() == 0) return {};
  const auto dim = static_cast<size_t>(w.dim);
  int64_t lines = 1, inner = 1;
  Sizes size{1}, a_of{0}, b_of{0};
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (d == dim) continue;
    size.push_back(a.shape[d]);
    a_of.push_back(a.strides[d]);
    b_of.push_back(b.strides[d]);
    lines *= a.shape[d];
    if (d > dim) inner *= a.shape[d];
  }
  const bool scalar = a.shape.empty();
  Parameters p;
  p.in(memory_type(a.dtype), "a", 0).in(memory_type(b.dtype), "b", two ? 1 : 0);
  p.out(memory_type(w.out), "result", static_cast<int>(w.in.size()));
  p.add("length", scalar ? 1 : a.shape[dim]).add("inner", inner);
  p.add("a_by", scalar ? 0 : a.strides[dim]).add("b_by", scalar ? 0 : b.strides[dim]);
  p.add("size", size).add("a_of", a_of).add("b_of", b_of);

  const DType state = is_floating(w.out) ? DType::f64 : DType::i64;
  const bool floating = state == DType::f64;
  auto load = [&](DType d, const char* element) {
    return convert(d, state, "(" + hold(d, element) + ")");
  };
  const std::string_view next =
      w.next == work::ScanStep::sum    ? (floating ? "s + u" : "i64(u64(s) + u64(u))")
      : w.next == work::ScanStep::prod ? (floating ? "s * u" : "i64(u64(s) * u64(u))")
                                       : (floating ? "u * s + v" : "i64(u64(u) * u64(s) + u64(v))");
  return StockText(for_each_item(scan_body))
      .with("A", memory_type(a.dtype))
      .with("B", memory_type(b.dtype))
      .with("STATE", name_of(held_type(state)))
      .with("IDENTITY", w.next == work::ScanStep::prod ? "1" : "0")
      .with("REVERSE", w.reverse ? "true" : "false")
      .with("EXCLUSIVE", w.exclusive ? "true" : "false")
      .with("LOAD_A", load(a.dtype, "a[i * work.a_by]"))
      .with("LOAD_B", two ? load(b.dtype, "b[i * work.b_by]") : "0")
      .with("NEXT", next)
      .with("RESULT", unhold(w.out, convert(state, w.out, "y")))
      .kernel_of_items(p, lines);
}

StockKernel range_kernel(const work::Range& w) {
  Parameters p;
  p.out(memory_type(w.dtype), "target", 0).add("start", w.start).add("step", w.step);
  p.add("first", std::bit_cast<int64_t>(w.first.value));
  p.add("by", std::bit_cast<int64_t>(w.by.value));
  const std::string of_floats =
      "__longlong_as_double(work.first) + double(item) * __longlong_as_double(work.by)";
  return StockText(for_each_item(range_body))
      .with("NUMBER", w.integral ? "i64" : "double")
      .with("VALUE", w.integral ? "i64(u64(work.start) + u64(item) * u64(work.step))" : of_floats)
      .with("RESULT", unhold(w.dtype, convert(w.integral ? DType::i64 : DType::f64, w.dtype, "x")))
      .kernel_of_items(p, w.count);
}

}  // namespace gradus::fusion::cuda
