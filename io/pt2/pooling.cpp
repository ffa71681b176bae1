// Pools over windows, and windows as columns of a matrix.
#include "io/pt2/images.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// The number in the operator's name: "max_pool2d_with_indices".
int spatial_in(Call& c) {
  const size_t at = c.op().find_first_of("123");
  if (at == std::string_view::npos) c.fail("it has no number of dimensions in its name");
  return c.op()[at] - '0';
}

// An image of a batch; a sample may come alone.
struct Images {
  Value x;
  int spatial;
  bool alone;

  explicit Images(Call& c) : x(c.x()), spatial(spatial_in(c)), alone(x.rank() == spatial + 1) {
    if (!alone && x.rank() != spatial + 2)
      c.fail("an image of {} dimensions stands where one of {} is wanted", x.rank(), spatial + 2);
    if (alone) x = unsqueeze(x, 0);
  }
  Value back(const Value& y) const { return alone ? squeeze(y, 0) : y; }
  const Dim& size(int d) const { return size_at(x.dims(), d + 2); }
};

Ints list_of(Call& c, std::string_view name, int spatial, int64_t absent) {
  Ints list = c.integers(name, {absent});
  if (list.empty()) list = {absent};
  if (list.size() == 1) list.resize(static_cast<size_t>(spatial), list[0]);
  if (list.size() != static_cast<size_t>(spatial))
    c.fail("its argument '{}' has {} numbers", name, list.size());
  return list;
}

// The kernel where the node does not say.
Ints stride_of(Call& c, int spatial, const Ints& kernel) {
  const Ints stride = c.integers("stride", {});
  return stride.empty() ? kernel : list_of(c, "stride", spatial, 1);
}

struct PoolWindow {
  Ints kernel, stride, padding;
  PoolWindow(Call& c, int spatial)
      : kernel(list_of(c, "kernel_size", spatial, 1)),
        stride(stride_of(c, spatial, kernel)),
        padding(list_of(c, "padding", spatial, 0)) {}
  LiteralList attributes() const {
    return {{"kernel", Literal::list(kernel)},
            {"stride", Literal::list(stride)},
            {"padding", Literal::list(padding)}};
  }
};

// The windows' sums over a number. All windows lie in an image with zeros around it.
Value mean_by(Call& c, const Images& i, const PoolWindow& w, int64_t divisor) {
  if (divisor == 0) c.fail("divisor_override is 0");
  Dims amounts;
  double elements = 1;
  const Dims& sizes = c.result().sizes;
  for (int d = i.spatial; d-- > 0;) {
    const auto k = static_cast<size_t>(d);
    const Dim windows = size_at(sizes, static_cast<int64_t>(sizes.size()) - i.spatial + d);
    const Dim reach = (windows - Dim(1)) * Dim(w.stride[k]) + Dim(w.kernel[k]);
    amounts.push_back(w.padding[k]);
    amounts.push_back(reach - i.size(d) - Dim(w.padding[k]));
    elements *= static_cast<double>(w.kernel[k]);
  }
  Value image = emit("constant_pad_nd", {i.x}, {{"pad", Literal::list(amounts)}});
  Value y = emit(fmt::format("avg_pool{}d", i.spatial), {image},
                 {{"kernel", Literal::list(w.kernel)}, {"stride", Literal::list(w.stride)}});
  return y * (elements / static_cast<double>(divisor));
}

}  // namespace

void max_pool(Call& c) {
  Images i(c);
  LiteralList attributes = PoolWindow(c, i.spatial).attributes();
  attributes.push_back({"dilation", Literal::list(list_of(c, "dilation", i.spatial, 1))});
  attributes.push_back({"ceil_mode", c.flag("ceil_mode", false)});
  auto results = emit_all(c.world(), "max_pool", {&i.x, 1}, attributes);
  for (size_t k = 0; k < c.results() && k < 2; ++k)
    c.give(with_sizes(i.back(results[k]), c.result(k).sizes));
}

void average_pool(Call& c) {
  Images i(c);
  PoolWindow w(c, i.spatial);
  Value y;
  if (c.given("divisor_override")) {
    y = mean_by(c, i, w, c.integer("divisor_override"));
  } else {
    LiteralList attributes = w.attributes();
    attributes.push_back({"ceil_mode", c.flag("ceil_mode", false)});
    attributes.push_back({"count_include_pad", c.flag("count_include_pad", true)});
    y = emit(fmt::format("avg_pool{}d", i.spatial), {i.x}, attributes);
  }
  c.give(with_sizes(i.back(y), c.result().sizes));
}

