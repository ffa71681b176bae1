// Overlapping windows as ONNX nodes: by the places that they read, or by convolutions with ones.
#include <algorithm>

#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

// start + step * i for i < n.
Wire progression(ModelWriter& to, const Dim& start, const Dim& step, const Dim& n) {
  auto whole = [&](const Dim& d) { return to.scalar_size(d); };
  Wire i = to.node("Range", {whole(0), whole(n), whole(1)});
  if (!(step == Dim(1))) i = to.node("Mul", {i, whole(step)});
  return start == Dim(0) ? i : to.node("Add", {i, whole(start)});
}

// offset + i * stride0 + j * stride1 ..: i64 of those sizes.
Wire strided_places(ExportCall& c, std::span<const Dim> sizes) {
  Dims strides = c.dims("stride");
  Wire places = c.to.scalar_size(c.dim("offset"));
  for (size_t k = 0; k < sizes.size(); ++k) {
    Wire along = progression(c.to, 0, strides[k], sizes[k]);
    Dims shape(sizes.size() - k, 1);
    shape[0] = sizes[k];
    places = c.to.node("Add", {places, c.to.reshape(along, shape)});
  }
  return places;
}
Wires as_strided(ExportCall& c) {
  Wire flat = c.to.reshape(c.x(), Dims{Dim(-1)});
  return {c.to.node("Gather", {flat, strided_places(c, c.y_type().dims)})};
}
// Adds `values` up at `places` along dimension `axis` of zeros.
Wire added_up(ExportCall& c, std::span<const Dim> shape, const Wire& places, const Wire& values,
              int64_t axis) {
  Wire zero = c.to.number(c.y_type().dtype, ir::Number::of(0.0));
  Wire zeros = c.to.node("Expand", {zero, c.to.sizes(shape)});
  return c.to.node("ScatterElements", {zeros, places, values},
                   {{"axis", axis}, {"reduction", std::string("add")}});
}
Wires as_strided_sum(ExportCall& c) {
  Dims flat{ir::numel(c.y_type().dims)}, all{Dim(-1)};
  Wire places = c.to.reshape(strided_places(c, c.type().dims), all);
  Wire sum = added_up(c, flat, places, c.to.reshape(c.x(), all), 0);
  return {c.to.reshape(sum, c.y_type().dims)};
}

// i * step + j: [windows, size]
Wire window_places(ExportCall& c, const Dim& windows, const Dim& size) {
  Wire first = progression(c.to, 0, c.dim("step"), windows);
  return c.to.node("Add", {c.to.reshape(first, Dims{windows, 1}), progression(c.to, 0, 1, size)});
}
// The dimension behind `axis` becomes the last one, or the last one that.
Wire with_last(ExportCall& c, const Wire& x, int64_t rank, int64_t axis, bool to_last) {
  Ints order = in_order(rank);
  auto from = order.begin() + axis + 1;
  if (to_last)
    std::rotate(from, from + 1, order.end());
  else
    std::rotate(from, order.end() - 1, order.end());
  return c.to.node("Transpose", {x}, {{"perm", order}});
}
Wires unfold(ExportCall& c) {
  if (c.rank() == 0) return {c.to.node("Expand", {c.x(), c.to.sizes(c.y_type().dims)})};
  int64_t axis = c.axis("dim");
  Wire places = window_places(c, c.y_type().dims[static_cast<size_t>(axis)], c.dim("size"));
  Wire y = c.to.node("Gather", {c.x(), places}, {{"axis", axis}});
  return {with_last(c, y, c.y_type().rank(), axis, true)};
}
Wires unfold_sum(ExportCall& c) {
  int64_t axis = c.axis_of("dim", c.y_type().rank());
  auto at = static_cast<size_t>(axis);
  Dim windows = c.type().dims[at], size = c.type().dims[static_cast<size_t>(c.rank()) - 1];
  Dim all = windows * size;
  Dims shape = c.y_type().dims, along(shape.size(), 1);
  shape[at] = along[at] = all;
  Wire values = c.to.reshape(with_last(c, c.x(), c.rank(), axis, false), shape);
  Wire places = c.to.reshape(window_places(c, windows, size), along);
  places = c.to.node("Expand", {places, c.to.sizes(shape)});
  return {added_up(c, c.y_type().dims, places, values, axis)};
}

