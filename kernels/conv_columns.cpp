#include "kernels/conv_columns.h"

#include <algorithm>

#include "gradus/convert.h"

namespace gradus::kernels {

namespace {

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

template <class T, class C>
void gather_columns(const Phase& p, const ConvTensor& layout, const T* source, int64_t channels,
                    int64_t first, int64_t n, C* columns, int64_t pitch) {
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
        for (int64_t j2 = 0; j2 < a2.taps; ++j2, columns += pitch)
          tap(source + c * layout.channel_stride, j0, j1, j2, columns);
}

template <class T, class C>
void scatter_positions(const Phase& p, const ConvTensor& layout, const C* values, int64_t first,
                       int64_t n, T* target, int64_t gap) {
  const auto& [a0, a1, a2] = p.axes;
  const auto [s0, s1, s2] = layout.strides;
  const int64_t step = a2.step * s2;
  for_each_row(p, first, n, [&](int64_t i0, int64_t i1, int64_t i2, int64_t count) {
    T* to = target + (a0.first + i0 * a0.step) * s0 + (a1.first + i1 * a1.step) * s1 +
            (a2.first + i2 * a2.step) * s2;
    for (int64_t i = 0; i < count; ++i) to[i * step] = convert<T>(values[i]);
    values += count + gap;
  });
}

#define GRADUS_COLUMNS(T, C)                                                                       \
  template void gather_columns(const Phase&, const ConvTensor&, const T*, int64_t, int64_t,        \
                               int64_t, C*, int64_t);                                              \
  template void scatter_positions(const Phase&, const ConvTensor&, const C*, int64_t, int64_t, T*, \
                                  int64_t);
GRADUS_COLUMNS(double, double)
GRADUS_COLUMNS(float, float)
GRADUS_COLUMNS(Half, float)
GRADUS_COLUMNS(BFloat16, float)
#undef GRADUS_COLUMNS
template void gather_columns(const Phase&, const ConvTensor&, const Half*, int64_t, int64_t,
                             int64_t, Half*, int64_t);
template void gather_columns(const Phase&, const ConvTensor&, const BFloat16*, int64_t, int64_t,
                             int64_t, BFloat16*, int64_t);

}  // namespace gradus::kernels
