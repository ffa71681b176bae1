// Walking strided index spaces.
#pragma once

#include "work/axes.h"

namespace gradus::kernels {

using work::Axes;

// Walks the axes (at least one, none of size 0) in row-major order from index `at` on. Borrows
// them.
class Cursor {
 public:
  Cursor(const Axes& axes, int64_t at) : axes_(axes), index_(axes.size()) {
    for (size_t d = axes.size(); d-- > 0;) {
      index_[d] = at % axes[d].size;
      at /= axes[d].size;
      offset_ += index_[d] * axes[d].stride;
    }
  }
  int64_t offset() const { return offset_; }
  // Elements left along the innermost axis.
  int64_t run() const { return axes_.back().size - index_.back(); }
  // n <= run()
  void advance(int64_t n) {
    size_t d = axes_.size() - 1;
    index_[d] += n;
    offset_ += n * axes_[d].stride;
    for (; d > 0 && index_[d] == axes_[d].size; --d) {
      offset_ += axes_[d - 1].stride - index_[d] * axes_[d].stride;
      index_[d] = 0;
      ++index_[d - 1];
    }
  }

 private:
  const Axes& axes_;
  SmallVector<int64_t, 4> index_;
  int64_t offset_ = 0;
};

}  // namespace gradus::kernels
