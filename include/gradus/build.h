// The libraries that this build of Gradus lacks.
#pragma once

#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace gradus {

// Libraries that a build may leave out with the CMake option GRADUS_<NAME>=OFF.
enum class Part {
  llvm,  // compiled kernels on the CPU; without it, programs run unfused
  // products and convolutions in f32 and bf16; without it, reference loops compute them
  onednn,
  openblas,  // products in f64; without it, reference loops compute them
  onnx,      // ONNX models; without it, they are errors
};

// Whether this build has the library.
bool has_part(Part part);
// Returns a message: "this build has no LLVM (it was configured with GRADUS_LLVM=OFF)".
std::string why_missing(Part part);
// Returns a list such as "without LLVM, oneDNN", or an empty string if no library is missing.
std::string left_out();
// Returns the reason why this build cannot load plug-ins, with advice, or an empty string if it
// can.
std::string why_no_plugins();

}  // namespace gradus

#pragma GCC visibility pop
