// Runs a kernel of a module on the CPU, stricter than a GPU would.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/module.h"

namespace gradus::ptx {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Launch {
  Dim3 grid, block;
  size_t shared_bytes = 0;  // dynamic
  // A pointer to each parameter's bytes, in order; as many bytes are read as it has.
  std::vector<const void*> args;
  // Instructions that say .approx or .full have no exact result. A kernel that has one, or calls
  // a function that does, is refused; or they are the C library's functions.
  bool allow_approximate = false;
  // Blocks and warps run, and lanes of an atomic instruction come, last to first: what hangs on
  // their order is another then than a loop's.
  bool backwards = false;
  // A kernel that runs longer is taken to hang: instructions of warps.
  uint64_t max_steps = uint64_t{1} << 34;
};

struct LaunchCounts {
  uint64_t instructions = 0;  // of threads
};

// Blocks run one after the other, warps in turns. Throws Error on any fault of the kernel: an
// address outside of what is allocated, misaligned, or never written; a data race in shared or
// global memory; a barrier or shuffle that lanes are missing from; a value that was never written
// and decides about something; division of integers by zero; trap; no end in sight. The message
// names the PTX line, the source line where .loc gives it, block, thread and address.
// A faulted launch leaves memory as it was at the fault.
LaunchCounts launch(const Module&, std::string_view kernel, const Launch&, Memory&);

}  // namespace gradus::ptx
