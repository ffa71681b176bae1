// Conversions between dtypes as CUDA C++, as gradus/convert.h has them.
//
// A value of a dtype is held so: f64 in double; f32, f16 and bf16 in float; u64 in u64 and other
// integers in i64; bool in bool. What is held is a number of the dtype. Functions that the texts
// call are pieces of fusion/cuda/prelude.h.
#pragma once

#include <string>
#include <string_view>

#include "fusion/cuda/rule_text.h"
#include "gradus/dtype.h"

namespace gradus::fusion::cuda {

TextType held_type(DType dtype);
// What an element is in memory.
std::string_view memory_type(DType dtype);

// An element as it lies in memory -> as it is held, and back. `x` is any expression.
std::string hold(DType dtype, std::string_view x);
std::string unhold(DType dtype, std::string_view x);

// A held value of one dtype -> of another. The result is a name, a call or stands in parentheses if
// `x` is so.
std::string convert(DType from, DType to, std::string_view x);

}  // namespace gradus::fusion::cuda
