#include "kernels/conv_planes.h"

#include <algorithm>

namespace gradus::kernels {

using work::Phase;
using work::PhaseAxis;

namespace {

// The least that a tap adds to a position's element along an axis, and the range of it.
int64_t least_move(const PhaseAxis& a) { return std::min<int64_t>(0, (a.taps - 1) * a.tap_move); }
int64_t range_of_moves(const PhaseAxis& a) { return std::abs((a.taps - 1) * a.tap_move); }
int64_t move_of(const PhaseAxis& a, int64_t tap) { return tap * a.tap_move - least_move(a); }

// The elements of `count` positions and of their taps, by the remainders.
PhaseAxis copied_axis(const PhaseAxis& a, int64_t count) {
  PhaseAxis c;
  c.count = count + range_of_moves(a) / a.move;
  c.taps = std::min(a.move, range_of_moves(a) + 1);
  c.tap_move = 1;
  c.offset = a.offset + least_move(a);
  c.move = a.move;
  c.source_size = a.source_size;
  return c;
}

// Every tap of the depth for itself.
PhaseAxis copied_depth(PhaseAxis a) {
  a.count = 1;
  return a;
}

}  // namespace

Planes::Planes(const Phase& phase, int64_t rows, int64_t count)
    : copy{{copied_depth(phase.axes[0]), copied_axis(phase.axes[1], rows),
            copied_axis(phase.axes[2], count)}},
      rows(rows),
      pitch(copy.axes[2].count),
      plane(copy.positions()) {}

Phase Planes::from(const Phase& phase, int64_t first, int64_t count) const {
  const auto& [a0, a1, a2] = phase.axes;
  const int64_t row = first / a2.count;
  Phase p = copy;
  p.axes[0].offset += row / a1.count * a0.move;
  p.axes[1].offset += row % a1.count * a1.move;
  p.axes[2].offset += first % a2.count * a2.move;
  p.axes[1].count -= rows - count;
  return p;
}

std::vector<int64_t> Planes::offsets(const Phase& phase, int64_t channels) const {
  const auto& [a0, a1, a2] = phase.axes;
  std::vector<int64_t> at;
  at.reserve(static_cast<size_t>(channels * phase.taps()));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j0 = 0; j0 < a0.taps; ++j0)
      for (int64_t j1 = 0; j1 < a1.taps; ++j1)
        for (int64_t j2 = 0; j2 < a2.taps; ++j2) {
          const int64_t m1 = move_of(a1, j1), m2 = move_of(a2, j2);
          const int64_t tap =
              (j0 * copy.axes[1].taps + m1 % a1.move) * copy.axes[2].taps + m2 % a2.move;
          at.push_back((c * copy.taps() + tap) * plane + m1 / a1.move * pitch + m2 / a2.move);
        }
  return at;
}

}  // namespace gradus::kernels
