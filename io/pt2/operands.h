// What rules of several families say about arguments.
#pragma once

#include <string_view>

#include "io/pt2/call.h"

namespace gradus::pt2 {

// A tensor argument in the result's dtype; numbers stay numbers.
Value in_result_dtype(Call& c, std::string_view name = "self");
// The same; undefined where it is not given.
Value in_result_dtype_or_undefined(Call& c, std::string_view name);
// A number among the arguments as an attribute: an integer stays one.
ir::Literal number_attribute(Call& c, std::string_view name);
// Some of the dimensions of a tensor, ascending and counted from the front. All of them where the
// argument is missing, None or empty.
Ints dims_or_all(Call& c, std::string_view name, int rank);
// x; with one dimension where it has none.
Value as_row(const Value& x);
// A number as a tensor without dimensions.
Value number_tensor(Call& c, const Value& number, DType dtype);
// max(x, 0), whose derivative at 0 is 0.
Value positive_part(const Value& x);
// The operator of that name. Refused where there is none.
std::string_view existing(Call& c, std::string_view op);

}  // namespace gradus::pt2
