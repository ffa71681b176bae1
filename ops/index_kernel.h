// Reading and writing at places that index tensors name.
#pragma once

#include "ops/copies.h"

namespace gradus::ops {

// An index tensor, and what it picks from.
struct IndexOperand {
  int argument = 0;
  DType dtype = DType::i64;  // i64 or i32
  Sizes strides;             // over the common shape of all index tensors
  int64_t size = 0;          // of the dimension it picks from: the bound
  int64_t step = 0;          // that dimension's stride
  bool wraps = false;        // negative ones count from the end
  int dimension = 0;         // for messages
};

enum class IndexAction : uint8_t { read, write, add };

// The elements on one side lie where the index says (the indexed side), on the other in order (the
// plain side). `read` goes from the indexed side to the plain one, `write` and `add` the other way,
// in index order, whatever the number of threads.
struct IndexSides {
  DType dtype = DType::f32;
  IndexAction action = IndexAction::read;
  int indexed = 0;               // argument
  int plain = 0;                 // argument
  bool plain_is_number = false;  // one element of `number_dtype` for all
  DType number_dtype = DType::f64;
  double alpha = 1;  // add: plain * alpha
};

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

// Makes it the call's kernel. For `write` and `add` the result begins as a copy of operand 0, and
// `indexed` is set to where it is worked on.
void bind_slabs(BindCall& call, SlabPlan plan);
void bind_elements(BindCall& call, ElementPlan plan);

// What is wrong with an index.
Error index_error(const Operator& op, const IndexOperand& index, int64_t value);
// A kernel that holds the elements of an index tensor of `shape`, its one argument, to what `of`
// says, and does nothing else: it throws what an instruction of `op` would. `of.strides` are the
// tensor's.
ir::Kernel bind_check(const ir::Operator& op, IndexOperand of, Sizes shape);

}  // namespace gradus::ops
