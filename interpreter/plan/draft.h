// A plan while it is made: what its steps (plan/recipe.h) read and write.
#pragma once

#include <deque>

#include "fusion/group.h"
#include "interpreter/plan.h"
#include "interpreter/plan/bind_sizes.h"
#include "interpreter/plan/slots.h"

namespace gradus::interpreter {

// A register while the segment is planned.
struct Local {
  // `inside`: only a group's kernel knows it.
  enum class Kind : uint8_t { unknown, absent, constant, tensor, slot, carried, inside };
  static constexpr uint32_t never = UINT32_MAX;
  Kind kind = Kind::unknown;
  Register reg = no_register;
  Register root = no_register;  // whose memory it lies in; itself if it has its own
  int64_t offset = 0;           // bytes from the root's memory
  Layout layout;
  uint32_t last_use = never;  // of a root: the last instruction that touches its memory
  bool leaves = false;        // of a root: a value made in this segment that outlives it
  bool pinned = false;        // of a root: somebody sees it as a tensor
  bool returned = false;
  uint32_t result = UINT32_MAX;  // of the stage's results, the first that it is
  bool before = false;           // there when the segment starts
  bool held = false;             // of a root: a later segment reads its memory
  bool handed_on = false;        // of a root: its last reader's result has its slot now
  uint32_t born = never;         // of a root: the instruction that its memory is taken for
  int64_t slot = 0;              // offset in the buffer; of a carried root, in its segment's block
  int64_t extent = 0;            // of a carried root: how many bytes there
  // Of a carried root of an earlier segment of which a view outlives this one: where in this
  // segment's block its bytes are brought.
  std::optional<int64_t> brought;
  int64_t bytes() const { return layout.numel() * static_cast<int64_t>(size_of(layout.dtype)); }
};

// A kernel's pointer before memory is laid out.
struct BoundArg {
  enum class Kind : uint8_t {
    null,
    fixed,
    value,
    dropped,
    packed,
    faults,
    ticket
  } kind = Kind::null;
  Register reg = no_register;        // value
  const std::byte* fixed = nullptr;  // a number, or zeros
  int64_t bytes = 0;                 // dropped: of a result that nobody uses
  size_t packing = 0;  // packed: index into Draft::copies; ticket: into Draft::exchanges; faults:
                       // the first one
};

// A copy of operand 1 of several products, which each would rearrange: made before the first of
// them, gone after the last.
struct SharedPacking {
  Register reg = no_register;        // of what; it lies as the first reader's
  work::Gemm from;                   // the first reader
  SmallVector<uint32_t, 4> readers;  // instructions, ascending
  work::WorkRef copy;
  work::Kernel kernel;
  int64_t slot = 0;  // offset in the buffer
  int64_t bytes() const { return from.k * from.n * static_cast<int64_t>(size_of(from.dtype)); }
};

// A call of ranks that goes on while other instructions run.
struct Exchange {
  uint32_t begins = 0, ends = 0;  // instructions. It is waited for before `ends`, the first that
                                  // touches what it gives; one past the last: at the end
  work::WorkRef end;
  work::Kernel kernel;  // of that
  int64_t ticket = 0;   // offset in the buffer
  static constexpr int64_t ticket_bytes = 8;
};

// An instruction bound to layouts: its work, and code for it once that is made. Both are kept alive
// by the plan.
struct Bound {
  work::WorkRef work;
  work::KernelFunction run = nullptr;
  const void* parameters = nullptr;
  size_t scratch_bytes = 0;
  uint32_t first_arg = 0, args = 0;  // slice of the planner's
  uint32_t group = Local::never;     // index into SegmentPlan::groups of a member
  bool host = false;                 // see Step::host
  bool checks = false;               // makes no result: a group does
  bool later = false;                // on a device: the kernel of its group is being compiled
  // Of a group of one result: what it reads element by element as the result lies. The result may
  // lie there, if nobody reads that any more.
  Register in_place = no_register;
  // Of a group whose work is a nest: what has code for it.
  std::shared_ptr<const fusion::Kernel> kernel;
  bool acts() const { return work || run; }
  void set_code(const work::Kernel& code) {
    run = code.run;
    parameters = code.parameters.get();
    scratch_bytes = code.scratch_bytes;
  }
};

// Data, and what every step asks of it. An `index` is an instruction's number in the segment.
struct Draft {
  Draft(const Code& code, size_t segment, std::shared_ptr<const SegmentPlan> previous,
        std::span<const Tensor> inputs, std::vector<int64_t> key, const KernelChoice& choice);
  Draft(const Draft&) = delete;

  const Code& code;
  const size_t number;  // the segment's
  const Segment& segment;
  const StageCode& stage;
  const std::shared_ptr<SegmentPlan> plan;
  const std::span<const Tensor> inputs;
  const std::span<const Register> input_registers;
  const SizesByName sizes;
  const KernelChoice& choice;
  std::vector<uint32_t> local_numbers;  // by register: index into locals
  std::deque<Local> locals;             // only what the segment meets; references stay good
  std::vector<Bound> bound;             // by instruction
  std::vector<BoundArg> args;
  std::vector<SharedPacking> copies;  // by their first readers
  std::vector<Exchange> exchanges;    // by their ends

  const Instruction& instruction(uint32_t index) const {
    return stage.instructions[segment.first + index];
  }
  std::span<const Register> results_of(uint32_t index) const {
    const Instruction& i = instruction(index);
    return std::span(stage.results).subspan(i.first_result, i.results);
  }
  Register operand(uint32_t index, uint32_t k) const {
    return stage.operands[instruction(index).first_operand + k].reg;
  }
  std::span<const Register> returns() const {
    return segment.ends_stage ? std::span(stage.returns) : std::span<const Register>();
  }
  const ir::Node& node(uint32_t index) const {
    return code.graph().stages[segment.stage].nodes[instruction(index).node];
  }
  Local& local(Register r);
  // The same; finds a register of an earlier segment or a constant the first time it is met.
  Local& find(Register r);
  // A constant that nobody reads here is not.
  bool is_met(Register r) const {
    return r != no_register && local_numbers[index_of(r)] != Local::never;
  }
  uint32_t local_number(Register r) const { return local_numbers[index_of(r)]; }
  // Throws Error where a size is negative, or there are too many elements.
  Sizes sizes_of(const ir::Type& type) const;
  // Memory of the plan's for an operand of up to 8 bytes, zero.
  std::byte* number_memory();
  static constexpr size_t number_block = 4096;  // bytes of SegmentPlan::numbers' blocks
  // The last of the numbers' blocks is no such block, or full.
  void end_number_block() { number_at_ = number_block; }
  // The value is read, or a part of it is, as late as that.
  void read_until(Register r, uint32_t index);

 private:
  void place_tensor(Local& l, bool absent, const Layout& layout);
  friend void bind(Draft& draft);
  size_t number_at_ = 0;  // in the last of SegmentPlan::numbers
};

// How often instructions of the segment read each local; what is read later or returned is read
// once more.
std::vector<uint32_t> count_uses(const Draft& d);

}  // namespace gradus::interpreter
