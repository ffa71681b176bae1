// Index work, as operators see it.
#pragma once

#include "ops/bind_work.h"

namespace gradus::ops {

using work::IndexAction;
using work::IndexOperand;
using work::IndexSides;

// One index tensor per picked dimension, all of one common shape: y[outer, i.., inner].
struct SlabPlan {
  IndexSides sides;
  SmallVector<IndexOperand, 2> indices;
  Sizes shape, plain_strides;               // of the index tensors' common shape
  Sizes outer, outer_plain, outer_indexed;  // before it
  Sizes inner, inner_plain, inner_indexed;  // after it
};
// One index per element, along one dimension: gather and scatter.
struct ElementPlan {
  IndexSides sides;
  IndexOperand index;
  Sizes shape, plain_strides,
      indexed_strides;  // of the index tensor; indexed: 0 along its dimension
};

// Makes it the call's work. For `write` and `add` the result begins as a copy of operand 0, and
// `indexed` is set to where it is worked on.
void bind_slabs(BindCall& call, SlabPlan plan);
void bind_elements(BindCall& call, ElementPlan plan);
// The elements of operand 0, added to zeros at these strides of result 0.
void bind_window_sum(BindCall& call, Sizes strides, int64_t offset);

}  // namespace gradus::ops
