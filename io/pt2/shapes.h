// What rules that move elements have in common.
#pragma once

#include "io/pt2/call.h"

namespace gradus::pt2 {

using ir::Literal;

// An index or a bound from the front, of a dimension of size n. A number is left as it is: the
// operators count negative ones from the end themselves.
Dim from_front(const Dim& index, const Dim& n);
// One of these sizes; an archive may say more than there are.
const Dim& size_at(const Dims& sizes, int64_t dim);
// Dimensions, counted from the front.
Ints dims_of(Call& c, std::string_view name, int rank);
// The value with these sizes, which are its own said in another way.
Value with_sizes(const Value& x, const Dims& sizes);
// dim, start, end and step of a slice of x.
LiteralList slice_attributes(Call& c, const Value& x);
// offset, dim1 and dim2 of a diagonal; these are the dimensions where the node does not say.
LiteralList diagonal_attributes(Call& c, int64_t dim1, int64_t dim2, int rank);
// With at least so many dimensions, as torch.atleast_2d has them.
Value at_least(const Value& x, int rank);
Value flat(const Value& x);
// Throws Error where x has fewer dimensions; `what` begins the message: "its matrix".
void need_dims(const Value& x, int least, std::string_view what);
void need_tensor(const Value& x, std::string_view what);
// A number as an attribute.
Literal as_literal(const Value& number);
// 0, 1, .. of x's shape: where its elements are in row-major order.
Value places_in(const Value& x);
// The whole in row-major order, but `part` at these places.
Value written_at(const Value& whole, const Value& places, const Value& part);
// `steps` numbers from one to another, tensors without dimensions. As in ATen the first half is
// counted from the start, and the rest from the end.
Value evenly_spaced(const Value& start, const Value& end, int64_t steps);
// The places of the strided view that a node describes, in a tensor that is contiguous.
Value strided(Call& c, const Value& x);

}  // namespace gradus::pt2
