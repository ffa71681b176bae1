// Which compiler of nests this is.
#pragma once

#include <string_view>

namespace gradus::fusion::cpu {

// A hash of the files that say how a nest is compiled and called: kernels that are kept in a folder
// are of this compiler if it is in their key. The build makes it (fusion/cpu/CMakeLists.txt).
extern const std::string_view kernel_sources;

}  // namespace gradus::fusion::cpu
