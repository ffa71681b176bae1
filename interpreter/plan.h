// A segment's plan: for known sizes, layouts and absent values, the kernels, where every value
// lies, and the steps of a run. Made once per combination of sizes, then shared. A stage without
// opaque instructions is one segment; others are cut at them (see Segment).
#pragma once

#include <atomic>
#include <list>
#include <mutex>

#include "devices/backend.h"
#include "fusion/kernels.h"
#include "gradus/code.h"

namespace gradus::interpreter {

struct Draft;

// A group that the planner has weighed: whether it is to be a kernel. What it refers to is gone
// when the call that is told of it returns.
struct Weighing {
  const Draft& draft;
  std::span<const uint32_t> instructions;  // of the segment, ascending
  std::span<const Register> stored;        // what is read elsewhere
  const fusion::Nest& nest;
  const fusion::Frame& frame;
  bool wanted;
};

// Which fused kernels a state uses: settled when it is made.
struct KernelChoice {
  FusionMode mode = FusionMode::off;
  std::shared_ptr<fusion::Kernels> source;                     // null with `off`
  std::shared_ptr<const fusion::KernelSet> set;                // with `behind`: those there are
  std::shared_ptr<devices::Backend> backend = devices::cpu();  // where stages run
  Context* context = nullptr;  // the state's, whose groups of ranks sizes count; null: of one rank
  // Where a stage is planned as parts of a function: what plans of its loops' bodies choose from.
  const KernelChoice* bodies = nullptr;
  // Told of each plan after each step of making it; may be empty.
  std::function<void(std::string_view step, size_t stage, const std::string& plan)> dump;
  std::function<void(const Weighing&)> weighed;  // may be empty
  std::function<void(const Draft&)> planned;     // told of each draft that is done; may be empty
  Device place() const { return backend->device(); }
  const devices::PlanTraits& traits() const { return backend->traits(); }
};

// Sizes of Code::dimensions(), known from some stage on.
using DimensionSizes = std::vector<std::optional<int64_t>>;

// Values of at most so many bytes that only kernels of later segments read are carried: they lie
// in one block that their segment leaves, so that a thousand of them cost one allocation. A larger
// value is a tensor of its own, given back right after its last use.
inline constexpr int64_t most_carried_bytes = 1024;

// Of a tensor whose elements lie without gaps.
inline size_t bytes_of_elements(const Layout& l) {
  return static_cast<size_t>(l.numel()) * size_of(l.dtype);
}

// Where a carried value lies in the block of the segment that made it.
struct Carried {
  int64_t memory = 0, bytes = 0;  // what of the block it may look at
  int64_t offset = 0;             // of its first element, in bytes from `memory`
};

// What a later segment must know of a register that it finds in the state.
struct Held {
  bool absent = false;  // an undefined value
  Layout layout;
  Register owner = no_register;    // whose memory it is: itself, or what it is a view of
  std::optional<Carried> carried;  // none: it is a tensor
};

// What happens around a step beside its kernel.
struct Event {
  enum class Kind : uint8_t {
    allocate,  // before: a fresh tensor of `layout` for the register
    view,      // before: the register becomes a view of its base's tensor
    take,      // before: a fresh tensor gets the elements of a carried value
    bring,     // before: bytes of an earlier segment's block come into this one's
    release,   // after: the register's tensor is let go
  };
  Kind kind;
  Register reg;
  Register base = no_register;    // of a view; take, bring: who made the block
  int64_t offset = 0;             // of a view, in elements; take, bring: bytes in that block
  Layout layout;                  // take: as the elements lie there
  int64_t bytes = 0, target = 0;  // bring: how many, and where to
  uint32_t result = UINT32_MAX;   // allocate: the stage's result that this is
};

struct Step {
  work::KernelFunction run = nullptr;  // null: only events
  const void* parameters = nullptr;
  const work::Work* work = nullptr;                 // what that does
  uint32_t args = 0;                                // first of its pointers in the frame
  uint32_t instruction = 0;                         // of the stage
  int64_t scratch = 0;                              // offset in the buffer
  uint32_t first_event = 0, before = 0, after = 0;  // events before, then after the kernel
  uint32_t group = UINT32_MAX;                      // index into SegmentPlan::groups
  bool host = false;  // on a device: between copies, since there is no code for it
};

// One pointer of a frame.
struct Arg {
  enum class Kind : uint8_t { null, slot, fixed, tensor, carried } kind = Kind::null;
  Register base = no_register;  // tensor; carried: a register of the segment that made it
  int64_t offset = 0;  // in bytes. slot: in the buffer; tensor: from the base's data; carried: in
                       // the block of the segment that made the base
  const std::byte* fixed = nullptr;  // constants and numbers
};

struct SegmentPlan {
  // Instructions that run as one, in the step of the last one.
  struct Group {
    std::vector<uint32_t> instructions;  // of the stage
    uint32_t place = 0;                  // that of the instructions where the kernel runs
    std::vector<Register> stored;        // what others read of what they make
    work::WorkRef work;                  // a nest, or a product with a row
    std::string nest() const {           // as text; empty where it is none
      const auto* loops = std::get_if<work::Loops>(work.get());
      return loops ? fusion::print(loops->nest) : "";
    }
  };

