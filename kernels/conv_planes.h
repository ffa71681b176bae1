// Copies of what a convolution reads, with its padding around it. In them each tap is an offset,
// and the positions of a row are neighbours.
#pragma once

#include <vector>

#include "work/convolution.h"

namespace gradus::kernels {

// Of `rows` rows of `count` neighbouring positions of a phase, at one depth (axis 0). A channel has
// a copy for each of copy.taps(): the remainders of its elements by the moves of positions.
struct Planes {
  work::Phase copy;   // what gather_columns copies for positions from (0, 0, 0) on
  int64_t rows = 0;   // of positions
  int64_t pitch = 0;  // from a row of positions to the next
  int64_t plane = 0;  // elements of each copy

  Planes() = default;
  Planes(const work::Phase& phase, int64_t rows, int64_t count);
  int64_t elements(int64_t channels) const { return channels * copy.taps() * plane; }
  // What is copied for positions from `first` on, of as many rows or fewer.
  work::Phase from(const work::Phase& phase, int64_t first, int64_t rows) const;
  // Where the first position reads each tap of each channel.
  std::vector<int64_t> offsets(const work::Phase& phase, int64_t channels) const;
};

}  // namespace gradus::kernels
