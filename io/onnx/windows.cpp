#include "io/onnx/windows.h"

namespace gradus::onnx {

using namespace ops;

namespace {

Ints list_of(Call& c, std::string_view name, size_t n, int64_t absent, int64_t least) {
  Ints list = c.integers(name).value_or(Ints(n, absent));
  if (list.size() != n)
    c.fail("attribute '{}' has {} numbers, {} are wanted", name, list.size(), n);
  for (int64_t v : list)
    if (v < least || v > INT32_MAX) c.fail("attribute '{}' has a number out of range: {}", name, v);
  return list;
}

// As many windows as the image has strides: what is missing lies around it.
void pad_to_same(Window& w, const Dims& image, bool upper) {
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    const Dim& n = image[d + 2];
    Dim windows = floor_div(n + Dim(w.stride[d] - 1), w.stride[d]);
    Dim total = (windows - Dim(1)) * Dim(w.stride[d]) + Dim(w.reach(d)) - n;
    if (!total.constant() || *total.constant() < 0) total = max(total, 0);
    Dim half = floor_div(total, 2);
    w.before.push_back(upper ? half : total - half);
    w.after.push_back(upper ? total - half : half);
  }
}

// As many sizes as the image has spatial dimensions.
Window window_with(Call& c, const Dims& image, Ints kernel) {
  size_t n = image.size() - 2;
  Window w;
  w.kernel = std::move(kernel);
  w.stride = list_of(c, "strides", n, 1, 1);
  w.dilation = list_of(c, "dilations", n, 1, 1);
  w.ceil = c.flag("ceil_mode");
  for (size_t d = 0; d < n; ++d)
    if (w.kernel[d] < 1 || w.kernel[d] > INT32_MAX / w.dilation[d])
      c.fail("the kernel's size {} is out of range", w.kernel[d]);
  std::string automatic = c.attribute("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    pad_to_same(w, image, automatic == "SAME_UPPER");
    return w;
  }
  if (automatic != "NOTSET" && automatic != "VALID" && !automatic.empty())
    c.fail("there is no auto_pad '{}'", automatic);
  Ints pads = automatic == "VALID" ? Ints(2 * n, 0) : list_of(c, "pads", 2 * n, 0, INT32_MIN);
  for (size_t d = 0; d < n; ++d) {
    w.before.push_back(pads[d]);
    w.after.push_back(pads[d + n]);
  }
  return w;
}

size_t spatial_of(Call& c, const Dims& image) {
  if (image.size() < 3)
    c.fail("it wants images [N, C, spatial..], not {} dimensions", image.size());
  return image.size() - 2;
}

}  // namespace

std::optional<Ints> Window::symmetric_pads() const {
  Ints pads;
  for (size_t d = 0; d < before.size(); ++d) {
    if (!before[d].constant() || !(before[d] == after[d])) return std::nullopt;
    pads.push_back(*before[d].constant());
  }
  return pads;
}

Window window_of(Call& c, const Dims& image) {
  return window_with(c, image, list_of(c, "kernel_shape", spatial_of(c, image), 0, 1));
}

Window kernel_window_of(Call& c, const Dims& image, const Dims& kernel) {
  const size_t n = spatial_of(c, image);
  if (n > 3) c.unsupported("{} in {} dimensions", c.op(), n);
  if (kernel.size() != image.size())
    c.fail("the image has {} dimensions, the kernel {}", image.size(), kernel.size());
  Ints sizes;
  for (size_t d = 2; d < kernel.size(); ++d) {
    if (!kernel[d].constant()) c.unsupported("{} with a kernel whose size has a name", c.op());
    sizes.push_back(*kernel[d].constant());
  }
  if (c.has("kernel_shape") && list_of(c, "kernel_shape", n, 0, 1) != sizes)
    c.fail("kernel_shape is not the kernel's shape");
  return window_with(c, image, std::move(sizes));
}

Value padded(const Value& x, const Window& w, double value) {
  Dims amounts;
  bool any = false;
  for (size_t d = w.before.size(); d-- > 0;) {
    amounts.push_back(w.before[d]);
    amounts.push_back(w.after[d]);
    any = any || !(w.before[d] == Dim(0)) || !(w.after[d] == Dim(0));
  }
  if (!any) return x;
  return emit("constant_pad_nd", {x}, {{"pad", Literal::list(amounts)}, {"value", value}});
}

}  // namespace gradus::onnx
