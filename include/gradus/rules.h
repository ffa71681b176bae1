// The functions with which derivative rules and compositions emit operators.
#pragma once

#include "gradus/value.h"

#pragma GCC visibility push(default)

// Emitting operators by their types: emit<Exp>(x).
//
// A rule needs only the declaration of an operator that it emits. In Gradus' tree, ops/declared.h
// declares the operators of other families; a rule that sets attributes includes the family's
// header. A custom rule names its own operators by type, and those of Gradus by the functions of
// this header or by find("exp") of gradus/registry.h.

namespace gradus::ops {

// The address of this variable identifies the struct. The record of the operator contains the
// address, and rules find the record by it.
template <class Op>
inline char type_key = 0;

// Returns the record with this key. Throws InternalError, which contains `who`, if there is none:
// no family lists the operator, or it was not registered.
const Operator& record_of(const void* key, std::string_view who);

// Returns the record of an operator. The declaration of its struct is sufficient, because the table
// of operators has the record.
template <class Op>
const Operator& record() {
  static const Operator& found = record_of(&type_key<Op>, __PRETTY_FUNCTION__);
  return found;
}

// Emits an operator in the world of its operands, and returns its first result. At least one
// operand must be a tensor.
Value emit(const Operator& op, Attributes attributes, std::span<const Value> operands);
Value emit(const Operator& op, std::span<const Value> operands);  // with default attributes

// The gradient of an operator that is its own adjoint: emits the same call for the cotangent.
Value emit_again(VjpCall& d);

// emit<Exp>(x), emit<Hypot>(x, y)
template <class Op>
Value emit(const Value& x) {
  return emit(record<Op>(), {&x, 1});
}
template <class Op>
Value emit(const Value& x, const Value& y) {
  return emit(record<Op>(), std::array{x, y});
}
// emit<Where>({condition, x, y})
template <class Op>
Value emit(std::initializer_list<Value> operands) {
  return emit(record<Op>(), {operands.begin(), operands.size()});
}
// emit<Sum>({x}, {.dim = dims, .keepdim = true})
template <class Op>
Value emit(std::initializer_list<Value> operands, typename Op::Attr attributes) {
  return emit(record<Op>(), make_attributes(std::move(attributes)),
              {operands.begin(), operands.size()});
}

// The same in a given world, also for operators without operands. Returns all results.
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands) {
  return world.emit(record<Op>(), record<Op>().read({}), operands);
}
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands,
                               typename Op::Attr attributes) {
  return world.emit(record<Op>(), make_attributes(std::move(attributes)), operands);
}

// Functions over values for derivative rules and compositions. Each function emits one operator, or
// none if the result equals an operand. Operands may be numbers where those of the operator may.

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
// Arithmetic with a size, such as the divisor of a mean.
Value operator/(const Value& a, const Dim& b);
Value operator*(const Value& a, const Dim& b);

// Comparisons and logic. The results are bool tensors.
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

// Elements of a where the condition holds, otherwise elements of b.
Value where(const Value& condition, const Value& a, const Value& b);
// x where the condition holds, zero elsewhere. A NaN or infinity of x does not affect other
// elements.
Value keep_where(const Value& condition, const Value& x);

// The same values without a derivative.
Value detach(const Value& x);
Value cast(const Value& x, DType dtype);  // x itself if it has this dtype
Value full(World& world, const Dims& shape, double value, DType dtype);
Value zeros_like(const Value& x);  // `full` with the shape of x; does not read the values of x
Value ones_like(const Value& x);
Value zeros_of(World& world, Type type);
// Zeros of which a later operator overwrites a part: one element, expanded to the type.
Value zeros_to_fill(World& world, Type type);

Value arange(World& world, const Dim& n);            // 0, 1, .. n - 1, as i64
Value eye(World& world, const Dim& n, DType dtype);  // the identity matrix, n x n

// Reductions. `dims` may be negative. sum_all sums all dimensions.
Value sum(const Value& x, const Ints& dims, bool keepdim);
Value sum_all(const Value& x);
// Sums x to a shape that broadcasts to the shape of x: the gradient of broadcasting.
Value sum_to(const Value& x, const Dims& shape);

// Operators that change the shape.
Value expand(const Value& x, const Dims& shape);   // x itself if it has this shape
Value reshape(const Value& x, const Dims& shape);  // x itself if it has this shape
Value unsqueeze(const Value& x, int64_t dim);
Value squeeze(const Value& x, int64_t dim);
Value transpose(const Value& x, int64_t dim0, int64_t dim1);
Value permute(const Value& x, const Ints& dims);
Value contiguous(const Value& x);  // in row-major order
Value select(const Value& x, int64_t dim, const Dim& index);
Value slice(const Value& x, int64_t dim, const Dim& start, const Dim& end, int64_t step = 1);
Value cat(std::span<const Value> xs, int64_t dim);
SmallVector<Value, 2> split(const Value& x, const Dims& sizes, int64_t dim);
// Adds zeros before and after along a dimension. A negative amount removes elements. Returns x
// itself if both are 0.
Value pad_zeros(const Value& x, int64_t dim, const Dim& before, const Dim& after);
// The place of the first of the greatest elements of x, in row-major order, as i64[].
Value argmax(const Value& x);
// Reads and adds at the positions of an index tensor, along a dimension.
Value index_select(const Value& x, const Value& index, int64_t dim);
Value gather(const Value& x, const Value& index, int64_t dim);
Value scatter_add(const Value& x, const Value& index, const Value& src, int64_t dim);
// The gradient of a call whose result 0 has elements of operand 0, chosen along `dim` at the
// positions of result 1.
Value given_back(VjpCall& d, int64_t dim);
Value matmul(const Value& a, const Value& b);
Value matmul_transposed(const Value& a, const Value& b);  // a b^T
Value mm(const Value& a, const Value& b);
Value bmm(const Value& a, const Value& b);
Value diagonal(const Value& x);  // of a matrix
// Swaps the last two dimensions.
Value swap_last(const Value& x);

// Restores the dimensions that a reduction without keepdim removed, so that y broadcasts against x.
// `dims` must be ascending and counted from the front.
Value restore_dims(const Value& y, const Ints& dims, bool keepdim, int rank);

}  // namespace gradus::ops

#pragma GCC visibility pop
