#include "fusion/cuda/stock_elements.h"

#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/rule_text.h"
#include "fusion/cuda/stock_text.h"
#include "fusion/rules.h"

namespace gradus::fusion::cuda {

namespace {

// Where no divisor is zero.
constexpr std::string_view division_before = R"(struct Fault {
  u64 met, value;
};
// $NAME$
__device__ __forceinline__ i64 divided(i64 x, i64 y) {
$RULE$}
)";
constexpr std::string_view division_body = R"(    const $HELD$ x = $LOAD_X$, y = $LOAD_Y$;
    $HELD$ result = 0;
    if (y == 0)
      atomicExch(&work.faults->met, 1ull);
    else
      result = divided(x, y);
    work.target[item] = $RESULT$;
)";

constexpr std::string_view axis_before = R"(struct Axis {
$AXIS$};
)";

constexpr std::string_view axes_of_columns = R"(    const Axis& h = work.axes[0];
    const Axis& w = work.axes[1];
    Count left = item;
)";
constexpr std::string_view unfold_windows = R"(    const i64 j = i64(left % Count(w.windows));
    left /= Count(w.windows);
    const i64 i = i64(left % Count(h.windows));
    left /= Count(h.windows);
    const i64 s = i64(left % Count(w.kernel));
    left /= Count(w.kernel);
    const i64 r = i64(left % Count(h.kernel));
    left /= Count(h.kernel);
    const i64 channel = i64(left % Count(work.channels)), entry = i64(left / Count(work.channels));
    const i64 u = i * h.stride - h.padding + r * h.dilation;
    const i64 v = j * w.stride - w.padding + s * w.dilation;
    const bool inside = u >= 0 && u < h.image && v >= 0 && v < w.image;
    const i64 at = entry * work.by[0] + channel * work.by[1] + u * work.by[2] + v * work.by[3];
    work.target[item] = inside ? work.source[at] : $TYPE$(0);
)";

constexpr std::string_view fold_windows = R"(    const i64 v = i64(left % Count(w.image));
    left /= Count(w.image);
    const i64 u = i64(left % Count(h.image));
    left /= Count(h.image);
    const i64 channel = i64(left % Count(work.channels)), entry = i64(left / Count(work.channels));
    const i64 begin = entry * work.by[0] + channel * h.kernel * w.kernel * work.by[1];
    $SUM$ sum = 0;
    for (i64 r = 0; r < h.kernel; ++r) {
      const i64 down = u + h.padding - r * h.dilation, i = down / h.stride;
      if (down < 0 || down % h.stride != 0 || i >= h.windows) continue;
      for (i64 s = 0; s < w.kernel; ++s) {
        const i64 across = v + w.padding - s * w.dilation, j = across / w.stride;
        if (across < 0 || across % w.stride != 0 || j >= w.windows) continue;
        const i64 at = begin + (r * w.kernel + s) * work.by[1] + (i * w.windows + j) * work.by[2];
        sum = sum + $LOAD$;
      }
    }
    work.target[item] = $RESULT$;
)";

constexpr std::string_view max_pool_body = R"(    Count left = item;
    i64 start[3];
#pragma unroll
    for (i32 d = 2; d >= 0; --d) {
      const Count windows = Count(work.axes[d].windows), next = left / windows;
      start[d] = i64(left - next * windows) * work.axes[d].stride - work.axes[d].padding;
      left = next;
    }
    const i64 channel = i64(left % Count(work.channels)), entry = i64(left / Count(work.channels));
    const $TYPE$* const plane = work.x + entry * work.batch_by + channel * work.channel_by;
    bool any = false;
    i64 place = 0;
    $TYPE$ found = 0;
    $HELD$ best = 0;
    for (i64 r = 0; r < work.axes[0].kernel; ++r) {
      const i64 i = start[0] + r * work.axes[0].dilation;
      if (i < 0 || i >= work.axes[0].image) continue;
      for (i64 s = 0; s < work.axes[1].kernel; ++s) {
        const i64 j = start[1] + s * work.axes[1].dilation;
        if (j < 0 || j >= work.axes[1].image) continue;
        for (i64 t = 0; t < work.axes[2].kernel; ++t) {
          const i64 k = start[2] + t * work.axes[2].dilation;
          if (k < 0 || k >= work.axes[2].image) continue;
          const $TYPE$ element = plane[i * work.by[0] + j * work.by[1] + k * work.by[2]];
          const $HELD$ c = $HOLD$;
          if (any && !(c > best || c != c)) continue;
          any = true;
          best = c;
          found = element;
          place = (i * work.axes[1].image + j) * work.axes[2].image + k;
        }
      }
    }
    work.values[item] = found;
    work.places[item] = place;
)";

