// Compiled kernels as whoever runs programs sees them: no compiler and no device.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/context.h"
#include "devices/backend.h"
#include "fusion/stage.h"
#include "ir/operator.h"

namespace gradus::fusion {

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

// Code of one nest. Immutable, for any number of threads; keeps what it needs alive.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  virtual ~Kernel() = default;
  // Made ready for a frame that fits the nest. It is called with the first elements of loads, then
  // of stores, then of row stores, then of column stores. A store may lie where a load lies if each
  // element lies on its own and no row is reduced. A call allocates nothing; sizes split its work.
  virtual work::Kernel bind(const Frame& frame) const = 0;
};

// The kernels that were there at some moment. Immutable.
class KernelSet {
 public:
  // By the text of a nest; null if there is none, or none yet.
  std::shared_ptr<const Kernel> find(const std::string& nest) const {
    auto found = kernels.find(nest);
    return found == kernels.end() ? nullptr : found->second;
  }
  std::shared_ptr<const StageKernel> find_stage(const std::string& stage) const {
    auto found = stages.find(stage);
    return found == stages.end() ? nullptr : found->second;
  }
  std::unordered_map<std::string, std::shared_ptr<const Kernel>> kernels;
  std::unordered_map<std::string, std::shared_ptr<const StageKernel>> stages;  // by their texts
  // Nests that no code can be made for, where instructions of theirs need kernels all the same; and
  // stages.
  std::unordered_set<std::string> failed;
  uint64_t generation = 0;  // sets of one source are numbered as they come
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

// Makes kernels, and keeps them: what a context has of a compiler. Thread-safe. In a forked child
// of a process that has compiled, it makes no more, and has none for new states.
class Kernels {
 public:
  virtual ~Kernels() = default;
  // Tells sources apart, also those that are gone.
  virtual uint64_t id() const = 0;
  // Whether a nest is to say where its instructions stand.
  virtual bool wants_places() const { return false; }
  // Whether a kernel of the nest can be made, and is worth it for such sizes.
  virtual bool wants(const Nest& nest, const Frame& frame) const = 0;
  // Whether nests may reduce columns, where there are so many.
  virtual bool takes_columns(int64_t columns) const {
    static_cast<void>(columns);
    return false;
  }
  // Whether a kernel of single loops reads all that it reads of an element before it writes it, so
  // that a result may lie where an operand does.
  virtual bool reads_before_writing() const { return false; }
  // Whether one instruction alone is worth a kernel.
  virtual bool wants_single_steps() { return backend()->device() != Device(); }
  // What states with these kernels run on. Kernels are called with addresses of its memory.
  virtual std::shared_ptr<devices::Backend> backend() { return devices::cpu(); }
  // What is there now.
  virtual std::shared_ptr<const KernelSet> ready() = 0;
  // The kernel of a nest, compiled on this thread if need be. Null where no code can be made, which
  // is remembered, and told to the context's log once. `text` is print(nest).
  virtual std::shared_ptr<const Kernel> get(const Nest& nest, const std::string& text) = 0;
  // Has the kernel compiled on a thread of its own, unless it is there, on its way or has failed,
  // or too many are waiting. A later set has it.
  virtual void request(const Nest& nest, const std::string& text) = 0;
  // Which stages are to be one function (fusion/stage.h); and that function, as get() and request()
  // do it for nests. `text` is print(stage).
  virtual WholeStages whole_stages() const { return WholeStages::off; }
  virtual std::shared_ptr<const StageKernel> get_stage(const StageProgram& stage,
                                                       const std::string& text) {
    static_cast<void>(stage), static_cast<void>(text);
    return nullptr;
  }
  virtual void request_stage(const StageProgram& stage, const std::string& text) {
    static_cast<void>(stage), static_cast<void>(text);
  }
  // Returns when nothing is waiting to be compiled.
  virtual void wait() = 0;
  virtual KernelStatistics statistics() const = 0;
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

// The kernels of a context, made on first use.
std::shared_ptr<Kernels> kernels_of(Context& context);
// Begins anew with these options. States that are there keep what they have.
void set_kernel_options(Context& context, const KernelOptions& options);

}  // namespace gradus::fusion
