// What convolutions and pools have in common: kernels, strides, pads.
#pragma once

#include "io/onnx/call.h"

namespace gradus::onnx {

// The attributes of a window over the spatial dimensions of an image [N, C, spatial..].
struct Window {
  Ints kernel, stride, dilation;
  Dims before, after;  // pads
  bool ceil = false;   // a last window may reach beyond the end
  // How far the kernel reaches along dimension d.
  int64_t reach(size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
  // The pads, if they are numbers and the same before and after.
  std::optional<Ints> symmetric_pads() const;
};

// Reads the attributes.
Window window_of(Call& call, const Dims& image);

// The same where the kernel is a tensor [.., spatial..] of the image's rank: `kernel_shape`, where
// it is given, says its shape again. One to three spatial dimensions, of constant sizes.
Window kernel_window_of(Call& call, const Dims& image, const Dims& kernel);

// The image with the window's pads around it.
Value padded(const Value& x, const Window& window, double value);

}  // namespace gradus::onnx
