#include "fusion/cuda/stock_sort.h"

#include "fusion/cuda/convert.h"
#include "fusion/cuda/stock_text.h"

namespace gradus::fusion::cuda {

namespace {

constexpr int64_t place_bytes = 4;

constexpr std::string_view sort_before =
    R"(// A total order: equal keys are told apart by their place.
__device__ __forceinline__ bool before($HELD$ a, u32 a_at, $HELD$ b, u32 b_at) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return $NAN_FIRST$ ? a_nan : b_nan;
  if (!a_nan && a != b) return a $BEFORE$ b;
  return a_at < b_at;
}
__device__ __forceinline__ $HELD$ key_of(const $TYPE$* row, u32 place, i64 step) {
  const i64 at = i64(place) * step;
  return $VALUE$;
}

)";
constexpr std::string_view sort_body =
    R"(    const Count length = Count(work.length), width = Count(work.width);
    const Count row = item / length, i = item - row * length;
    const $TYPE$* x = work.x + locate(row, work.size, work.x_by);
    const u32* from = work.from ? work.from + i64(row * length) : nullptr;
    const u32 place = from ? from[i] : u32(i);
    const $HELD$ key = key_of(x, place, work.x_step);
    const Count own = i / width * width, first = own / (2 * width) * (2 * width);
    // Elements [low, high) of the other run, of which some come before.
    const Count other = own == first ? own + width : first;
    const Count start = other < length ? other : length;
    Count low = start, high = other + width < length ? other + width : length;
    if (high < low) high = low;
    while (low < high) {
      const Count middle = low + (high - low) / 2;
      const u32 there = from ? from[middle] : u32(middle);
      if (before(key_of(x, there, work.x_step), there, key, place))
        low = middle + 1;
      else
        high = middle;
    }
    const i64 target = i64(first + (i - own) + (low - start));
    if (work.to) {
      work.to[i64(row * length) + target] = place;
    } else if (target < work.kept) {
      const i64 to = i64(row) / work.inner * work.outer_stride + i64(row) % work.inner +
                     target * work.step;
      work.values[to] = x[i64(place) * work.x_step];
      work.indices[to] = i64(place);
    }
)";

}  // namespace

int64_t sort_bytes(const work::Sort& w) {
  return w.x.shape.back() > 2 ? 2 * w.rows * w.x.shape.back() * place_bytes : 0;
}

StockKernel sort_kernel(const work::Sort& w) {
  if (w.rows == 0) return {};
  const DType dtype = w.x.dtype, held = dtype_of(compute_of(dtype));
  const std::string_view type = memory_type(dtype);
  Sizes size = w.x.shape, strides = w.x.strides;
  const int64_t length = size.back(), x_step = strides.back(), items = w.rows * length;
  size.pop_back();
  strides.pop_back();
  if (size.empty()) size = {1}, strides = {0};
  const std::optional<Place> none;
  auto half = [&](int64_t part) {
    return Place(work::Window::scratch, part * items * place_bytes);
  };
  StockText text(for_each_item(sort_body, sort_before));
  StockKernel kernel;
  for (int64_t width = 1, pass = 0; width == 1 || width < length; width *= 2, ++pass) {
    const bool last = 2 * width >= length;
    Parameters p;
    p.in(type, "x", 0).in("u32", "from", pass ? half(1 - pass % 2) : none);
    p.out("u32", "to", last ? none : half(pass % 2));
    p.out(type, "values", 1).out("i64", "indices", 2);
    p.add("items", items).add("length", length).add("width", width).add("kept", w.kept);
    p.add("inner", w.inner).add("outer_stride", w.outer_stride).add("step", w.step);
    p.add("x_step", x_step).add("size", size).add("x_by", strides);
    kernel.launches.push_back({p.arguments(), blocks_of(items)});
    text.with("FIELDS", p);  // the same in each pass
  }
  kernel.source = text.with("COUNT", count_type(items))
                      .with("TYPE", type)
                      .with("HELD", name_of(held_type(held)))
                      .with("NAN_FIRST", w.descending ? "true" : "false")
                      .with("BEFORE", w.descending ? ">" : "<")
                      .with("VALUE", convert(dtype, held, "(" + hold(dtype, "row[at]") + ")"))
                      .source();
  return kernel;
}

}  // namespace gradus::fusion::cuda
