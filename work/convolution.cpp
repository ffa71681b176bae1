#include "work/convolution.h"

#include <algorithm>
#include <numeric>

namespace gradus::work {

namespace {

constexpr int64_t tile_elements = 1 << 17;  // of columns gathered at a time, about
constexpr int64_t widest_tile = 2048, narrowest_tile = 64;

// Positions r, r + stride, .. of the image: with n = r + padding, window (n + i stride - dilation
// k) / stride holds it as its element k, for the k that divide.
PhaseAxis image_axis(const ConvAxis& a, int64_t r) {
  PhaseAxis p;
  p.first = r;
  p.step = a.stride;
  p.count = (a.image - r + a.stride - 1) / a.stride;
  p.source_size = a.windows;
  p.tap_step = a.stride / std::gcd(a.stride, a.dilation);
  p.taps = 0;
  for (int64_t k = 0; k < std::min(a.kernel, p.tap_step); ++k)
    if ((r + a.padding - a.dilation * k) % a.stride == 0) {
      p.tap_first = k;
      p.taps = (a.kernel - k + p.tap_step - 1) / p.tap_step;
      p.offset = (r + a.padding - a.dilation * k) / a.stride;
      p.tap_move = -(a.dilation * p.tap_step / a.stride);
      break;
    }
  return p;
}

}  // namespace

Phase window_phase(const ConvAxes& axes) {
  Phase p;
  for (int d = 0; d < conv_axes; ++d) {
    const ConvAxis& a = axes[d];
    p.axes[d] = {0, 1, a.windows, 0, 1, a.kernel, -a.padding, a.stride, a.dilation, a.image};
  }
  return p;
}

std::vector<Phase> image_phases(const ConvAxes& axes) {
  std::vector<Phase> phases;
  auto remainders = [&](int d) { return std::min(axes[d].stride, axes[d].image); };
  for (int64_t r0 = 0; r0 < remainders(0); ++r0)
    for (int64_t r1 = 0; r1 < remainders(1); ++r1)
      for (int64_t r2 = 0; r2 < remainders(2); ++r2)
        phases.push_back(
            {{image_axis(axes[0], r0), image_axis(axes[1], r1), image_axis(axes[2], r2)}});
  return phases;
}

Phase identity_phase(const std::array<int64_t, conv_axes>& sizes) {
  Phase p;
  for (int d = 0; d < conv_axes; ++d) p.axes[d].count = p.axes[d].source_size = sizes[d];
  return p;
}

ConvTensor::ConvTensor(const Layout& l) : batch_stride(l.strides[0]), channel_stride(l.strides[1]) {
  const int spatial = l.rank() - 2;
  for (int d = 0; d < spatial; ++d) strides[conv_axes - spatial + d] = l.strides[2 + d];
}

bool ConvTensor::lies_in_place(const Phase& p) const {
  int64_t step = 1;
  for (int d = conv_axes - 1; d >= 0; --d) {
    const PhaseAxis& a = p.axes[d];
    const bool whole = a.taps == 1 && a.offset == 0 && a.move == 1 && a.count == a.source_size &&
                       a.first == 0 && a.step == 1;
    if (!whole || (a.count > 1 && strides[d] != step)) return false;
    step *= a.count;
  }
  return true;
}

std::string_view name_of(Direction direction) {
  constexpr std::string_view names[] = {"result", "image", "kernel"};
  return names[static_cast<size_t>(direction)];
}

WindowRange range_of(const ConvAxis& a, int64_t window) {
  const int64_t start = window * a.stride - a.padding;
  int64_t first = start;
  if (first < 0) first += (-first + a.dilation - 1) / a.dilation * a.dilation;
  return {first, std::min(start + (a.kernel - 1) * a.dilation + 1, a.image)};
}

int64_t tile_width(int64_t rows, int64_t positions) {
  int64_t n = tile_elements / std::max<int64_t>(rows, 1) / 16 * 16;
  return std::max<int64_t>(1, std::min(positions, std::clamp(n, narrowest_tile, widest_tile)));
}

KernelSums kernel_sums(const Convolution& c) {
  constexpr int64_t chunk_rows = 256, enough_items = 16;
  const Layout &x = c.first, &dy = c.second;
  const int64_t batch = x.shape[0], rows = dy.shape[1] / c.groups;
  const int64_t channels = x.shape[1] / c.groups;
  const int64_t taps = c.axes[0].kernel * c.axes[1].kernel * c.axes[2].kernel;
  const int64_t positions = c.axes[0].windows * c.axes[1].windows * c.axes[2].windows;
  KernelSums s;
  s.channels_each = std::clamp<int64_t>(chunk_rows / taps, 1, std::max<int64_t>(channels, 1));
  const int64_t chunks = (channels + s.channels_each - 1) / s.channels_each;
  s.parts = std::clamp<int64_t>(enough_items / std::max<int64_t>(chunks, 1), 1,
                                std::max<int64_t>(batch, 1));
  s.width = tile_width(std::max(s.channels_each * taps, rows), positions);
  return s;
}

}  // namespace gradus::work
