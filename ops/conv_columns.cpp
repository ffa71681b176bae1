#include "ops/conv_columns.h"

#include <algorithm>
#include <numeric>

#include "tensor/convert.h"

namespace gradus::ops {

namespace {

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

// The first i with start + i * move >= bound, for a positive move.
int64_t first_reaching(int64_t bound, int64_t start, int64_t move) {
  return start >= bound ? 0 : (bound - start + move - 1) / move;
}

// Positions [q, q + n) of a phase as rows along its last axis: row(i0, i1, i2, count).
template <class F>
[[gnu::always_inline]] inline void for_each_row(const Phase& p, int64_t q, int64_t n, F row) {
  const int64_t n2 = p.axes[2].count, n1 = p.axes[1].count;
  int64_t i2 = q % n2, i1 = q / n2 % n1, i0 = q / n2 / n1;
  while (n > 0) {
    const int64_t count = std::min(n2 - i2, n);
    row(i0, i1, i2, count);
    n -= count;
    i2 = 0;
    if (++i1 == n1) {
      i1 = 0;
      ++i0;
    }
  }
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

template <class T, class C>
void gather_columns(const Phase& p, const ConvTensor& layout, const T* source, int64_t channels,
                    int64_t first, int64_t n, C* columns) {
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = layout.strides;
  auto tap = [&](const T* channel, int64_t j0, int64_t j1, int64_t j2, C* out) {
    const int64_t start = a2.offset + j2 * a2.tap_move;
    // Positions along the last axis that read elements of the source.
    const int64_t low = std::min(first_reaching(0, start, a2.move), a2.count);
    const int64_t high = std::min(first_reaching(a2.source_size, start, a2.move), a2.count);
    for_each_row(p, first, n, [&](int64_t i0, int64_t i1, int64_t i2, int64_t count) {
      const int64_t u0 = a0.offset + i0 * a0.move + j0 * a0.tap_move;
      const int64_t u1 = a1.offset + i1 * a1.move + j1 * a1.tap_move;
      const bool inside = u0 >= 0 && u0 < a0.source_size && u1 >= 0 && u1 < a1.source_size;
      const int64_t begin = inside ? std::clamp(low, i2, i2 + count) - i2 : count;
      const int64_t end = inside ? std::max(begin, std::clamp(high, i2, i2 + count) - i2) : count;
      std::fill(out, out + begin, C(0));
      if (begin < end) {
        const T* from = channel + u0 * s0 + u1 * s1 + (start + i2 * a2.move) * s2;
        const int64_t step = a2.move * s2;
        if (step == 1)
          for (int64_t i = begin; i < end; ++i) out[i] = convert<C>(from[i]);
        else
          for (int64_t i = begin; i < end; ++i) out[i] = convert<C>(from[i * step]);
      }
      std::fill(out + end, out + count, C(0));
      out += count;
    });
  };
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j0 = 0; j0 < a0.taps; ++j0)
      for (int64_t j1 = 0; j1 < a1.taps; ++j1)
        for (int64_t j2 = 0; j2 < a2.taps; ++j2, columns += n)
          tap(source + c * layout.channel_stride, j0, j1, j2, columns);
}

template <class T, class C>
void scatter_positions(const Phase& p, const ConvTensor& layout, const C* values, int64_t first,
                       int64_t n, T* target) {
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = layout.strides;
  const int64_t step = a2.step * s2;
  for_each_row(p, first, n, [&](int64_t i0, int64_t i1, int64_t i2, int64_t count) {
    T* to = target + (a0.first + i0 * a0.step) * s0 + (a1.first + i1 * a1.step) * s1 +
            (a2.first + i2 * a2.step) * s2;
    for (int64_t i = 0; i < count; ++i) to[i * step] = convert<T>(values[i]);
    values += count;
  });
}

#define GRADUS_COLUMNS(T, C)                                                                \
  template void gather_columns(const Phase&, const ConvTensor&, const T*, int64_t, int64_t, \
                               int64_t, C*);                                                \
  template void scatter_positions(const Phase&, const ConvTensor&, const C*, int64_t, int64_t, T*);
GRADUS_COLUMNS(double, double)
GRADUS_COLUMNS(float, float)
GRADUS_COLUMNS(Half, float)
GRADUS_COLUMNS(BFloat16, float)
#undef GRADUS_COLUMNS
template void gather_columns(const Phase&, const ConvTensor&, const Half*, int64_t, int64_t,
                             int64_t, Half*);
template void gather_columns(const Phase&, const ConvTensor&, const BFloat16*, int64_t, int64_t,
                             int64_t, BFloat16*);

}  // namespace gradus::ops
