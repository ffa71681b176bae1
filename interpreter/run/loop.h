// A loop or branch ready to run: what its plan says, and running it by that.
#pragma once

#include <optional>
#include <vector>

#include "base/slots.h"
#include "interpreter/plan.h"

namespace gradus::interpreter {

struct LoopCode {
  // Where a value of a step lies: behind one of the pointers that a step has, or in the program.
  struct Source {
    size_t place = 0;
    const std::byte* fixed = nullptr;  // the program's: no place
    int64_t offset = 0;                // in bytes
    Layout layout;
  };

  // A copy from one place to another, by code of where the steps run.
  struct Transfer {
    work::WorkRef work;
    work::Kernel code;
    void run(const std::byte* from, std::byte* to, WorkerPool& workers) const;
  };

  // A result that no kernel writes where it belongs: what it is a copy of. None: it is absent.
  struct Copy {
    size_t result = 0;
    std::optional<Source> from;
    Transfer transfer;  // without a source, of zeros
  };

  // A constant that the steps read column by column: a copy that is made once.
  struct Turned {
    size_t input = 0;
    Layout given;
    size_t at = 0;  // in the scratch memory
  };

  // A kernel of the step that does nothing but to write carries where they lie. What else it reads
  // is held, and after some steps it runs for all of them: for one block of rows after the other,
  // so that what it writes is in the first cache from the first step to the last.
  struct Deferred {
    static constexpr int64_t most_steps = 16;  // that are held
    struct Pointer {                           // of a load or store
      int64_t block_bytes = 0;                 // from one block to the next
      size_t copied = 0;      // bytes that are copied, because the next step writes there; or 0
      size_t at = 0;          // where to, in the scratch memory, of the first step that is held
      bool in_place = false;  // a load of what the step before stored
    };
    struct Code {
      int64_t steps = 1;         // that it does at once
      work::Kernel block, rest;  // for the rows of a block, of the last one
    };
    size_t step = 0;                // of the plan's
    std::vector<Pointer> pointers;  // of loads, then of stores
    size_t loads = 0;
    int64_t blocks = 0;
    std::vector<Code> codes;  // the last one does a single step
    size_t at = 0;            // in the scratch memory: the pointers of each step that is held
  };

  // A sequence whose slices have gaps, and are copied for the steps.
  struct Gathered {
    size_t input = 0;
    Transfer transfer;  // of a slice
    size_t at = 0;      // in the scratch memory
  };

  // Steps that a device is given at once, where the loop is many launches. They are recorded in
  // each run, on slices in the scratch memory: so all chunks have the same addresses.
  struct Chunk {
    // A sequence or stacked result.
    struct Staged {
      size_t place = 0;
      int64_t stride = 0;  // in bytes, from slice to slice where the operand or result lies
      int64_t bytes = 0;   // of a slice in the scratch memory, without gaps
      size_t at = 0;       // where the first one of the chunk lies there
      Transfer transfer;   // of a chunk's slices
    };
    int64_t steps = 0;  // even: the places of carries take turns
    std::vector<Staged> read, written;
  };

  std::shared_ptr<const Code> code;
  // Where pointers are addresses of a device's, that: the host asks it for step after step, or for
  // chunks. Null where they are the host's.
  std::shared_ptr<devices::Backend> device;
  // A step's; or nothing, and what a state chooses from that runs the steps: data decide sizes, or
  // functions are called.
  std::shared_ptr<const SegmentPlan> plan;
  KernelChoice kernels;
  int64_t steps = 0;
  bool is_scan = false, reverse = false;
  bool apart = false;  // steps are worth running on all workers at once: none is a carry's
  size_t carries = 0, sequences = 0, inputs = 0, results = 0;
  std::vector<Layout> in;                 // of the loop's operands
  std::vector<Layout> out;                // of a step's results
  std::vector<int64_t> slice_bytes;       // by operand, of a sequence: from slice to slice
  std::vector<size_t> place_of_external;  // by the plan's externals
  std::vector<Copy> copies;
  std::vector<Transfer> first;  // by carry, from how the operand lies to how steps have it
  std::vector<Transfer> last;   // by carry, from there to the result, where data decide the length
  std::vector<Turned> turned;
  std::vector<Deferred> deferred;  // in the order of the plan's steps
  std::vector<Gathered> gathered;
  std::optional<Chunk> chunk;
  // Places: inputs, results, then tensors that only the step sees. In the scratch memory: pointers
  // of kernels, of places (here alone, see `device`), the step's buffer, second places of carries,
  // those tensors, what deferred kernels read, slices.
  size_t places = 0;
  size_t frame_at = 0, places_at = 0, buffer_at = 0;
  // Steps that one call of the plan's function runs at most, and where it is told how pointers move
  // and has room for two more frames. One: there is no function, or more to do in a step.
  int64_t rounds = 1;
  size_t moves_at = 0;
  size_t bytes = 0;                               // for who runs steps, one after the other
  std::vector<bool> in_place;                     // by carry: each step writes it where it lies
  std::vector<size_t> spare_at;                   // by carry
  std::vector<std::pair<size_t, size_t>> own_at;  // places, and where they lie

  // Scratch memory of the loop.
  size_t scratch_bytes() const { return bytes * static_cast<size_t>(apart ? most_slots() : 1); }
  // Of an input, in a step.
  Layout step_layout(size_t i) const;
  bool is_in_place(size_t carry) const { return !in_place.empty() && in_place[carry]; }
};

// The layout of a step's value: of a whole sequence or stack, without the first dimension.
Layout slice_of(Layout layout);

// The condition takes the carries and constants where they lie.
struct DataLoopCode {
  LoopCode condition, body;
  std::optional<int64_t> max_trips;
  std::optional<std::string> failure;
  size_t condition_at = 0, args_at = 0, holds_at = 0;  // in the scratch memory
};

struct BranchCode {
  LoopCode then, otherwise;
};

// Kernels: operands, then results.
void run_loop(const LoopCode& loop, std::byte* const* args, work::KernelScope& scope);
void run_data_loop(const DataLoopCode& loop, std::byte* const* args, work::KernelScope& scope);
// The choice first.
void run_branch(const BranchCode& branch, std::byte* const* args, work::KernelScope& scope);

}  // namespace gradus::interpreter
