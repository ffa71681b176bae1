// State: one run of a program, stage by stage.
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

// Set from any thread; runs that were given it end at the next instruction.
class CancelToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// An instruction of a graph that a loop or a branch runs.
struct StepPoint {
  const Code& body;    // of one stage
  int64_t step;        // of a scan: which slice it takes; of a while: how many came before; else 0
  size_t instruction;  // of the body
};

// Told of each instruction by number; for profiles, debuggers and fault injection. It may throw,
// which counts as the instruction throwing.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  virtual void before(size_t stage, size_t instruction) = 0;
  virtual void after(size_t stage, size_t instruction) = 0;
  // Told before the last of instructions that run as one kernel: it does the work of all of them,
  // and the others do nothing.
  virtual void group(size_t stage, std::span<const uint32_t> instructions) {
    static_cast<void>(stage), static_cast<void>(instructions);
  }
  // Told within an instruction that runs graphs, around each instruction of those. What a loop in a
  // step runs is told of between these of its own instruction.
  virtual void before_in_step(const StepPoint& at) { static_cast<void>(at); }
  virtual void after_in_step(const StepPoint& at) { static_cast<void>(at); }
  // Told before an instruction that a device has no code for: the host does it, between copies.
  virtual void host(size_t stage, size_t instruction) {
    static_cast<void>(stage), static_cast<void>(instruction);
  }
};

struct RunOptions {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  const CancelToken* cancel = nullptr;      // borrowed for the run
  InstructionObserver* observer = nullptr;  // borrowed for the run
  bool copy_inputs = false;  // inputs held for later stages are copied: nobody can change them
  // Results stay where the state runs: on a device they are tensors there, of which an input may be
  // made again without a copy. gradus::to_host gives their values.
  bool results_on_device = false;
};

// The steps of making a plan, in their order (docs/architecture.md).
inline constexpr std::array<std::string_view, 6> plan_step_names{"bind",    "share", "group",
                                                                 "overlap", "make",  "place"};

struct StateOptions {
  // Whether pointwise instructions and reductions of rows run as fused kernels; the results' bits
  // are the same. Which kernels a state uses is settled when it is made, and inherited by its
  // clones. `behind` runs at once, and states made later are faster; `first` is for who runs one
  // state again and again, and `off` for a single run. set_kernel_options says where
  // kernels are kept.
  FusionMode fusion = FusionMode::behind;
  // Called with each plan that this state or its clones make, after each of plan_step_names. On the
  // thread that runs; may be empty.
  std::function<void(std::string_view step, size_t stage, const std::string& plan)> dump_plans = {};
};

// Sizes of dimension names.
using DimSizes = std::map<std::string, int64_t, std::less<>>;

// What a run of a stage takes, in bytes, beside its inputs and what earlier stages have left.
struct StageMemory {
  size_t buffer = 0;   // values that stay inside; the state has one buffer, as large as the largest
  size_t held = 0;     // left for later stages alone, inputs that are held not counted
  size_t results = 0;  // returned, whether or not later stages read them as well
};

// Where a stage takes most of what StageMemory counts, and what is alive there.
struct StagePeak {
  // A value that the stage makes, or a copy of one that several kernels read rearranged.
  struct Living {
    Register reg = no_register;
    size_t bytes = 0;
    uint32_t made = 0;             // the instruction that its memory is taken for
    std::optional<uint32_t> last;  // the last that reads it; nullopt: it outlives the stage
  };
  size_t stage = 0;
  uint32_t instruction = 0;
  size_t bytes = 0;            // of all that is alive, in places as they are laid out
  size_t scratch = 0;          // of these: what the instruction's kernel needs while it runs
  std::vector<Living> living;  // the largest first
};

// Instructions of a stage that run as one kernel, where the last of them stands.
struct FusedGroup {
  size_t stage = 0;
  std::vector<uint32_t> instructions;
  std::vector<SourceLocation> places;  // of the instructions in the program
  // What the kernel computes, see work/nest.h. Empty: a call of the device's library computes a
  // product and the sum of it with a row.
  std::string nest;
};

// A stage, or what of it lies between opaque instructions, that is one function: what that does,
// item by item, and where the instructions stand that the items are of. A group is one item.
struct WholeStage {
  struct Item {
    std::string_view kind;  // of its work: nest, product, reduce, move; empty: it is called
    uint32_t instruction = 0;
  };
  size_t stage = 0;
  std::vector<Item> items;
};

// An instruction that a device has no code for: the host ran it, between copies.
struct HostInstruction {
  size_t stage = 0;
  uint32_t instruction = 0;
};

