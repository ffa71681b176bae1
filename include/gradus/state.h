// Declares State, one run of a compiled program, with its options and the reports about its plans.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/code.h"
#include "gradus/internal.h"
#include "gradus/kernels.h"

#pragma GCC visibility push(default)

namespace gradus {

// A flag that any thread may set to stop runs. A run that was given the token throws Error before
// its next instruction.
class CancelToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// An instruction of a body, that is, of a graph that a loop or a branch runs.
struct StepPoint {
  const Code& body;  // has one stage
  // The index of the slice that a scan takes, or the number of completed steps of a while;
  // otherwise 0.
  int64_t step;
  size_t instruction;  // index in the body
};

// Is notified of every instruction, by stage and index. For profiles, debuggers and fault
// injection. The functions are called on the thread that runs. An exception that a function throws
// counts as an exception of the instruction.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  virtual void before(size_t stage, size_t instruction) = 0;
  virtual void after(size_t stage, size_t instruction) = 0;
  // Called before the last instruction of a group that runs as one kernel. That instruction
  // computes the results of the whole group. The other instructions of the group do nothing.
  virtual void group(size_t stage, std::span<const uint32_t> instructions) {
    static_cast<void>(stage), static_cast<void>(instructions);
  }
  // Called around each instruction of a body, inside the instruction that runs the body. For a loop
  // inside a body, the calls for the inner body are between the two calls for the inner loop.
  virtual void before_in_step(const StepPoint& at) { static_cast<void>(at); }
  virtual void after_in_step(const StepPoint& at) { static_cast<void>(at); }
  // Called before an instruction for which the device has no code. The host runs the instruction
  // and copies its operands and results.
  virtual void host(size_t stage, size_t instruction) {
    static_cast<void>(stage), static_cast<void>(instruction);
  }
};

// Options of one run.
struct RunOptions {
  // The run throws Error before the first instruction that would start after this time.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  const CancelToken* cancel = nullptr;      // borrowed during the run
  InstructionObserver* observer = nullptr;  // borrowed during the run
  // Copies the inputs that later stages read, so that the caller may change the originals.
  bool copy_inputs = false;
  // Keeps the results on the device of the state. A later stage that takes such a result as its
  // input does not copy it. gradus::to_host copies it to the host.
  bool results_on_device = false;
};

// The steps of planning, in their order (docs/architecture.md).
inline constexpr std::array<std::string_view, 6> plan_step_names{"bind",    "share", "group",
                                                                 "overlap", "make",  "place"};

// Options of a state.
struct StateOptions {
  // Whether pointwise instructions and row reductions run as fused kernels. The results are
  // bit-identical in every mode. A state selects its kernels when it is made, and its clones use
  // the same kernels. `behind` starts at once, and later states use the compiled kernels. `first`
  // suits a state that runs many times, and `off` a single run. set_kernel_options sets where
  // compiled kernels are stored.
  FusionMode fusion = FusionMode::behind;
  // If set, called after each of plan_step_names, for each plan that this state or one of its
  // clones makes. It is called on the thread that runs.
  std::function<void(std::string_view step, size_t stage, const std::string& plan)> dump_plans = {};
};

// The size of each dimension name.
using DimSizes = std::map<std::string, int64_t, std::less<>>;

// The memory that a run of a stage allocates, in bytes. Inputs and values held by earlier stages
// are not counted.
struct StageMemory {
  // Values that only this stage uses. A state has one buffer, of the size of its largest stage.
  size_t buffer = 0;
  size_t held = 0;     // values that only later stages read, without held inputs
  size_t results = 0;  // returned values, including those that later stages read
};

// The instruction at which a stage needs the most memory, and the values that are alive there.
struct StagePeak {
  // A value that the stage computes, or a rearranged copy of a value that several kernels read.
  struct Living {
    Register reg = no_register;
    size_t bytes = 0;
    uint32_t made = 0;  // the instruction for which its memory is allocated
    // The last instruction that reads it. nullopt: the value outlives the stage.
    std::optional<uint32_t> last;
  };
  size_t stage = 0;
  uint32_t instruction = 0;
  size_t bytes = 0;    // of all living values, at their places in memory
  size_t scratch = 0;  // the part of `bytes` that is scratch memory of the instruction's kernel
  std::vector<Living> living;  // sorted by size, the largest first
};

