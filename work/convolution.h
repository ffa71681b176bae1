// Convolutions and their like: windows that move over images.
#pragma once

#include <vector>

#include "work/fields.h"

namespace gradus::work {

inline constexpr int conv_axes = 3;  // spatial dimensions; absent ones come first and have size 1

// A convolution's sizes. Window i of an axis reads elements i * stride - padding + k * dilation,
// k < kernel, of `image`; elements outside are 0, and are multiplied as others are.
struct ConvAxis {
  int64_t image = 1, windows = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  static constexpr auto fields() {
    return std::tuple(field("image", &ConvAxis::image), field("windows", &ConvAxis::windows),
                      field("kernel", &ConvAxis::kernel), field("stride", &ConvAxis::stride),
                      field("padding", &ConvAxis::padding), field("dilation", &ConvAxis::dilation));
  }
  friend bool operator==(const ConvAxis&, const ConvAxis&) = default;
};
using ConvAxes = std::array<ConvAxis, conv_axes>;

// Positions of a target along an axis, and what each of them reads: position first + i * step,
// i < count, reads source element offset + i * move + j * tap_move with kernel element
// tap_first + j * tap_step, j < taps.
struct PhaseAxis {
  int64_t first = 0, step = 1, count = 1;
  int64_t tap_first = 0, tap_step = 1, taps = 1;
  int64_t offset = 0, move = 1, tap_move = 0;
  int64_t source_size = 1;
};

// Positions of which each reads with the same kernel elements.
struct Phase {
  std::array<PhaseAxis, conv_axes> axes;
  int64_t positions() const { return axes[0].count * axes[1].count * axes[2].count; }
  int64_t taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
};

// The windows read the image.
Phase window_phase(const ConvAxes& axes);
// The image reads the windows that it is in: a phase for each remainder by the strides.
std::vector<Phase> image_phases(const ConvAxes& axes);
// A tensor's own elements, one each.
Phase identity_phase(const std::array<int64_t, conv_axes>& sizes);

// A tensor [N, C, spatial], spatial sizes filled up to conv_axes.
struct ConvTensor {
  int64_t batch_stride = 0, channel_stride = 0;
  std::array<int64_t, conv_axes> strides{};

  explicit ConvTensor(const Layout& l);
  ConvTensor() = default;
  // Whether positions [q, ..) of the phase lie one after the other from element q on.
  bool lies_in_place(const Phase& p) const;
  static constexpr auto fields() {
    return std::tuple(field("batch_stride", &ConvTensor::batch_stride),
                      field("channel_stride", &ConvTensor::channel_stride),
                      field("strides", &ConvTensor::strides));
  }
  friend bool operator==(const ConvTensor&, const ConvTensor&) = default;
};

// Elements of a window along one axis: first, first + dilation, .. below last.
struct WindowRange {
  int64_t first = 0, last = 0;
};
WindowRange range_of(const ConvAxis& axis, int64_t window);

enum class Direction : uint8_t { result, image, kernel };  // what is computed: y, dx or dw
std::string_view name_of(Direction direction);

// Operands 0 and 1 into result 0: y [N, O, ..] of x [N, C, ..] and w [O, C / groups, ..]; dx of dy
// and w; dw of x and dy. 16-bit floats are worked on as f32, and rounded once, at the end. Group g
// has the channels [g C / groups, ..) of x and the channels [g O / groups, ..) of y.
//
// Sums of products are in the order of work/product.h:
//   y   over (c, k): the channels of x's group, and for each the kernel's elements;
//   dx  over (o, k): the channels of y's group, and for each those elements k of the kernel for
//       which (position + padding - k * dilation) / stride is whole along each axis. The quotients
//       are the window of dy, which is 0 outside of the windows;
//   dw  over windows, cut as KernelSums says.
// Kernel elements and windows are in row-major order. From some sizes on, a library computes the
// sums in an order of its own.
struct Convolution {
  static constexpr std::string_view name = "convolution";
  Direction direction = Direction::result;
  ConvAxes axes;
  int64_t groups = 1;
  Layout first, second, result;
  static constexpr auto fields() {
    return std::tuple(field("direction", &Convolution::direction),
                      field("axes", &Convolution::axes), field("groups", &Convolution::groups),
                      field("first", &Convolution::first), field("second", &Convolution::second),
                      field("result", &Convolution::result));
  }
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

// How the sums of dw are cut, by the sizes of a group alone. Part p of the batch is the images from
// N p / parts to N (p + 1) / parts, rounded down. A part's sum starts from +0 and takes, image by
// image, the sum of products over each `width` windows (the last of an image may be fewer). The
// parts' sums add up in order: ((s0 + s1) + s2) + … An item of work is `channels_each` channels.
struct KernelSums {
  int64_t parts = 1, width = 1, channels_each = 1;
};
KernelSums kernel_sums(const Convolution& c);
// Positions worked on together where each has `rows` elements.
int64_t tile_width(int64_t rows, int64_t positions);

// Images [N, C, H, W], operand 0, into their columns [N, C * taps, windows], result 0, in order.
// Row (c, k) of the columns holds, for each window, the element that it reads of channel c with
// element k of the kernel; 0 in the padding. `folds`: columns, operand 0, into images, result 0, in
// order. An element of an image is then the sum of the columns' elements that were read of it, from
// +0 on, k ascending; 16-bit floats are added in f32 and rounded once.
struct Columns {
  static constexpr std::string_view name = "columns";
  DType dtype = DType::f32;
  bool folds = false;
  ConvAxes axes;     // the last two
  ConvTensor image;  // of an operand
  Sizes columns;     // strides of an operand
  int64_t batch = 0, channels = 0;
  static constexpr auto fields() {
    return std::tuple(field("dtype", &Columns::dtype), field("folds", &Columns::folds),
                      field("axes", &Columns::axes), field("image", &Columns::image),
                      field("columns", &Columns::columns), field("batch", &Columns::batch),
                      field("channels", &Columns::channels));
  }
  friend bool operator==(const Columns&, const Columns&) = default;
};

// The greatest element of each window of operand 0 into result 0, its place in an image (a
// row-major number) into result 1, which is i64. The elements of both lie in order. A NaN is the
// greatest. Of several NaNs of a window it is the last in row-major order, of other equal elements
// the first. The padding has no say; each window holds an element.
struct MaxPool {
  static constexpr std::string_view name = "max_pool";
  DType dtype = DType::f32;
  ConvAxes axes;
  ConvTensor x;
  int64_t channels = 0, planes = 0, windows = 1;  // planes: images times channels
  static constexpr auto fields() {
    return std::tuple(field("dtype", &MaxPool::dtype), field("axes", &MaxPool::axes),
                      field("x", &MaxPool::x), field("channels", &MaxPool::channels),
                      field("planes", &MaxPool::planes), field("windows", &MaxPool::windows));
  }
  friend bool operator==(const MaxPool&, const MaxPool&) = default;
};

}  // namespace gradus::work