// Runs stages 0, 1, … of a code in order and holds what later stages read. Moving and destroying is
// free of surprises; one thread at a time (two at once, or a run inside its own run, is an Error).
class State {
 public:
  explicit State(std::shared_ptr<const Code> code,
                 std::shared_ptr<Context> context = Context::default_context(),
                 const StateOptions& options = {});
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;
  ~State();

  // Runs the next stage. One tensor per input, in order; an undefined tensor is an absent
  // cotangent. Returns one tensor per result, undefined where the result is a structural zero (or
  // an absent cotangent handed on).
  // Where the context's kernels are a device's, the stage runs there, on the calling thread's
  // current stream: inputs that are not there are copied to it, and results from it, but for those
  // that stay (whose types name the device, or all with `results_on_device`).
  // Throws Error for a wrong number, dtype, shape or device of inputs, an input held from an
  // earlier stage that was changed since, or when no stage is left: the state is as it was. An
  // instruction that throws leaves the state poisoned: every register is released, and further runs
  // are refused.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const RunOptions& options = {});
  // The same into the caller's memory: `results` has one entry per result. Where one is defined, it
  // is a buffer of the result's dtype and shape, contiguous and in the host's memory, and holds the
  // result afterwards; others are filled with new tensors. What the stage reads may not lie in a
  // buffer, nor one buffer in another (Error). A result that later stages read is the state's until
  // they ran, as an input is: a buffer that is given again before is an Error of the later stage.
  // On a prepared state, rounds like the one before make no heap call.
  void run_into(std::span<const Tensor> inputs, std::span<Tensor> results,
                const RunOptions& options = {});

  // An independent state at the same point that shares the tensors; neither sees the other's runs.
  State clone() const;
  // Plans all stages for inputs of these sizes, row-major and none absent, and compiles the kernels
  // that they use, also with FusionMode::behind. Runs on such inputs then plan and compile nothing,
  // take no lock, and find their buffer there, which is kept between stages however large; what
  // stages leave for later ones is kept for the next round, too, if no clone shares it. Other
  // inputs are planned as ever. Returns what each stage takes. Throws Error unless the state is
  // before stage 0, where a size is missing or does not fit, and for opaque instructions or sizes
  // that data settles: their stages are planned while they run.
  std::vector<StageMemory> prepare(const DimSizes& sizes);
  // Back to before stage 0, releasing what is held; memory is kept for the next round. Cures
  // poisoning.
  void restart();

  // Writes what later stages need, and resumes from it, also in another process, on another
  // machine of the same byte order: the stages left then give the same bits. A handle is not
  // written; functions that are `replayable` are called anew for theirs.
  // `save` throws Error for a poisoned state, for one with the handle of any other function (naming
  // it), and for a file that cannot be written; it is written whole or not at all. `resume` throws
  // Error for a file that is damaged or of a newer release, and where `code` is not of the program
  // that was saved (the whole text counts, whoever compiled it).
  void save(const std::string& path) const;
  static State resume(std::shared_ptr<const Code> code, const std::string& path,
                      std::shared_ptr<Context> context = Context::default_context(),
                      const StateOptions& options = {});

  const std::shared_ptr<const Code>& code() const;
  // The stage that `run` runs next; equal to code()->stages() at the end.
  size_t next_stage() const;
  bool finished() const { return next_stage() == code()->stages(); }
  bool poisoned() const;
  // What poisoned it, with the instruction's place in the program; empty if it is not.
  const std::string& fault() const;
  // The next stage's i-th input.
  const ir::Type& input_type(size_t i) const;
  const std::string& input_name(size_t i) const;

  // Number of registers that hold a tensor or a handle now, and the bytes of their storages (each
  // counted once; what a handle's graph keeps is not counted).
  size_t held_registers() const;
  size_t held_bytes() const;
  // Sizes of named dimensions that are known so far.
  std::optional<int64_t> dimension(std::string_view name) const;
  // The groups of the stages that have run, as they ran last.
  std::vector<FusedGroup> groups() const;
  std::vector<WholeStage> whole_stages() const;
  // What of them ran on the host because the state's device has no code for it, and loops of which
  // an instruction of a step did. Opaque instructions always do, and are not among them.
  std::vector<HostInstruction> host_instructions() const;
  // Where the stages that have run, or are prepared, take most of memory. A stage that opaque
  // instructions cut has several.
  std::vector<StagePeak> peaks() const;

 private:
  struct GRADUS_INTERNAL Impl;
  class GRADUS_INTERNAL Occupy;
  explicit State(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// As text, a line for each stage.
std::string describe_memory(std::span<const StageMemory> stages);

// What is alive where each stage takes most, as text: values with their types and places, the
// largest first and no more than `most` of them.
std::string describe_peaks(const State& state, size_t most = 30);

// The groups as text: the instructions of each with their places in the program, and its nest.
std::string describe_groups(const State& state);

}  // namespace gradus

#pragma GCC visibility pop