  SegmentPlan() = default;
  SegmentPlan(const SegmentPlan&) = delete;
  ~SegmentPlan();

  size_t segment = 0;
  std::shared_ptr<const SegmentPlan> previous;  // the plan of the segment before
  const SegmentPlan* far_back = nullptr;        // an earlier one, for of_segment; null: segment 0
  std::vector<int64_t> ranks;                   // of its groups, see `rank_counts`
  std::vector<int64_t> key;  // of the inputs, see `append_input_key`; the count, if there is one
  DimensionSizes sizes;
  // Registers of this segment that later ones read, by number.
  std::vector<std::pair<Register, Held>> held;
  const Held& find_held(Register r) const;
  // This plan, or the one of an earlier segment that it follows.
  const SegmentPlan& of_segment(size_t wanted) const;
  // Makes this the plan that follows another.
  void follow(std::shared_ptr<const SegmentPlan> other);
  std::vector<bool> held_inputs;  // by input: later segments read its memory, itself or by a view
  std::vector<Step> steps;
  std::vector<Event> events;
  std::vector<Arg> args;
  std::vector<Group> groups;
  // Groups that there was no kernel for, with the text of each nest, each nest once.
  std::vector<std::pair<fusion::Nest, std::string>> missing;
  std::vector<std::string>
      later;  // see devices::DeviceCode: of instructions that run on the host meanwhile
  uint64_t kernel_source = 0, kernel_generation = 0;  // what there was to choose from; 0: nothing
  // The segment as one function, see whole_stage.h.
  struct Whole {
    std::shared_ptr<const fusion::StageKernel> code;
    std::vector<fusion::OuterCall> calls;
    // By item, of the stage's instructions, and the kind of its work; empty: a call.
    std::vector<uint32_t> instructions;
    std::vector<std::string_view> kinds;
    double nanoseconds = 0;  // that it is estimated to take
  };
  std::optional<Whole> whole;
  // Whether it may become one function, once it has run so often; and whether that was asked for.
  bool may_be_whole = false;
  bool awaits_bodies = false;  // a loop's body may become one function
  bool runs_states = false;    // a loop's steps are rounds of a state (run/body_state.h)
  // How many launches on a device the steps of loops are. Absent: data say how many, or the host
  // takes part.
  std::optional<size_t> loop_launches = 0;
  static constexpr size_t most_recorded = 4096;  // launches, as one
  std::vector<uint32_t> asking_host;  // of those, the stage's instructions whose steps ask the host
  mutable std::atomic<uint32_t> runs{0};
  std::vector<bool> absent_returns;  // by return, where the segment ends its stage
  // For each external register the frame's pointers that follow from its data.
  struct Patch {
    uint32_t arg;
    int64_t offset;
  };
  std::vector<uint32_t> patch_begin;  // by index in `externals`, one more at the end
  std::vector<Register> externals;    // registers whose tensors are looked at
  std::vector<bool> external_before;  // by index in `externals`: there when the segment starts
  std::vector<Patch> patches;
  std::vector<uint32_t> external_of_event;  // by event: the register's index in `externals`
  // The blocks that kernels look at, and their slices of `patches`.
  struct Block {
    uint32_t segment;  // whose
    uint32_t first_patch, patches;
  };
  std::vector<Block> blocks;
  // What code of a device may find wrong, and where in the buffer it says so.
  struct Fault {
    uint32_t instruction;
    devices::DeviceCode::Fault error;
  };
  static constexpr int64_t fault_bytes = 16;
  std::vector<Fault> faults;
  int64_t faults_at = 0;
  bool recordable = false;  // on a device: what it does is a few launches, worth being one
  int64_t block_bytes = 0;  // of the block that this segment leaves
  int64_t buffer_bytes = 0;
  int64_t least_buffer_bytes = 0;  // the largest sum of live slots: what the schedule allows
  // Where the segment takes most, and what of its own is alive there.
  struct Peak {
    struct Living {
      Register reg = no_register;
      int64_t bytes = 0;
      uint32_t made = 0, last = 0;  // instructions of the stage; last: UINT32_MAX if it stays
    };
    uint32_t instruction = 0;  // of the stage
    int64_t bytes = 0;         // places are whole units of SlotAllocator::alignment
    int64_t scratch = 0;       // of them: what its kernel needs while it runs
    std::vector<Living> living;
  };
  Peak peak;
  std::vector<std::shared_ptr<const void>> kernels;  // keeps parameters and work alive
  std::vector<std::vector<std::byte>> numbers;       // numbers and zeros as operands
  std::vector<Ref<Storage>> sent;  // these and constants, where the backend reads them
};

// What of the inputs decides a plan.
void append_input_key(const Tensor& t, std::vector<int64_t>& key);

// The registers of a segment's inputs: its stage's, or what the opaque instruction that it begins
// with gives; none where it begins with a count. no_register: never used.
std::span<const Register> inputs_of(const Code& code, size_t segment);

// The same, step by step and never as one function: plan/recipe.cpp.
std::shared_ptr<SegmentPlan> plan_steps(const Code& code, size_t segment,
                                        std::shared_ptr<const SegmentPlan> previous,
                                        std::span<const Tensor> inputs, std::vector<int64_t> key,
                                        const KernelChoice& choice);

// Given   a segment, the plan of the segment before (null for the first), a tensor for each of
//         `inputs_of`, the kernels to choose from
// Result  its plan. Throws Error where sizes do not fit, with the place of the instruction.
std::shared_ptr<const SegmentPlan> make_plan(const Code& code, size_t segment,
                                             std::shared_ptr<const SegmentPlan> previous,
                                             std::span<const Tensor> inputs,
                                             std::vector<int64_t> key, const KernelChoice& choice);

// The plans of a code, the latest used first. Thread-safe; bounded per segment.
class PlanCache {
 public:
  static constexpr size_t most_per_segment = 64;
  // Plans of large segments are large: of these fewer are kept.
  static constexpr size_t least_per_segment = 2;
  static constexpr size_t most_args_per_segment = size_t{1} << 22;
  // A plan that would be made just so with these kernels to choose from; null if there is none.
  std::shared_ptr<const SegmentPlan> find(size_t segment, const SegmentPlan* previous,
                                          std::span<const int64_t> key,
                                          std::span<const int64_t> ranks,
                                          const KernelChoice& choice);
  void insert(size_t segment, std::shared_ptr<const SegmentPlan> plan);

 private:
  std::mutex mutex_;
  std::vector<std::list<std::shared_ptr<const SegmentPlan>>> segments_;
};

// One of the code's plans, or a new one, which the code keeps then.
std::shared_ptr<const SegmentPlan> find_or_make_plan(
    const Code& code, size_t segment, const std::shared_ptr<const SegmentPlan>& previous,
    std::span<const Tensor> inputs, const std::vector<int64_t>& key, const KernelChoice& choice);

}  // namespace gradus::interpreter
