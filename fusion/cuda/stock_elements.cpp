#include "fusion/cuda/stock_elements.h"

#include <fmt/format.h>

#include "fusion/cuda/convert.h"
#include "fusion/cuda/rule_text.h"
#include "fusion/cuda/stock_text.h"
#include "fusion/rules.h"

namespace gradus::fusion::cuda {

namespace {

constexpr std::string_view division_text = R"(
// $NAME$, where no divisor is zero.
typedef $COUNT$ Count;
struct Fault {
  u64 met, value;
};
struct Work {
$FIELDS$};

__device__ __forceinline__ i64 divided(i64 x, i64 y) {
$RULE$}

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items); item += step) {
    Count left = item;
    i64 x_at = 0, y_at = 0;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const Count size = Count(work.size[d]), next = d ? left / size : 0;
      const i64 i = i64(left - next * size);
      x_at += i * work.x_by[d];
      y_at += i * work.y_by[d];
      left = next;
    }
    const i64 x = $LOAD_X$, y = $LOAD_Y$;
    i64 result = 0;
    if (y == 0)
      atomicExch(&work.faults->met, 1ull);
    else
      result = divided(x, y);
    work.target[item] = $RESULT$;
  }
}
)";

constexpr std::string_view columns_text = R"(
typedef $COUNT$ Count;
struct Axis {
$AXIS$};
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Axis& h = work.axes[0];
  const Axis& w = work.axes[1];
  const Count step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items); item += step) {
    Count left = item;
$BODY$  }
}
)";

constexpr std::string_view unfold_windows_text = R"(    const i64 j = i64(left % Count(w.windows));
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

constexpr std::string_view fold_windows_text = R"(    const i64 v = i64(left % Count(w.image));
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

constexpr std::string_view max_pool_text = R"(
typedef $COUNT$ Count;
struct Axis {
$AXIS$};
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256;
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < Count(work.items); item += step) {
    Count left = item;
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
  }
}
)";

constexpr std::string_view random_text = R"(
typedef $COUNT$ Count;
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256, items = Count((work.count + 3) / 4);
  const u64 key = u64(work.key[0]), stream = u64(work.key[work.key_by]);
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < items; item += step) {
    u32 c0 = u32(item), c1 = u32(u64(item) >> 32), c2 = u32(stream), c3 = u32(stream >> 32);
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
    const i64 first = i64(item) * 4;
#pragma unroll
    for (i32 k = 0; k < 4; ++k)
      if (first + k < work.count) work.target[first + k] = i64(four[k]);
  }
}
)";

constexpr std::string_view solve_text = R"(
typedef $COUNT$ Count;
struct Work {
$FIELDS$};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Count step = Count(gridDim.x) * 256, items = Count(work.count) * Count(work.m);
  for (Count item = Count(blockIdx.x) * 256 + threadIdx.x; item < items; item += step) {
    const Count matrix = item / Count(work.m);
    const i64 j = i64(item - matrix * Count(work.m));
    const $A$* a = work.a;
    const $B$* b = work.b + j * work.b_across;
    Count left = matrix;
#pragma unroll
    for (i32 d = $RANK$ - 1; d >= 0; --d) {
      const Count size = Count(work.size[d]), next = d ? left / size : 0;
      const i64 i = i64(left - next * size);
      a += i * work.a_by[d];
      b += i * work.b_by[d];
      left = next;
    }
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
  }
}
)";

}  // namespace

StockKernel division_kernel(const work::Pointwise& w, int faults) {
  const int64_t items = numel(w.shape);
  if (items == 0) return {};
  const work::PointwiseOperand &x = w.operands[0], &y = w.operands[1];
  Parameters p;
  p.in(memory_type(x.dtype), "x", 0).in(memory_type(y.dtype), "y", 1);
  p.out(memory_type(w.out), "target", 2).out("Fault", "faults", faults);
  p.add("items", items).add("size", w.shape).add("x_by", x.strides).add("y_by", y.strides);
  const Rule rule = rule_of(*w.call.op, Compute::i64);
  GRADUS_CHECK(rule);
  RuleText text;
  Emitted* const operands[] = {text.operand(TextType::i64, "x"), text.operand(TextType::i64, "y")};
  const RuleText::Written written = text.write(rule(text, operands, nullptr));
  std::string body;
  for (const std::string& l : written.lines) body += "  " + l + '\n';
  body += fmt::format("  return {};\n", written.result);
  auto load = [](DType d, const char* element) {
    return convert(d, DType::i64, "(" + hold(d, element) + ")");
  };
  return StockText(division_text)
      .with("NAME", w.call.op->name)
      .with("COUNT", count_type(items))
      .with("RANK", static_cast<int>(w.shape.size()))
      .with("RULE", body)
      .with("LOAD_X", load(x.dtype, "work.x[x_at]"))
      .with("LOAD_Y", load(y.dtype, "work.y[y_at]"))
      .with("RESULT", unhold(w.out, convert(DType::i64, w.out, "result")))
      .kernel(p, blocks_of(items));
}