constexpr std::string_view random_body =
    R"(    const Count blocks = Count((work.count + 3) / 4), row = item / blocks;
    const i64* const given = work.key + i64(row) * work.keys_by;
    const u64 key = u64(given[0]);
    const u64 second = u64(given[work.key_by]);
    const u64 stream = work.by_block ? 0 : second;
    const u64 at = u64(item - row * blocks), block = (work.by_block ? second : 0) + at;
    u32 c0 = u32(block), c1 = u32(block >> 32), c2 = u32(stream), c3 = u32(stream >> 32);
    u32 k0 = u32(key), k1 = u32(key >> 32);
#pragma unroll
    for (i32 round = 0; round < 10; ++round) {
      const u64 a = u64(0xD2511F53u) * c0, b = u64(0xCD9E8D57u) * c2;
      c0 = u32(b >> 32) ^ c1 ^ k0;
      c1 = u32(b);
      c2 = u32(a >> 32) ^ c3 ^ k1;
      c3 = u32(a);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const u32 four[4] = {c0, c1, c2, c3};
    const i64 first = i64(at) * 4;
    i64* const target = work.target + i64(row) * work.count;
#pragma unroll
    for (i32 k = 0; k < 4; ++k)
      if (first + k < work.count) target[first + k] = i64(four[k]);
)";

constexpr std::string_view solve_body = R"(    const Count matrix = item / Count(work.m);
    const i64 j = i64(item - matrix * Count(work.m));
    const $A$* a = work.a + locate(matrix, work.size, work.a_by);
    const $B$* b = work.b + locate(matrix, work.size, work.b_by) + j * work.b_across;
    const i64 first = i64(matrix) * work.n * work.m + j;
    double* const y = work.solution + first;
    for (i64 above = 0; above < work.n; ++above) {
      const i64 i = $BACKWARDS$ ? work.n - 1 - above : above;
      double value = $LOAD_B$;
      for (i64 before = 0; before < above; ++before) {
        const i64 k = $BACKWARDS$ ? work.n - 1 - before : before;
        const $A$ factor = a[i * work.a_down + k * work.a_across];
        value = value - $FACTOR$ * y[k * work.m];
      }
      const $A$ factor = a[i * (work.a_down + work.a_across)];
      value = value / $FACTOR$;
      y[i * work.m] = value;
      work.target[first + i * work.m] = $RESULT$;
    }
)";

}  // namespace

StockKernel division_kernel(const work::Pointwise& w, int faults) {
  const work::PointwiseOperand &x = w.operands[0], &y = w.operands[1];
  Parameters p;
  p.in(memory_type(x.dtype), "x", 0).in(memory_type(y.dtype), "y", 1);
  p.out(memory_type(w.out), "target", 2).out("Fault", "faults", faults);
  p.add("size", w.shape).add("x_by", x.strides).add("y_by", y.strides);
  const Rule rule = rule_of(*w.call.op, w.compute);
  GRADUS_CHECK(rule);
  const DType computed = dtype_of(w.compute);
  const TextType held = held_type(computed);
  RuleText text;
  Emitted* const operands[] = {text.operand(held, "x"), text.operand(held, "y")};
  const RuleText::Written written = text.write(rule(text, operands, nullptr));
  std::string body;
  for (const std::string& l : written.lines) body += "  " + l + '\n';
  body += fmt::format("  return {};\n", written.result);
  auto load = [&](DType d, const char* name) {
    const std::string element = fmt::format("work.{0}[locate(item, work.size, work.{0}_by)]", name);
    return convert(d, computed, "(" + hold(d, element) + ")");
  };
  return StockText(for_each_item(division_body, division_before))
      .with("NAME", w.call.op->name)
      .with("RULE", body)
      .with("LOAD_X", load(x.dtype, "x"))
      .with("LOAD_Y", load(y.dtype, "y"))
      .with("HELD", name_of(held))
      .with("RESULT", unhold(w.out, convert(computed, w.out, "result")))
      .kernel_of_items(p, numel(w.shape));
}

