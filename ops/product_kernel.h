// What computes a product: a library where it is faster, our own loops (ops/gemm.h) elsewhere.
//
// f32 and bf16 go to oneDNN, f64 to OpenBLAS, from a size on and where they read the operands where
// they lie. All other dtypes, sizes and layouts, and every vector, are ours. A library's product
// is cut into tiles that depend on the sizes alone, each computed by one worker: the result has the
// same bits whatever the number of workers, though not on every instruction set.
#pragma once

#include "ir/operator.h"
#include "ops/gemm.h"

namespace gradus::ops {

// Binds result 0 as the product of operands 0 and 1.
void bind_product(ir::BindCall& call, Gemm product);

// Whether `bind_product` gives these sizes and strides to a library.
bool is_for_library(const Gemm& product);

}  // namespace gradus::ops
