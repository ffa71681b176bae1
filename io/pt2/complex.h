// Complex numbers among a program's tensors. Here they are pairs of real ones: an operator has a
// rule for them in the tables of complex.cpp and fourier.cpp, or is refused.
#pragma once

#include "io/pt2/call.h"

namespace gradus::pt2 {

// |z| of a value with its parts along the last dimension. Its derivative at 0 is 0.
Value magnitude_of(const Value& whole);
// Gives a complex result: its parts, cast and expanded to the result's type.
void give_pair(Call& c, const Pair& z);
// A complex operand's value with the parts along the last dimension, or that of a real one.
Value whole_of(Call& c, std::string_view name = "self");
// A rule of real tensors for both parts. Refused where a result is real.
void by_parts(Call& c);

}  // namespace gradus::pt2
