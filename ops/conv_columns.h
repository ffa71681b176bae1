// Windows of an image as columns of a matrix: what makes a convolution a matrix product.
#pragma once

#include <array>
#include <vector>

#include "tensor/layout.h"

namespace gradus::ops {

inline constexpr int conv_axes = 3;  // spatial dimensions; absent ones come first and have size 1

// A convolution's sizes. Window i of an axis reads elements i * stride - padding + k * dilation,
// k < kernel, of `image`; elements outside are 0.
struct ConvAxis {
  int64_t image = 1, windows = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
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
};

// columns[(c * taps + j) * n + q - first] = what position q reads with tap j of channel c, for
// q in [first, first + n), in row-major order of taps and positions. `source` is channel 0.
template <class T, class C>
void gather_columns(const Phase& p, const ConvTensor& layout, const T* source, int64_t channels,
                    int64_t first, int64_t n, C* columns);
// The other way: target position q of a channel = values[q - first].
template <class T, class C>
void scatter_positions(const Phase& p, const ConvTensor& layout, const C* values, int64_t first,
                       int64_t n, T* target);

}  // namespace gradus::ops
