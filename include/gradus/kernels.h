// Compiled kernels: whether states use them, and how a context makes and stores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#pragma GCC visibility push(default)

namespace gradus {

class Context;

// Whether pointwise instructions and row reductions run as fused kernels. The results are
// bit-identical in every mode.
enum class FusionMode : uint8_t {
  off,  // one loop for each instruction
  // A state uses the kernels that exist when it is made. Others are compiled in the background, for
  // later states.
  behind,
  // Kernels are compiled before the first run of a stage.
  first,
};

// Which stages of known sizes are compiled into one function each.
enum class WholeStages : uint8_t {
  off,
  // Small stages that are mostly loops and products. None with KernelOptions::always.
  small,
  always,  // for tests: all stages with loops or products
};

// Counts of a context's kernels since its options were set.
struct KernelStatistics {
  uint64_t hits = 0;     // requests for kernels that existed, or that were being compiled
  uint64_t misses = 0;   // requests that led to a compilation
  uint64_t loaded = 0;   // kernels found in the folder
  uint64_t evicted = 0;  // kernels removed to make room for others
  uint64_t failed = 0;   // nests for which no code could be made
  uint64_t dropped = 0;  // requests rejected because too many kernels were waiting
  uint64_t waiting = 0;  // kernels that wait for the compiling thread
  uint64_t kernels = 0;  // kernels in memory
  double seconds = 0;    // time spent compiling
};

// Options of a context's kernels.
struct KernelOptions {
  // Limit of kernels in memory. The least recently used are removed first.
  size_t most_kernels = 1024;
  // The folder that stores compiled code for other processes. Empty: code is not stored. A folder
  // that does not exist is created, with access for this user only. A folder to which other users
  // can write is not used.
  std::string folder;
  // Limit of the folder. The least recently used entries are removed first.
  uint64_t most_folder_bytes = uint64_t{256} << 20;
  // Most bits of a register: 128 (AArch64), 256 or 512 (x86-64). 0: the most that this machine has.
  unsigned vector_bits = 0;
  bool always = false;  // for tests: kernels also where they are not worth it
  // On the CPU, stages of known sizes that take less than about 50 microseconds are compiled into
  // one function each. A run with an observer, a deadline or a cancel token (RunOptions) runs them
  // step by step.
  WholeStages whole_stages = WholeStages::small;
  // Names kernels for debuggers. gdb is notified of each kernel that is loaded. For perf, the names
  // are in its map file (/tmp/perf-PID.map), which is not removed. Kernels of a program that was
  // read from a file have its line numbers. Programs that differ only in source locations then
  // share no kernels.
  bool symbols = false;
  // On a device, whether several threads add to one element with atomic additions, one thread for
  // each addend. This applies to scatter_add, index_add, index_put with `accumulate`, the gradients
  // of gather, index_select and embedding, and overlapping windows. Atomic additions are fast, but
  // their order is not fixed: floating sums may differ between runs in their last bits. Without
  // this option, one thread adds all addends of an element in index order, with results that are
  // bit-identical to the CPU's. 8-bit integers and bools never use atomic additions.
  bool atomics = false;
};

// Sets the options of the context's kernels, and starts with no kernels. Existing states keep their
// kernels. Throws ResourceError if this build makes no kernels for the CPU and the options have a
// folder or symbols. Thread-safe.
void set_kernel_options(Context& context, const KernelOptions& options);

// Returns the counts since the context's options were set. Thread-safe.
KernelStatistics kernel_statistics(Context& context);

// Waits until no kernel of the context is waiting for its compilation.
void wait_for_kernels(Context& context);

// Loads the compiler of CPU kernels, unless it is loaded. Throws ResourceError if there is no such
// compiler; the message says what is missing. States then run without kernels. Thread-safe.
void open_kernel_compiler();

}  // namespace gradus

#pragma GCC visibility pop
