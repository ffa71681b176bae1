// The opaque C++ functions that the tool brings: programs name them in `cpp_op`.
#pragma once

namespace gradus::cli {

// Registers, all for tensors of one type, f64 or f32, and element by element:
//   swish(x) = x sigmoid(x), of any order, made of operators on variables, replayable;
//   square_opaque(x) = x^2, of order 2, with a backward of its own;
//   two_out(x, w) = sin(x), x w, of order 3.
// Any number of times, from any thread. Throws Error if somebody else has taken one of the names.
void register_functions();

}  // namespace gradus::cli
