// What kernels are called, and who is told: gdb by LLVM, perf by a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fusion/stage.h"

namespace gradus::fusion::cpu {

// The name of a nest's function: gradus_, what it computes, and a hash that tells it from others
// that compute alike. Letters, digits and underscores.
std::string kernel_name(const Nest& nest);
// Of a small stage: how many items it has, and a hash.
std::string kernel_name(const StageProgram& stage);

// Adds a line to /tmp/perf-PID.map, where perf looks names up. Thread-safe. Where that file cannot
// be written, or is not this user's own, nothing happens.
void add_to_perf_map(uint64_t address, uint64_t bytes, const std::string& name);

}  // namespace gradus::fusion::cpu