// Every place of a window by itself, for each channel: [channels * window, 1, kernel..].
Wire ones_of(ExportCall& c, const Dim& channels, const Ints& kernel) {
  if (!channels.is_constant()) c.refuse("channels whose number has a name");
  int64_t window = kernel[0] * kernel[1], n = channels.value() * window;
  if (n * window > (int64_t{1} << 20)) c.refuse("so large windows");
  std::vector<double> values(static_cast<size_t>(n * window));
  for (int64_t row = 0; row < n; ++row)
    values[static_cast<size_t>(row * window + row % window)] = 1;
  const Sizes shape{n, 1, kernel[0], kernel[1]};
  return c.to.constant(Tensor::from(c.y_type().dtype, shape, values));
}
// One sample may come alone.
Wire batched(ExportCall& c, int rank) {
  return c.rank() == rank ? c.x() : c.to.node("Unsqueeze", {c.x(), c.to.integers({0})});
}
// [N, C, H, W] -> [N, C * window, windows]
Wires unfold_im2col(ExportCall& c) {
  Ints kernel = c.integers("kernel", 2), before = c.integers("padding", 2);
  const Dim& channels = c.type().dims[static_cast<size_t>(c.rank()) - 3];
  Wire y = c.to.node("Conv", {batched(c, 4), ones_of(c, channels, kernel)},
                     {{"kernel_shape", kernel},
                      {"strides", c.integers("stride", 2)},
                      {"dilations", c.integers("dilation", 2)},
                      {"pads", Ints{before[0], before[1], before[0], before[1]}},
                      {"group", channels.value()}});
  return {c.to.reshape(y, c.y_type().dims)};
}

// The images [N, C, ..] up to this size.
Wire cut_to(ModelWriter& to, const Wire& images, std::span<const Dim> size) {
  Ints axes = in_order(static_cast<int64_t>(size.size()));
  for (int64_t& axis : axes) axis += 2;
  return to.node("Slice", {images, to.integers(Ints(size.size(), 0)), to.sizes(size),
                           to.integers(axes), to.integers(Ints(size.size(), 1))});
}

// How a gradient by an image is made: a transposed convolution, of which nothing is cut off behind,
// then cut or filled up to the image.
struct Spread {
  Ints kernel, stride, padding, dilation;
  int64_t groups = 1;
};
Wire spread_out(ExportCall& c, const Wire& x, const Wire& w, std::span<const Dim> windows,
                std::span<const Dim> image, const Spread& s) {
  const size_t n = s.kernel.size();
  Ints pads = s.padding;
  pads.insert(pads.end(), n, 0);
  Dims missing(2 * (n + 2), 0);
  for (size_t k = 0; k < n; ++k) {
    Dim there = (windows[k] - 1) * Dim(s.stride[k]) - Dim(s.padding[k]) +
                Dim(s.dilation[k]) * Dim(s.kernel[k] - 1) + 1;
    missing[n + 4 + k] = max(image[k] - there, 0);
  }
  Wire y = c.to.node("ConvTranspose", {x, w},
                     {{"kernel_shape", s.kernel},
                      {"strides", s.stride},
                      {"dilations", s.dilation},
                      {"pads", pads},
                      {"group", s.groups}});
  Wire zero = c.to.number(c.y_type().dtype, ir::Number::of(0.0));
  return cut_to(c.to, c.to.node("Pad", {y, c.to.sizes(missing), zero}), image);
}

Wires fold_col2im(ExportCall& c) {
  Spread s{c.integers("kernel", 2), c.integers("stride", 2), c.integers("padding", 2),
           c.integers("dilation", 2)};
  const Dims &x = c.type().dims, &y = c.y_type().dims;
  const size_t first = x.size() - 2;  // 1 behind a batch
  Dims image{y[first + 1], y[first + 2]}, windows, shape{first ? x[0] : Dim(1), x[first]};
  for (size_t k = 0; k < 2; ++k) {
    Dim covered = image[k] + Dim(2 * s.padding[k] - s.dilation[k] * (s.kernel[k] - 1) - 1);
    windows.push_back(floor_div(covered, Dim(s.stride[k])) + 1);
    shape.push_back(windows[k]);
  }
  Wire ones = ones_of(c, y[first], s.kernel);
  s.groups = y[first].value();
  Wire sum = spread_out(c, c.to.reshape(c.x(), shape), ones, windows, image, s);
  return {first ? sum : c.to.node("Squeeze", {sum, c.to.integers({0})})};
}