StockKernel max_pool_kernel(const work::MaxPool& w) {
  const int64_t items = w.planes * w.windows;
  if (items == 0) return {};
  const std::string_view type = memory_type(w.dtype);
  std::vector<Parameters> axes;
  for (const work::ConvAxis& axis : w.axes) axes.push_back(parameters_of(axis));
  Parameters p;
  p.in(type, "x", 0).out(type, "values", 1).out("i64", "places", 2);
  p.add("items", items).add("channels", w.channels);
  p.add("batch_by", w.x.batch_stride).add("channel_by", w.x.channel_stride).add("by", w.x.strides);
  p.add("Axis", "axes", axes);
  return StockText(max_pool_text)
      .with("AXIS", axes[0])
      .with("COUNT", count_type(items))
      .with("TYPE", type)
      .with("HELD", name_of(held_type(w.dtype)))
      .with("HOLD", hold(w.dtype, "element"))
      .kernel(p, blocks_of(items));
}

StockKernel random_kernel(const work::RandomBits& w) {
  const int64_t items = (w.count + 3) / 4;
  if (items == 0) return {};
  Parameters p;
  p.in("i64", "key", 0).out("i64", "target", 1).add("count", w.count).add("key_by", w.key_stride);
  return StockText(random_text).with("COUNT", count_type(items)).kernel(p, blocks_of(items));
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
  p.add("count", count).add("n", n).add("m", m);
  p.add("a_down", a.strides[stacked + (w.transpose ? 1 : 0)]);
  p.add("a_across", a.strides[stacked + (w.transpose ? 0 : 1)]);
  p.add("b_down", b.strides[stacked]).add("b_across", b.strides[stacked + 1]);
  p.add("size", size).add("a_by", a_by).add("b_by", b_by);
  auto load = [](DType d, const char* element) {
    return convert(d, DType::f64, "(" + hold(d, element) + ")");
  };
  return StockText(solve_text)
      .with("COUNT", count_type(count * m))
      .with("RANK", static_cast<int>(size.size()))
      .with("A", memory_type(a.dtype))
      .with("B", memory_type(b.dtype))
      .with("BACKWARDS", w.upper != w.transpose ? "true" : "false")
      .with("LOAD_B", load(b.dtype, "b[i * work.b_down]"))
      .with("FACTOR", load(a.dtype, "factor"))
      .with("RESULT", unhold(b.dtype, convert(DType::f64, b.dtype, "(value)")))
      .kernel(p, blocks_of(count * m));
}

StockKernel columns_kernel(const work::Columns& w) {
  const work::ConvAxis &high = w.axes[1], &wide = w.axes[2];
  const int64_t each =
      w.folds ? high.image * wide.image : high.kernel * wide.kernel * high.windows * wide.windows;
  const int64_t items = w.batch * w.channels * each;
  if (items == 0) return {};
  const std::string_view type = w.folds ? memory_type(w.dtype) : bits_type(w.dtype);
  Sizes by{w.image.batch_stride, w.image.channel_stride, w.image.strides[1], w.image.strides[2]};
  if (w.folds) by = w.columns;
  const Parameters axes[] = {parameters_of(high), parameters_of(wide)};
  Parameters p;
  p.in(type, "source", 0).out(type, "target", 1);
  p.add("items", items).add("channels", w.channels).add("by", by).add("Axis", "axes", axes);
  const DType sum = dtype_of(compute_of(w.dtype));
  return StockText(columns_text)
      .with("AXIS", axes[0])
      .with("COUNT", count_type(items))
      .with("BODY", w.folds ? fold_windows_text : unfold_windows_text)
      .with("TYPE", type)
      .with("SUM", name_of(held_type(sum)))
      .with("LOAD", hold(w.dtype, "work.source[at]"))
      .with("RESULT", unhold(w.dtype, convert(sum, w.dtype, "(sum)")))
      .kernel(p, blocks_of(items));
}

}  // namespace gradus::fusion::cuda
