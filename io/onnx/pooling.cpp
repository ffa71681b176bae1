// Pools.
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

void average_pool(Call& c) {
  Value x = c.x();
  Window w = window_of(c, x.dims());
  bool count_pads = c.flag("count_include_pad");
  for (int64_t d : w.dilation)
    if (d != 1) c.unsupported("AveragePool with dilations");
  if (auto pads = own_pads(w)) return c.give(mean_of_windows(c, x, w, *pads, count_pads));
  Ints none(w.kernel.size(), 0);
  Value y = mean_of_windows(c, padded(x, w, 0), w, none, true);
  if (count_pads) return c.give(y);
  // How much of a window lies in the image.
  Dims one_image = x.dims();
  one_image[0] = one_image[1] = 1;
  Value ones = padded(full(c.world(), one_image, 1, x.dtype()), w, 0);
  c.give(y / mean_of_windows(c, ones, w, none, true));
}

// (the sum of |x|^p over each window)^(1/p)
void lp_pool(Call& c) {
  Value x = c.x();
  Window w = window_of(c, x.dims());
  for (int64_t d : w.dilation)
    if (d != 1) c.unsupported("LpPool with dilations");
  if (w.ceil) c.unsupported("LpPool with ceil_mode");
  double p =
      c.opset() < 2 ? c.attribute("p", 2.0) : static_cast<double>(c.attribute("p", int64_t{2}));
  double elements = 1;
  for (int64_t k : w.kernel) elements *= static_cast<double>(k);
  Value powers = binary("pow", unary("abs", padded(x, w, 0)), num(p));
  Value sums = mean_of_windows(c, powers, w, Ints(w.kernel.size(), 0), true) * elements;
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

// Windows added up to an image with its pads, which are cut off then.
void col2im(Call& c) {
  const Ints image = c.integers(1, "image_shape"), block = c.integers(2, "block_shape");
  if (image.size() != 2 || block.size() != 2)
    c.unsupported("Col2Im of {} dimensions", image.size());
  const Ints pads = c.integers("pads").value_or(Ints(4, 0)), ones{1, 1};
  if (pads.size() != 4) c.fail("pads are {} numbers, not 4", pads.size());
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