Spread spread_of(ExportCall& c, size_t spatial) {
  return {{},
          c.integers("stride", spatial),
          c.integers("padding", spatial),
          c.integers("dilation", spatial),
          c.integer("groups")};
}
Wires convolution_input(ExportCall& c) {
  const auto n = static_cast<size_t>(c.rank(1)) - 2;
  Spread s = spread_of(c, n);
  Dims windows, image(c.y_type().dims.begin() + 2, c.y_type().dims.end());
  for (size_t k = 0; k < n; ++k) {
    const Dim& kernel = c.type(1).dims[k + 2];
    if (!kernel.is_constant()) c.refuse("a kernel of a size with a name");
    s.kernel.push_back(kernel.value());
    windows.push_back(c.type(0).dims[k + 2]);
  }
  return {spread_out(c, c.x(0), c.x(1), windows, image, s)};
}

// The gradient by the kernel is a convolution of the images by what came out of them, samples in
// the place of channels and strides in that of dilations.
Wires convolution_weight(ExportCall& c) {
  const auto n = static_cast<size_t>(c.rank(1)) - 2;
  Spread s = spread_of(c, n);
  const Dims &x = c.type(0).dims, &dw = c.y_type().dims;
  auto swapped = [&](const Wire& wire, Ints front) {
    for (size_t k = 0; k < n; ++k) front.push_back(static_cast<int64_t>(front.size()));
    return c.to.node("Transpose", {wire}, {{"perm", front}});
  };
  // [N, groups, C, ..] -> [C, groups * N, ..]
  Dims apart{x[0], Dim(s.groups), dw[1]}, together{dw[1], x[0] * Dim(s.groups)};
  for (size_t k = 0; k < n; ++k) {
    apart.push_back(x[k + 2]);
    together.push_back(x[k + 2]);
  }
  Wire images = swapped(c.to.reshape(c.x(0), apart), {2, 1, 0});
  images = c.to.reshape(images, together);
  Ints pads = s.padding;
  pads.insert(pads.end(), s.padding.begin(), s.padding.end());
  Wire y = c.to.node(
      "Conv", {images, swapped(c.x(1), {1, 0})},
      {{"strides", s.dilation}, {"dilations", s.stride}, {"pads", pads}, {"group", s.groups}});
  // Windows that do not fit as often would make it longer.
  y = cut_to(c.to, y, std::span(dw.begin() + 2, n));
  return {swapped(y, {1, 0})};
}

// x with src at start, start + step, .. along a dimension.
Wires slice_scatter(ExportCall& c) {
  auto axis = static_cast<size_t>(c.axis("dim"));
  const Dim& size = c.type().dims[axis];
  const Dims& src = c.type(1).dims;
  Dim start = c.is_none("start") ? Dim(0) : c.dim("start");
  // As a slice's: a negative constant counts from the end, and all are kept within x.
  if (start.is_constant() && start.value() < 0) start = max(start + size, 0);
  Dims along(src.size(), 1);
  along[axis] = src[axis];
  Wire places = progression(c.to, start, c.dim("step"), src[axis]);
  places = c.to.node("Expand", {c.to.reshape(places, along), c.to.sizes(src)});
  return {c.to.node("ScatterElements", {c.x(), places, c.x(1, c.y_type().dtype)},
                    {{"axis", static_cast<int64_t>(axis)}})};
}

constexpr ExportEntry window_export_table[] = {
    {"as_strided", as_strided},
    {"as_strided_sum", as_strided_sum},
    {"unfold", unfold},
    {"unfold_sum", unfold_sum},
    {"unfold_im2col", unfold_im2col},
    {"fold_col2im", fold_col2im},
    {"convolution_input", convolution_input},
    {"convolution_weight", convolution_weight},
    {"slice_scatter", slice_scatter},
};

}  // namespace

constinit const ExportRules window_exports = window_export_table;

}  // namespace gradus::onnx