namespace {

// Windows that share one dimension out, as images of one row each.
Value shared_out(const char* op, const Value& x, int dim, const Dim& n) {
  if (x.dims()[static_cast<size_t>(dim)] == n) return x;
  if (!n.is_constant()) throw Error("an output size that has a name is not supported");
  Value last = emit("movedim", {x}, {{"source", dim}, {"destination", -1}});
  Dims lead(last.dims().begin(), last.dims().end() - 1), sizes = last.dims();
  Value rows = reshape(last, {ir::numel(lead), 1, last.dims().back()});
  Value y = emit(op, {rows}, {{"output_size", Literal::list(Ints{1, n.value()})}});
  sizes.back() = n;
  return emit("movedim", {reshape(y, sizes)}, {{"source", -1}, {"destination", dim}});
}

// The archive says the sizes, which may be left out in the node. Of equal elements the first in
// row-major order is the greatest one, so the last dimension comes first.
Value adapted(Call& c, const char* op, const Images& i) {
  const Dims& sizes = c.result().sizes;
  auto out = [&](int d) {
    return size_at(sizes, static_cast<int64_t>(sizes.size()) - i.spatial + d);
  };
  if (i.spatial == 2 && out(0).is_constant() && out(1).is_constant())
    return emit(op, {i.x}, {{"output_size", Literal::list(Ints{out(0).value(), out(1).value()})}});
  Value y = i.x;
  for (int d = i.spatial; d-- > 0;) y = shared_out(op, y, d + 2, out(d));
  return y;
}

}  // namespace

void adaptive_average_pool(Call& c) {
  Images i(c);
  c.give(i.back(adapted(c, "adaptive_avg_pool2d", i)));
}

// Where the elements were is known of windows of one size.
void adaptive_max_pool(Call& c) {
  Images i(c);
  if (!c.wants(1)) {
    c.give(i.back(adapted(c, "adaptive_max_pool2d", i)));
    return c.give_nothing();
  }
  Ints kernel;
  const Dims& sizes = c.result().sizes;
  for (int d = 0; d < i.spatial; ++d) {
    const auto in = i.size(d).constant();
    const auto out = size_at(sizes, static_cast<int64_t>(sizes.size()) - i.spatial + d).constant();
    if (!in || !out || *out == 0 || *in % *out != 0)
      c.fail("indices of windows of several sizes are not supported");
    kernel.push_back(*in / *out);
  }
  auto y = emit_all(c.world(), "max_pool", {&i.x, 1}, {{"kernel", Literal::list(kernel)}});
  for (const Value& v : y) c.give(i.back(v));
}

// Each element where the pool has found it, by its place in a plane of the image.
void max_unpool(Call& c) {
  Images i(c);
  Dims planes(i.x.dims().begin(), i.x.dims().begin() + 2), spatial = c.sizes("output_size");
  Dims whole = planes;
  whole.append(spatial.begin(), spatial.end());
  auto rows = [&](const Value& v, const Dims& sizes) {
    return reshape(v, {planes[0], planes[1], ir::numel(sizes)});
  };
  const Dims own(i.x.dims().begin() + 2, i.x.dims().end());
  Value places = cast(c.x("indices"), DType::i64);
  if (i.alone) places = unsqueeze(places, 0);
  Value none = full(c.world(), {planes[0], planes[1], ir::numel(spatial)}, 0, i.x.dtype());
  Value y = emit("scatter", {none, rows(places, own), rows(i.x, own)}, {{"dim", 2}});
  c.give(i.back(reshape(y, whole)));
}

namespace {

LiteralList column_attributes(Call& c) {
  return {{"kernel", Literal::list(c.integers("kernel_size"))},
          {"dilation", Literal::list(c.integers("dilation"))},
          {"padding", Literal::list(c.integers("padding"))},
          {"stride", Literal::list(c.integers("stride"))}};
}

}  // namespace

void windows_as_columns(Call& c) {
  c.give(with_sizes(emit("unfold_im2col", {c.x()}, column_attributes(c)), c.result().sizes));
}

void columns_as_image(Call& c) {
  LiteralList attributes = column_attributes(c);
  attributes.push_back({"output_size", Literal::list(c.sizes("output_size"))});
  c.give(emit("fold_col2im", {c.x()}, attributes));
}

}  // namespace gradus::pt2
