// A stage's plan: for known sizes, layouts and absent cotangents, the kernels, where every value
// lies, and the steps of a run. Made once per combination of sizes, then shared.
#pragma once

#include <list>
#include <mutex>

#include "interpreter/code.h"

namespace gradus::interpreter {

// Sizes of Code::dimensions(), known from some stage on.
using DimensionSizes = std::vector<std::optional<int64_t>>;

// What a later stage must know of a register that it finds in the state.
struct Held {
  bool absent = false;  // an undefined value
  Layout layout;
  Register owner = no_register;  // whose memory it is: itself, or what it is a view of
};

// What happens around a step beside its kernel.
struct Event {
  enum class Kind : uint8_t {
    allocate,  // before: a fresh tensor of `layout` for the register
    view,      // before: the register becomes a view of its base's tensor
    release,   // after: the register's tensor is let go
  };
  Kind kind;
  Register reg;
  Register base = no_register;  // of a view
  int64_t offset = 0;           // of a view, in elements
  Layout layout;
};

struct Step {
  ir::KernelFunction run = nullptr;  // null: only events
  const void* parameters = nullptr;
  uint32_t args = 0;                                // first of its pointers in the frame
  uint32_t instruction = 0;                         // of the stage
  int64_t scratch = 0;                              // offset in the buffer
  uint32_t first_event = 0, before = 0, after = 0;  // events before, then after the kernel
};

// One pointer of a frame.
struct Arg {
  enum class Kind : uint8_t { null, slot, fixed, tensor } kind = Kind::null;
  Register base = no_register;       // tensor
  int64_t offset = 0;                // slot: in the buffer; tensor: bytes from the base's data
  const std::byte* fixed = nullptr;  // constants and numbers
};

struct StagePlan {
  StagePlan() = default;
  StagePlan(const StagePlan&) = delete;
  ~StagePlan();

  size_t stage = 0;
  std::shared_ptr<const StagePlan> previous;  // the plan of the stage before
  std::vector<int64_t> key;                   // of the inputs, see `input_key`
  DimensionSizes sizes;
  // Registers of this stage that later ones read, by number.
  std::vector<std::pair<Register, Held>> held;
  const Held& find_held(Register r) const;
  // This plan, or the one of an earlier stage that it follows.
  const StagePlan& of_stage(size_t wanted) const;
  std::vector<bool> held_inputs;  // by input: later stages read its memory, itself or by a view
  std::vector<Step> steps;
  std::vector<Event> events;
  std::vector<Arg> args;
  std::vector<bool> absent_returns;  // by return
  // For each external register the frame's pointers that follow from its data.
  struct Patch {
    uint32_t arg;
    int64_t offset;
  };
  std::vector<uint32_t> patch_begin;  // by index in `externals`, one more at the end
  std::vector<Register> externals;    // registers whose tensors are looked at
  std::vector<bool> external_before;  // by index in `externals`: there when the stage starts
  std::vector<Patch> patches;
  std::vector<uint32_t> external_of_event;  // by event: the register's index in `externals`
  int64_t buffer_bytes = 0;
  int64_t least_buffer_bytes = 0;  // the largest sum of live slots: what the schedule allows
  std::vector<std::shared_ptr<const void>> kernels;   // keeps parameters alive
  std::vector<std::unique_ptr<std::byte[]>> numbers;  // numbers and zeros as operands
};

// What of the inputs decides a plan.
void append_input_key(const Tensor& t, std::vector<int64_t>& key);

// Given   a stage, the plan of the stage before (null for stage 0), the inputs
// Result  its plan. Throws Error where sizes do not fit, with the place of the instruction.
std::shared_ptr<const StagePlan> make_plan(const Code& code, size_t stage,
                                           std::shared_ptr<const StagePlan> previous,
                                           std::span<const Tensor> inputs,
                                           std::vector<int64_t> key);

// The plans of a code, the latest used first. Thread-safe; bounded per stage.
class PlanCache {
 public:
  static constexpr size_t most_per_stage = 64;
  // Plans of large stages are large: of these fewer are kept.
  static constexpr size_t least_per_stage = 2;
  static constexpr size_t most_args_per_stage = size_t{1} << 22;
  std::shared_ptr<const StagePlan> find(size_t stage, const StagePlan* previous,
                                        std::span<const int64_t> key);
  void insert(size_t stage, std::shared_ptr<const StagePlan> plan);

 private:
  std::mutex mutex_;
  std::vector<std::list<std::shared_ptr<const StagePlan>>> stages_;
};

}  // namespace gradus::interpreter
