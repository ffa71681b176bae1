// Pools.
#include <algorithm>
#include <limits>

#include "io/onnx/windows.h"

namespace gradus::onnx {

using namespace ops;

namespace {

std::string name_in(Call& c, const char* op, size_t spatial) {
  if (spatial < 1 || spatial > 3) c.unsupported("{} in {} dimensions", c.op(), spatial);
  return fmt::format("{}{}d", op, spatial);
}

// Pads that the operators take themselves.
std::optional<Ints> own_pads(const Window& w) {
  auto pads = w.symmetric_pads();
  for (size_t d = 0; pads && d < pads->size(); ++d)
    if ((*pads)[d] < 0 || (*pads)[d] > w.kernel[d] / 2) return std::nullopt;
  return pads;
}

// Row-major places in [spatial..] of a padded image as places in the whole tensor without pads.
Value places_in_tensor(Call& c, Value at, const Dims& image, const Dims& padded_sizes,
                       const Dims& before, bool by_column) {
  size_t n = padded_sizes.size();
  std::vector<Value> coordinates(n);
  for (size_t d = n; d-- > 0;) {
    Value size = Value::number(padded_sizes[d]);
    coordinates[d] = binary("remainder", at, size) - Value::number(before[d]);
    at = binary("floor_divide", at, size);
  }
  Value y;
  for (size_t k = 0; k < n; ++k) {
    size_t d = by_column ? n - 1 - k : k;
    y = k == 0 ? coordinates[d] : y * Value::number(image[d + 2]) + coordinates[d];
  }
  Dims spatial(image.begin() + 2, image.end());
  Value plane = arange(c.world(), image[0] * image[1]);
  Dims shape(image.size(), 1);
  shape[0] = image[0];
  shape[1] = image[1];
  return y + reshape(plane, shape) * Value::number(ir::numel(spatial));
}

// Without the windows that start behind the image, in what lies around it.
Value started_inside(const Value& pooled, const Dims& image, const Window& w) {
  Value y = pooled;
  for (size_t d = 0; w.ceil && d < w.kernel.size(); ++d) {
    if (w.after[d] == Dim(0)) continue;
    Dim starts = floor_div(w.before[d] + image[d + 2] - Dim(1), w.stride[d]) + Dim(1);
    Dim kept = min(starts, y.dims()[d + 2]);
    if (!(kept == y.dims()[d + 2])) y = slice(y, static_cast<int64_t>(d) + 2, 0, kept);
  }
  return y;
}

void max_pool(Call& c) {
  Value x = c.x();
  Dims image = x.dims();
  Window w = window_of(c, image);
  name_in(c, "max_pool", w.kernel.size());
  DType dtype = x.dtype();
  // Integers have no infinity; what lies outside is less than all of them in a larger dtype.
  if (!is_floating(dtype)) x = cast(x, DType::f32);
  auto pads = own_pads(w);
  Dims before(w.kernel.size(), 0), sizes(image.begin() + 2, image.end());
  if (!pads) {
    x = padded(x, w, -std::numeric_limits<double>::infinity());
    before = w.before;
    sizes = Dims(x.dims().begin() + 2, x.dims().end());
  }
  LiteralList attributes{{"kernel", Literal::list(w.kernel)},
                         {"stride", Literal::list(w.stride)},
                         {"padding", Literal::list(pads.value_or(Ints(w.kernel.size(), 0)))},
                         {"dilation", Literal::list(w.dilation)},
                         {"ceil_mode", w.ceil}};
  auto out = emit_all(c.world(), "max_pool", std::vector{x}, attributes);
  if (!pads)
    for (Value& v : out) v = started_inside(v, image, w);
  c.give(cast(out[0], dtype));
  if (c.wants(1)) {
    bool by_column = c.flag("storage_order");
    c.give(places_in_tensor(c, out[1], image, sizes, before, by_column));
  }
}

Value mean_of_windows(Call& c, const Value& x, const Window& w, const Ints& padding,
                      bool count_pads) {
  return emit(name_in(c, "avg_pool", w.kernel.size()), {x},
              {{"kernel", Literal::list(w.kernel)},
               {"stride", Literal::list(w.stride)},
               {"padding", Literal::list(padding)},
               {"ceil_mode", w.ceil},
               {"count_include_pad", count_pads}});
}

bool is_dilated(const Window& w) {
  return std::ranges::any_of(w.dilation, [](int64_t d) { return d != 1; });
}

// How far a last window, which ceil_mode adds, reaches beyond the pads.
Dim beyond(Call& c, const Window& w, size_t d, const Dim& n) {
  if (!w.ceil) return 0;
  Dim rest = n - Dim(w.reach(d));
  if (!rest.constant()) c.unsupported("{} with ceil_mode along a size that has a name", c.op());
  return Dim((w.stride[d] - *rest.constant() % w.stride[d]) % w.stride[d]);
}

// The sums over all windows of an image with its pads.
Value sum_of_windows(Call& c, const Value& image, const Window& w) {
  Value y = image;
  const size_t n = w.kernel.size();
  Ints last;
  for (size_t d = 0; d < n; ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    y = pad_zeros(y, dim, 0, beyond(c, w, d, y.dims()[d + 2]));
    y = emit("unfold", {y}, {{"dim", dim}, {"size", w.reach(d)}, {"step", w.stride[d]}});
    if (w.dilation[d] != 1) y = slice(y, -1, 0, w.reach(d), w.dilation[d]);
    last.push_back(-static_cast<int64_t>(d) - 1);
  }
  return sum(y, last, false);
}

// What windows that skip elements cover, by how much of them counts.
Value mean_of_dilated(Call& c, const Value& x, const Window& w, bool count_pads) {
  Dims one_image = x.dims();
  one_image[0] = one_image[1] = 1;
  Value ones = full(c.world(), one_image, 1, x.dtype());
  Value counted = padded(ones, w, count_pads ? 1 : 0);
  Value y = sum_of_windows(c, padded(x, w, 0), w) / sum_of_windows(c, counted, w);
  return started_inside(y, x.dims(), w);
}

void average_pool(Call& c) {
  Value x = c.x();
  Window w = window_of(c, x.dims());
  bool count_pads = c.flag("count_include_pad");
  if (is_dilated(w)) return c.give(mean_of_dilated(c, x, w, count_pads));
  if (auto pads = own_pads(w)) return c.give(mean_of_windows(c, x, w, *pads, count_pads));
  Ints none(w.kernel.size(), 0);
  Value y = started_inside(mean_of_windows(c, padded(x, w, 0), w, none, true), x.dims(), w);
  if (count_pads) return c.give(y);
  // How much of a window lies in the image.
  Dims one_image = x.dims();
  one_image[0] = one_image[1] = 1;
  Value ones = padded(full(c.world(), one_image, 1, x.dtype()), w, 0);
  c.give(y / started_inside(mean_of_windows(c, ones, w, none, true), x.dims(), w));
}

// (the sum of |x|^p over each window)^(1/p)
void lp_pool(Call& c) {
  Value x = c.x();
  Window w = window_of(c, x.dims());
  double p =
      c.opset() < 2 ? c.attribute("p", 2.0) : static_cast<double>(c.attribute("p", int64_t{2}));
  double elements = 1;
  for (int64_t k : w.kernel) elements *= static_cast<double>(k);
  Value powers = binary("pow", unary("abs", padded(x, w, 0)), num(p));
  Value sums = is_dilated(w) || w.ceil
                   ? started_inside(sum_of_windows(c, powers, w), x.dims(), w)
                   : mean_of_windows(c, powers, w, Ints(w.kernel.size(), 0), true) * elements;
  c.give(binary("pow", sums, num(1 / p)));
}

Literal spatial_dims(Call& c) {
  if (c.rank() < 3) c.fail("it wants images [N, C, spatial..]");
  Ints dims;
  for (int d = 2; d < c.rank(); ++d) dims.push_back(d);
  return Literal::list(dims);
}

void global_pool(Call& c) {
  c.give(emit(c.ours(), {c.x()}, {{"dim", spatial_dims(c)}, {"keepdim", true}}));
}

void global_lp_pool(Call& c) {
  double p = static_cast<double>(c.attribute("p", int64_t{2}));
  c.give(emit("norm", {c.x()}, {{"p", p}, {"dim", spatial_dims(c)}, {"keepdim", true}}));
}

// Elements along the last dimension so far apart.
Value with_gaps(const Value& x, int64_t apart) {
  if (apart == 1) return x;
  Dims shape = x.dims();
  const Dim reach = (shape.back() - Dim(1)) * Dim(apart) + Dim(1);
  shape.back() = shape.back() * Dim(apart);
  return slice(reshape(pad_zeros(unsqueeze(x, x.rank()), x.rank(), 0, apart - 1), shape), -1, 0,
               reach);
}

// Col2Im in any number of dimensions, one after the other.
void need_small(Call& c, const Ints& numbers, const char* name) {
  for (int64_t v : numbers)
    if (v < -INT32_MAX || v > INT32_MAX) c.fail("'{}' has a number out of range: {}", name, v);
}

void col2im_by_dimension(Call& c, const Ints& image, const Ints& block) {
  const size_t n = image.size();
  auto list = [&](const char* name, size_t size, int64_t absent) {
    Ints out = c.integers(name).value_or(Ints(size, absent));
    if (out.size() != size) c.fail("attribute '{}' has {} numbers, not {}", name, out.size(), size);
    need_small(c, out, name);
    return out;
  };
  const Ints pads = list("pads", 2 * n, 0), strides = list("strides", n, 1);
  const Ints dilations = list("dilations", n, 1);
  Value x = c.x();
  Dims shape{x.dims()[0], x.dims()[1]};
  Dim places = 1;
  for (int64_t k : block) places = places * Dim(std::max<int64_t>(k, 1));
  shape[1] = floor_div(shape[1], places);
  // [batch, channels, windows.., blocks..], the first dimension's block last.
  Ints order{0, 1};
  for (size_t d = 0; d < n; ++d) shape.push_back(block[d]);
  for (size_t d = 0; d < n; ++d) {
    const int64_t whole = pads[d] + image[d] + pads[d + n];
    const int64_t reach = (block[d] - 1) * dilations[d] + 1;
    if (block[d] < 1 || strides[d] < 1 || dilations[d] < 1 || whole < reach)
      c.fail("no window of {} fits into {}", reach, whole);
    shape.push_back((whole - reach) / strides[d] + 1);
    order.push_back(static_cast<int64_t>(2 + n + d));
  }
  for (size_t d = n; d-- > 0;) order.push_back(static_cast<int64_t>(2 + d));
  Value y = permute(reshape(x, shape), order);
  for (size_t d = 0; d < n; ++d) {
    const int64_t dim = static_cast<int64_t>(d) + 2, whole = pads[d] + image[d] + pads[d + n];
    y = emit("unfold_sum", {with_gaps(y, dilations[d])},
             {{"length", whole}, {"dim", dim}, {"step", strides[d]}});
    y = slice(y, dim, pads[d], pads[d] + image[d]);
  }
  c.give(y);
}

// Windows added up to an image with its pads, which are cut off then.
void col2im(Call& c) {
  const Ints image = c.integers(1, "image_shape"), block = c.integers(2, "block_shape");
  if (image.size() != block.size() || image.empty() || c.rank() != 3)
    c.fail("it wants [batch, channels * block, windows], and sizes of image and block");
  need_small(c, image, "image_shape");
  need_small(c, block, "block_shape");
  if (image.size() != 2) return col2im_by_dimension(c, image, block);
  const Ints pads = c.integers("pads").value_or(Ints(4, 0)), ones{1, 1};
  if (pads.size() != 4) c.fail("pads are {} numbers, not 4", pads.size());
  need_small(c, pads, "pads");
  Ints whole;
  for (size_t d = 0; d < 2; ++d) whole.push_back(pads[d] + image[d] + pads[d + 2]);
  Value y = emit("fold_col2im", {c.x()},
                 {{"output_size", Literal::list(whole)},
                  {"kernel", Literal::list(block)},
                  {"dilation", Literal::list(c.integers("dilations").value_or(ones))},
                  {"stride", Literal::list(c.integers("strides").value_or(ones))}});
  for (int64_t d = 0; d < 2; ++d) {
    const auto k = static_cast<size_t>(d);
    if (whole[k] != image[k])
      y = emit("narrow", {y}, {{"dim", d + 2}, {"start", pads[k]}, {"length", image[k]}});
  }
  c.give(y);
}

// Each value goes back to where it was; the places count through the whole result.
void max_unpool(Call& c) {
  Value x = c.x(), at = c.x(1);
  Window w = window_of(c, x.dims());
  Dims shape{x.dims()[0], x.dims()[1]};
  for (size_t d = 0; d < w.kernel.size(); ++d)
    shape.push_back((x.dims()[d + 2] - Dim(1)) * Dim(w.stride[d]) + Dim(w.kernel[d]) - w.before[d] -
                    w.after[d]);
  Dims plain = shape;
  if (c.given(2)) {
    plain = c.sizes(2, "output_shape");
    if (plain.size() != shape.size()) c.fail("output_shape has another number of dimensions");
  }
  // The places are those in the result that the attributes make; what output_shape adds comes
  // after it.
  Value zeros = full(c.world(), {ir::numel(shape)}, 0, x.dtype());
  Value flat = emit("scatter",
                    {zeros, reshape(at, {ir::numel(at.dims())}), reshape(x, {ir::numel(x.dims())})},
                    {{"dim", 0}});
  Dims amounts;
  for (size_t d = shape.size(); d-- > 0;) {
    amounts.push_back(0);
    amounts.push_back(plain[d] - shape[d]);
  }
  c.give(emit("constant_pad_nd", {reshape(flat, shape)}, {{"pad", Literal::list(amounts)}}));
}

constexpr RuleEntry pooling_table[] = {
    {"MaxPool", 1, max_pool},
    {"AveragePool", 1, average_pool},
    {"LpPool", 1, lp_pool},
    {"GlobalAveragePool", 1, global_pool, "mean"},
    {"GlobalMaxPool", 1, global_pool, "amax"},
    {"GlobalLpPool", 2, global_lp_pool},
    {"MaxUnpool", 9, max_unpool},
    {"Col2Im", 18, col2im},
};

}  // namespace

constinit const Rules pooling_rules = pooling_table;

}  // namespace gradus::onnx