// Instructions of a stage that run as one kernel, in place of the last of them.
struct FusedGroup {
  size_t stage = 0;
  std::vector<uint32_t> instructions;
  std::vector<SourceLocation> places;  // source locations of the instructions
  // The loop nest that the kernel computes (docs/fusion.md). Empty if a call of the device's
  // library computes a matrix product plus a row.
  std::string nest;
};

// A stage, or a part of a stage between opaque instructions, that is compiled into one function. An
// item is one piece of the function's work. A group is one item.
struct WholeStage {
  struct Item {
    // The kind of work: nest, product, reduce or move. Empty: the function calls the kernel.
    std::string_view kind;
    uint32_t instruction = 0;  // index of the instruction in the stage
  };
  size_t stage = 0;
  std::vector<Item> items;
};

// An instruction that the host ran because the device has no code for it.
struct HostInstruction {
  size_t stage = 0;
  uint32_t instruction = 0;
};

// Runs the stages 0, 1, … of a code in order, and holds the values that later stages read. A state
// may be moved. It serves one thread at a time: run, clone, prepare, restart and save throw Error
// while another of these calls is active, also on the same thread.
class State {
 public:
  explicit State(std::shared_ptr<const Code> code,
                 std::shared_ptr<Context> context = Context::default_context(),
                 const StateOptions& options = {});
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();

  // Runs the next stage. `inputs` has one tensor per input, in order; an undefined tensor is an
  // absent cotangent. Returns one tensor per result. A result is undefined if it is a structural
  // zero, or an absent cotangent that the stage returns.
  //
  // If the context's kernels are those of a device, the stage runs there, on the current stream of
  // the calling thread. Inputs in other memory are copied to the device. Results are copied to the
  // host, except results whose types name the device, and all results with `results_on_device`.
  //
  // Throws Error if the number, dtype, shape or device of the inputs does not fit, if a held input
  // of an earlier stage was changed since, or if no stage is left. The state is then unchanged. If
  // an instruction throws, or the run is cancelled or passes its deadline, the state is poisoned:
  // all registers are released, and further runs throw Error.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const RunOptions& options = {});
  // Like `run`, but writes results into the caller's memory. `results` has one entry per result. A
  // defined entry is a buffer: contiguous, in host memory, with the dtype and shape of the result.
  // An undefined entry is set to a new tensor. A buffer must not overlap a tensor that the stage
  // reads, or another buffer (Error). If later stages read a result, its buffer must keep its
  // values until they have run. Otherwise the later stage throws Error. On a prepared state, a
  // round like the previous one makes no heap allocation.
  void run_into(std::span<const Tensor> inputs, std::span<Tensor> results,
                const RunOptions& options = {});

  // Returns an independent state at the same stage. Both states share their tensors. A run of one
  // does not affect the other.
  State clone() const;
  // Plans all stages for row-major inputs of these sizes, all of them given, and compiles their
  // kernels, also with FusionMode::behind. Later runs on such inputs plan and compile nothing and
  // take no lock. The state keeps its buffer between stages, whatever its size. It also keeps the
  // memory of held values for the next round, unless a clone shares it. Inputs of other sizes are
  // planned when they run. Returns the memory of each stage.
  //
  // Throws Error if the state is poisoned or past stage 0, if a size is missing, negative or does
  // not fit, and if the program has opaque instructions or sizes that data determine.
  std::vector<StageMemory> prepare(const DimSizes& sizes);
  // Returns to stage 0 and releases held values. The memory is kept for the next round. A poisoned
  // state can be used again.
  void restart();

