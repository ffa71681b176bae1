// Code for putting rows in order.
#pragma once

#include "fusion/cuda/source.h"
#include "work/work.h"

namespace gradus::fusion::cuda {

// sort    runs of `width` places of each row, in order, become runs of twice as many: an element's
//         place is its place in its own run and the number of those in the other that come before
//         it. Words: x; places before, 0: as they lie; places after, 0: the results; values,
//         indices; items, length, width, kept, inner, outer stride, step, x's step; sizes and
//         strides of the rows
Source sort_source(const work::Sort& w, int rank, bool wide);

}  // namespace gradus::fusion::cuda
