// What this build of Gradus was made without.
#pragma once

#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace gradus {

// Libraries that a build may leave out, by the CMake option GRADUS_<NAME>=OFF.
enum class Part {
  llvm,      // compiled kernels on the CPU: programs run unfused
  onednn,    // products and convolutions in f32 and bf16: by the reference loops
  openblas,  // products in f64: by the reference loops
  onnx,      // ONNX models: refused
};

bool has_part(Part part);
// "this build has no LLVM (it was configured with GRADUS_LLVM=OFF)", for messages.
std::string why_missing(Part part);
// "without LLVM, oneDNN"; empty where nothing is left out.
std::string left_out();
// Why this build loads no plug-ins, and what to do; empty where it does.
std::string why_no_plugins();

}  // namespace gradus

#pragma GCC visibility pop
