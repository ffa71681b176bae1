// What derivative rules and compositions emit.
#pragma once

#include "gradus/value.h"

#pragma GCC visibility push(default)

// Operators named by their types: emit<Exp>(x).
//
// A rule needs of an operator that it emits no more than the declaration. In the tree
// ops/declared.h has those of other families; who gives attributes includes the family's header. A
// rule of one's own names its own operators so, and those of Gradus by gradus/rules.h, or as
// find("exp") of gradus/registry.h.

namespace gradus::ops {

// Its address stands for the struct: the record has it, and rules find the record by it.
template <class Op>
inline char type_key = 0;

// The table's record with this key. An InternalError, which shows `who`, if there is none: no
// family lists the operator, or it is to be registered and was not.
const Operator& record_of(const void* key, std::string_view who);

// The record of an operator, of which the declaration is enough: the table holds it, and only the
// file of its family makes it.
template <class Op>
const Operator& record() {
  static const Operator& found = record_of(&type_key<Op>, __PRETTY_FUNCTION__);
  return found;
}

// Emits an operator in the world of its operands, of which one is a tensor; its first result.
Value emit(const Operator& op, Attributes attributes, std::span<const Value> operands);
Value emit(const Operator& op, std::span<const Value> operands);  // with all attributes' defaults

// The gradient of an operator that is its own adjoint: the same call, of the cotangent.
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

// The same in a world that is named, since there may be no operand to take it from: all results.
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands) {
  return world.emit(record<Op>(), record<Op>().read({}), operands);
}
template <class Op>
SmallVector<Value, 2> emit_all(World& world, std::span<const Value> operands,
                               typename Op::Attr attributes) {
  return world.emit(record<Op>(), make_attributes(std::move(attributes)), operands);
}

// What derivative rules and compositions say about values. Each function emits one operator (or
// none where nothing needs doing). Operands may be numbers wherever a program's may.

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
Value zeros_of(World& world, Type type);
// The same where only parts are going to stay: one element, seen as all of them.
Value zeros_to_fill(World& world, Type type);

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
SmallVector<Value, 2> split(const Value& x, const Dims& sizes, int64_t dim);
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
