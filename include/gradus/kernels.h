// Compiled kernels: whether states use them, and how a context makes and keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#pragma GCC visibility push(default)

namespace gradus {

class Context;

// Whether pointwise instructions and reductions of rows run as fused kernels, with the same bits.
enum class FusionMode : uint8_t {
  off,     // one loop for each instruction
  behind,  // kernels that are there when a state is made; others are compiled for later states
  first,   // kernels are compiled before a stage's first run
};

// Which stages are one function each, of those whose sizes are known.
enum class WholeStages : uint8_t {
  off,
  small,   // that are small, and mostly loops and products; none with KernelOptions::always
  always,  // for tests: all that have something of either
};

struct KernelStatistics {
  uint64_t hits = 0;     // kernels that were there, or were being compiled for another
  uint64_t misses = 0;   // compiled
  uint64_t loaded = 0;   // found in the folder
  uint64_t evicted = 0;  // left out again for others
  uint64_t failed = 0;   // nests that no code could be made for
  uint64_t dropped = 0;  // asked for while too many were waiting
  uint64_t waiting = 0;  // now, for the thread that compiles
  uint64_t kernels = 0;  // there now
  double seconds = 0;    // spent compiling
};

struct KernelOptions {
  size_t most_kernels = 1024;  // kept; the oldest go first
  // Keeps compiled code for other processes; empty: none. Made, for this user alone, if it is not
  // there; one that others can write is not used.
  std::string folder;
  uint64_t most_folder_bytes = uint64_t{256} << 20;  // the entries used longest ago go first
  unsigned vector_bits = 0;  // 128 (AArch64), 256 or 512 (x86-64); 0: the widest there are
  bool always = false;       // kernels also where they are not worth it: for tests
  // On the CPU: stages of known sizes that take less than some 50 microseconds are compiled as one
  // function each. They are run step by step where somebody watches (RunOptions).
  WholeStages whole_stages = WholeStages::small;
  // Kernels are named for gdb, which is told of them as they are loaded, and for perf, in its map
  // file (/tmp/perf-PID.map, which stays). Those of a program that came from a file know its lines.
  // Programs that differ in their places share no kernels then.
  bool symbols = false;
  // On a device: what several indices add to one place (scatter_add, index_add, index_put with
  // `accumulate`, the gradients of gather, index_select and embedding), and windows that overlap,
  // is added up by atomic additions, in a thread for each element. That is fast, and in no fixed
  // order: floating sums may differ from run to run in their last bits. Elsewhere one thread adds
  // up all that meets, in index order, with the CPU's bits. Integers of 8 bits and bools stay so.
  bool atomics = false;
};

// The context begins anew with these options. States that are there keep what they have. Throws
// ResourceError for a folder or symbols where this build makes no kernels for the CPU. Thread-safe.
void set_kernel_options(Context& context, const KernelOptions& options);

// Of the context's kernels since its options were set. Thread-safe.
KernelStatistics kernel_statistics(Context& context);

// Returns when no kernel of the context is waiting to be compiled.
void wait_for_kernels(Context& context);

// Opens the compiler of kernels for the CPU, if that is not done yet. Throws ResourceError, which
// says what is missing, where there is none: states run without kernels then. Any thread.
void open_kernel_compiler();

}  // namespace gradus

#pragma GCC visibility pop
