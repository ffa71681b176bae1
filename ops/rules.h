// What derivative rules and compositions say about values. Each function emits one operator (or
// none where nothing needs doing). Operands may be numbers wherever a program's may.
#pragma once

#include "ops/emit.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator/(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator*(double a, const Value& b);
Value operator/(double a, const Value& b);
// By a size: the mean's divisor.
Value operator/(const Value& a, const Dim& b);
Value operator*(const Value& a, const Dim& b);

// Comparisons, as bool tensors.
Value eq(const Value& a, const Value& b);
Value ne(const Value& a, const Value& b);
Value lt(const Value& a, const Value& b);
Value le(const Value& a, const Value& b);
Value gt(const Value& a, const Value& b);
Value ge(const Value& a, const Value& b);
Value logical_and(const Value& a, const Value& b);
Value logical_or(const Value& a, const Value& b);
Value logical_not(const Value& a);
inline Value num(double v) { return Value::number(v); }
inline Value num(int64_t v) { return Value::number(v); }

Value where(const Value& condition, const Value& a, const Value& b);
// x where the condition holds, zero elsewhere (NaN and infinities of x do not leak).
Value keep_where(const Value& condition, const Value& x);

Value detach(const Value& x);
Value cast(const Value& x, DType dtype);  // itself if it has that dtype
Value full(World& world, const Dims& shape, double value, DType dtype);
Value zeros_like(const Value& x);  // `full` of x's shape: x's values are not read
Value ones_like(const Value& x);
Value zeros_of(World& world, const Type& type);
// The same where only parts are going to stay: one element, seen as all of them.
Value zeros_to_fill(World& world, const Type& type);

Value arange(World& world, const Dim& n);            // 0, 1, .. n - 1, as i64
Value eye(World& world, const Dim& n, DType dtype);  // n x n

// Reductions. `dims` may be negative; all of them where empty is not meant: see sum_all.
Value sum(const Value& x, const Ints& dims, bool keepdim);
Value sum_all(const Value& x);
// Sums x down to a shape that broadcasts to x's: undoes broadcasting.
Value sum_to(const Value& x, const Dims& shape);

// Shape operators.
Value expand(const Value& x, const Dims& shape);   // itself if it has that shape
Value reshape(const Value& x, const Dims& shape);  // likewise
Value unsqueeze(const Value& x, int64_t dim);
Value squeeze(const Value& x, int64_t dim);
Value transpose(const Value& x, int64_t dim0, int64_t dim1);
Value permute(const Value& x, const Ints& dims);
Value select(const Value& x, int64_t dim, const Dim& index);
Value slice(const Value& x, int64_t dim, const Dim& start, const Dim& end, int64_t step = 1);
Value cat(std::span<const Value> xs, int64_t dim);
// Zeros before and after along a dimension (a negative amount takes away); itself where both are 0.
Value pad_zeros(const Value& x, int64_t dim, const Dim& before, const Dim& after);
// By an index tensor, along a dimension.
Value index_select(const Value& x, const Value& index, int64_t dim);
Value gather(const Value& x, const Value& index, int64_t dim);
Value scatter_add(const Value& x, const Value& index, const Value& src, int64_t dim);
// The gradient of a call that picks its result 0 from operand 0 along `dim`, at the places that are
// its result 1.
Value given_back(VjpCall& d, int64_t dim);
Value matmul(const Value& a, const Value& b);
Value matmul_transposed(const Value& a, const Value& b);  // a b^T
Value mm(const Value& a, const Value& b);
Value bmm(const Value& a, const Value& b);
Value diagonal(const Value& x);  // of a matrix
// Swaps the last two dimensions.
Value swap_last(const Value& x);

// Restores dimensions, ascending and counted from the front, that a reduction without keepdim
// dropped, so that y broadcasts against x.
Value restore_dims(const Value& y, const Ints& dims, bool keepdim, int rank);

}  // namespace gradus::ops

#pragma GCC visibility pop
