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
  const $X$* x;
  const $Y$* y;
  $OUT$* target;
  Fault* faults;
  i64 items;
  i64 size[$RANK$], x_by[$RANK$], y_by[$RANK$];
};

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
  i64 image, windows, kernel, stride, padding, dilation;
};
struct Work {
  const $TYPE$* source;
  $TYPE$* target;
  i64 items, channels, by[4];
  Axis rows, columns;
};

extern "C" __global__ void __launch_bounds__(256, 2) gradus_kernel(const Work work) {
  const Axis& h = work.rows;
  const Axis& w = work.columns;
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
  i64 image, windows, kernel, stride, padding, dilation;
};
struct Work {
  const $TYPE$* x;
  $TYPE$* values;
  i64* places;
  i64 items, channels, by[5];
  Axis axes[3];
};

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
    const $TYPE$* const plane = work.x + entry * work.by[0] + channel * work.by[1];
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
          const $TYPE$ element = plane[i * work.by[2] + j * work.by[3] + k * work.by[4]];
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
  const i64* key;
  i64* target;
  i64 count, key_by;
};

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
  const $A$* a;
  const $B$* b;
  $B$* target;
  double* solution;
  i64 count, n, m, a_down, a_across, b_down, b_across;
  i64 size[$RANK$], a_by[$RANK$], b_by[$RANK$];
};

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

Source division_source(const work::Pointwise& w, bool wide) {
  const Rule rule = rule_of(*w.call.op, Compute::i64);
  GRADUS_CHECK(rule);
  RuleText text;
  Emitted* const operands[] = {text.operand(TextType::i64, "x"), text.operand(TextType::i64, "y")};
  const RuleText::Written written = text.write(rule(text, operands, nullptr));
  std::string body;
  for (const std::string& l : written.lines) body += "  " + l + '\n';
  body += fmt::format("  return {};\n", written.result);
  auto load = [&](size_t k, const char* element) {
    return convert(w.operands[k].dtype, DType::i64, "(" + hold(w.operands[k].dtype, element) + ")");
  };
  return StockText(division_text)
      .with("NAME", w.call.op->name)
      .with("COUNT", count_type(wide))
      .with("RANK", static_cast<int>(w.shape.size()))
      .with("X", memory_type(w.operands[0].dtype))
      .with("Y", memory_type(w.operands[1].dtype))
      .with("OUT", memory_type(w.out))
      .with("RULE", body)
      .with("LOAD_X", load(0, "work.x[x_at]"))
      .with("LOAD_Y", load(1, "work.y[y_at]"))
      .with("RESULT", unhold(w.out, convert(DType::i64, w.out, "result")))
      .source();
}

Source max_pool_source(const work::MaxPool& w, bool wide) {
  return StockText(max_pool_text)
      .with("COUNT", count_type(wide))
      .with("TYPE", memory_type(w.dtype))
      .with("HELD", name_of(held_type(w.dtype)))
      .with("HOLD", hold(w.dtype, "element"))
      .source();
}

Source random_source(bool wide) {
  return StockText(random_text).with("COUNT", count_type(wide)).source();
}

Source solve_source(const work::Solve& w, int rank, bool wide) {
  const DType a = w.a.dtype, b = w.b.dtype;
  auto load = [](DType d, const char* element) {
    return convert(d, DType::f64, "(" + hold(d, element) + ")");
  };
  return StockText(solve_text)
      .with("COUNT", count_type(wide))
      .with("RANK", rank)
      .with("A", memory_type(a))
      .with("B", memory_type(b))
      .with("BACKWARDS", w.upper != w.transpose ? "true" : "false")
      .with("LOAD_B", load(b, "b[i * work.b_down]"))
      .with("FACTOR", load(a, "factor"))
      .with("RESULT", unhold(b, convert(DType::f64, b, "(value)")))
      .source();
}

Source columns_source(const work::Columns& w, bool wide) {
  StockText text(columns_text);
  text.with("COUNT", count_type(wide))
      .with("BODY", w.folds ? fold_windows_text : unfold_windows_text);
  if (!w.folds) return text.with("TYPE", bits_type(w.dtype)).source();
  const DType sum = dtype_of(compute_of(w.dtype));
  return text.with("TYPE", memory_type(w.dtype))
      .with("SUM", name_of(held_type(sum)))
      .with("LOAD", hold(w.dtype, "work.source[at]"))
      .with("RESULT", unhold(w.dtype, convert(sum, w.dtype, "(sum)")))
      .source();
}

}  // namespace gradus::fusion::cuda
