// Functions of square matrices, one matrix after the other, in f64.
#pragma once

#include "ops/value.h"

namespace gradus::ops {

enum class MatrixFunction { cholesky, inverse, det, cofactor };

// Binds result 0 as the function of operand 0's matrices, its last two dimensions. A matrix that
// has no such function is an Error when it is met.
void bind_matrix(BindCall& call, MatrixFunction function);
// Binds result 0 as the solutions of op(operand 0) y = operand 1.
void bind_triangular_solve(BindCall& call, bool upper, bool transpose);

}  // namespace gradus::ops