StockKernel max_pool_kernel(const work::MaxPool& w) {
  const std::string_view type = memory_type(w.dtype);
  std::vector<Parameters> axes;
  for (const work::ConvAxis& axis : w.axes) axes.push_back(parameters_of(axis));
  Parameters p;
  p.in(type, "x", 0).out(type, "values", 1).out("i64", "places", 2).add("channels", w.channels);
  p.add("batch_by", w.x.batch_stride).add("channel_by", w.x.channel_stride).add("by", w.x.strides);
  p.add("Axis", "axes", axes);
  return StockText(for_each_item(max_pool_body, axis_before))
      .with("AXIS", axes[0])
      .with("TYPE", type)
      .with("HELD", name_of(held_type(w.dtype)))
      .with("HOLD", hold(w.dtype, "element"))
      .kernel_of_items(p, w.planes * w.windows);
}

StockKernel random_kernel(const work::RandomBits& w) {
  Parameters p;
  p.in("i64", "key", 0).out("i64", "target", 1).add("count", w.count).add("key_by", w.key_stride);
  p.add("keys_by", w.keys_stride).add("by_block", int64_t{w.by_block});
  return StockText(for_each_item(random_body)).kernel_of_items(p, w.keys * ((w.count + 3) / 4));
}

StockKernel solve_kernel(const work::Solve& w) {
  const Layout &a = w.a, &b = w.b;
  if (b.numel() == 0) return {};
  const size_t stacked = b.shape.size() - 2;
  const int64_t n = b.shape[stacked], m = b.shape[stacked + 1], count = b.numel() / (n * m);
  Sizes size, a_by, b_by;
  for (size_t d = 0; d < stacked; ++d) {
    size.push_back(b.shape[d]);
    a_by.push_back(a.strides[d]);
    b_by.push_back(b.strides[d]);
  }
  if (stacked == 0) size = {1}, a_by = b_by = {0};
  Parameters p;
  p.in(memory_type(a.dtype), "a", 0).in(memory_type(b.dtype), "b", 1);
  p.out(memory_type(b.dtype), "target", 2).out("double", "solution", work::Window::scratch);
  p.add("n", n).add("m", m);
  p.add("a_down", a.strides[stacked + (w.transpose ? 1 : 0)]);
  p.add("a_across", a.strides[stacked + (w.transpose ? 0 : 1)]);
  p.add("b_down", b.strides[stacked]).add("b_across", b.strides[stacked + 1]);
  p.add("size", size).add("a_by", a_by).add("b_by", b_by);
  auto load = [](DType d, const char* element) {
    return convert(d, DType::f64, "(" + hold(d, element) + ")");
  };
  return StockText(for_each_item(solve_body))
      .with("A", memory_type(a.dtype))
      .with("B", memory_type(b.dtype))
      .with("BACKWARDS", w.upper != w.transpose ? "true" : "false")
      .with("LOAD_B", load(b.dtype, "b[i * work.b_down]"))
      .with("FACTOR", load(a.dtype, "factor"))
      .with("RESULT", unhold(b.dtype, convert(DType::f64, b.dtype, "(value)")))
      .kernel_of_items(p, count * m);
}

StockKernel columns_kernel(const work::Columns& w) {
  const work::ConvAxis &high = w.axes[1], &wide = w.axes[2];
  const int64_t each =
      w.folds ? high.image * wide.image : high.kernel * wide.kernel * high.windows * wide.windows;
  const std::string_view type = w.folds ? memory_type(w.dtype) : bits_type(w.dtype);
  Sizes by{w.image.batch_stride, w.image.channel_stride, w.image.strides[1], w.image.strides[2]};
  if (w.folds) by = w.columns;
  const Parameters axes[] = {parameters_of(high), parameters_of(wide)};
  Parameters p;
  p.in(type, "source", 0).out(type, "target", 1);
  p.add("channels", w.channels).add("by", by).add("Axis", "axes", axes);
  const DType sum = dtype_of(compute_of(w.dtype));
  const std::string body =
      std::string(axes_of_columns) + std::string(w.folds ? fold_windows : unfold_windows);
  return StockText(for_each_item(body, axis_before))
      .with("AXIS", axes[0])
      .with("TYPE", type)
      .with("SUM", name_of(held_type(sum)))
      .with("LOAD", hold(w.dtype, "work.source[at]"))
      .with("RESULT", unhold(w.dtype, convert(sum, w.dtype, "(sum)")))
      .kernel_of_items(p, w.batch * w.channels * each);
}

}  // namespace gradus::fusion::cuda