  // `save` writes the values that later stages need to a file. `resume` continues from the file,
  // also in another process, or on another machine of the same byte order. The remaining stages
  // give bit-identical results. Handles are not written. For a handle of a function that is
  // `replayable`, `resume` calls the function again.
  //
  // `save` throws Error if the state is poisoned, or holds a handle of a function that is not
  // replayable (the message names the function). If the file cannot be written, it throws Error (a
  // wrong path, no permission) or ResourceError (a full disk). The file is written completely or
  // not at all. `resume` throws Error if the file is damaged or was written by a newer release, or
  // if its program differs from that of `code`. Programs are compared by their text after lowering.
  void save(const std::string& path) const;
  static State resume(std::shared_ptr<const Code> code, const std::string& path,
                      std::shared_ptr<Context> context = Context::default_context(),
                      const StateOptions& options = {});

  const std::shared_ptr<const Code>& code() const;
  // The stage that the next `run` executes. After the last stage it equals code()->stages().
  size_t next_stage() const;
  bool finished() const { return next_stage() == code()->stages(); }
  bool poisoned() const;
  // The error that poisoned the state, with the source location of the instruction. Empty if the
  // state is not poisoned.
  const std::string& fault() const;
  // The type and the name of input `i` of the next stage. Throws Error if there is no such input.
  const ir::Type& input_type(size_t i) const;
  const std::string& input_name(size_t i) const;

  // The number of registers that hold a tensor or a handle, and the bytes of their storages. Each
  // storage is counted once. Memory that a handle's autograd graph keeps is not counted.
  size_t held_registers() const;
  size_t held_bytes() const;
  // The size of a named dimension, as the stages that have run determine it. nullopt if it is
  // unknown.
  std::optional<int64_t> dimension(std::string_view name) const;
  // The groups, and the stages that are one function, in the current plans: those of the stages
  // that have run or are prepared.
  std::vector<FusedGroup> groups() const;
  std::vector<WholeStage> whole_stages() const;
  // The instructions of the current plans that run on the host because the device has no code for
  // them, and loops whose bodies have such an instruction. Opaque instructions always run on the
  // host and are not listed.
  std::vector<HostInstruction> host_instructions() const;
  // For each current plan, the instruction that needs the most memory. A stage with opaque
  // instructions has one entry for each of its segments.
  std::vector<StagePeak> peaks() const;

 private:
  friend class BoundRun;
  struct GRADUS_INTERNAL Impl;
  class GRADUS_INTERNAL Occupy;
  explicit State(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Runs a program of one stage again and again on the same memory: each run reads the inputs and
// writes the results where they lie. The caller writes new values into the inputs between runs. A
// run has the bits of State::run_into, and takes little more than its kernels on the host. It
// serves one thread at a time, and may be moved.
class BoundRun {
 public:
  // Takes a state at stage 0, and runs it once, or twice where it makes a result's tensor. `inputs`
  // and `results` are as for State::run_into. Entries of `results` that are undefined, or all, if
  // it is empty, become new contiguous tensors; structural zeros stay undefined. Prepare the state
  // first: otherwise, a run allocates a buffer above 1 MiB each time.
  //
  // Throws Error if the program has several stages, if the state is not at stage 0, and what
  // State::run_into throws.
  BoundRun(State state, std::vector<Tensor> inputs, std::vector<Tensor> results = {});
  BoundRun(BoundRun&&) noexcept;
  BoundRun& operator=(BoundRun&&) noexcept;
  ~BoundRun();

  // Runs the stage again. Throws what State::run_into throws. The results then have no values until
  // the next run that does not throw.
  void run();
  // The bound tensors. Shared with this object, and valid as long as it is.
  std::span<const Tensor> inputs() const;
  std::span<const Tensor> results() const;

 private:
  struct GRADUS_INTERNAL Impl;
  std::unique_ptr<Impl> impl_;
};

// Formats the memory of the stages as text, one line for each stage.
std::string describe_memory(std::span<const StageMemory> stages);

// Formats `state.peaks()` as text: the values that are alive at each peak, with their types and
// source locations, sorted by size, at most `most` for each.
std::string describe_peaks(const State& state, size_t most = 30);

// Formats `state.groups()` and `state.whole_stages()` as text: the instructions of each group with
// their source locations, and its nest.
std::string describe_groups(const State& state);

}  // namespace gradus

#pragma GCC visibility pop
