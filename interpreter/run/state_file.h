// What saving a state and resuming it agree on: a .safetensors file of what later stages read.
//
// metadata  gradus_state    the format's version
//           program, hash   its name; what its lowered text hashes to
//           stage           that runs next
//           h<r>            of a register with a handle: the recipe that makes it
//           recipe<i>       how a handle is made anew: see `Recipes`
//           r<r>            of a register: the piece of memory it lies in, and where (bytes)
// tensors   key<s>          the key of segment s's plan, from which it is planned again
//           m<k>            a piece of memory that registers share
//           c<r>            the elements of a register that is carried in a block
//           o<i>.<n>        operand n of recipe i
#pragma once

#include "interpreter/run/steps.h"

namespace gradus::interpreter {

inline constexpr std::string_view state_format = "1";

// Of the lowered program: registers are those of its compiler.
std::string hash_of(const Code& code);
// Bytes from the first element to behind the last one.
inline int64_t bytes_of(const Layout& l) {
  return l.extent() * static_cast<int64_t>(size_of(l.dtype));
}
// The first segment of a stage; of the end, all of them.
size_t first_segment_left(const Code& code, size_t stage);
// Registers that the segments from `next` on read, made by those before.
std::vector<Register> registers_left(const Code& code, size_t next);

}  // namespace gradus::interpreter
