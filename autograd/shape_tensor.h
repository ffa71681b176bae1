// Tensors that have a shape and no values, for traces.
#pragma once

#include "gradus/graph.h"
#include "gradus/tensor.h"

namespace gradus::autograd {

// Of a type whose sizes are known, with a storage of its own to be known by. All share memory that
// is never written to and takes none of the machine's: who reads it all the same reads zeros.
// Undefined where there is no such memory, or not enough.
Tensor shape_tensor(const ir::Type& type);

}  // namespace gradus::autograd
