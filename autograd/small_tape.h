// A rule's tape bound to contiguous values on the CPU: kernels one after the other, what lies
// between them on the stack.
#pragma once

#include "autograd/rule_tape.h"

namespace gradus::autograd {

class RuleTape::Small {
 public:
  explicit Small(const RuleTape& tape);
  // Nothing where the tape needs something else: see RuleTape::play_small.
  std::optional<SmallVector<Tensor, 2>> play(std::span<const Tensor> inputs) const;

 private:
  static constexpr int64_t most_scratch_bytes = 8192;
  static constexpr uint32_t unknown = UINT32_MAX;

  // Where a slot's elements lie: `root` is an input, or what some step makes.
  struct Place {
    uint32_t root = unknown;
    int64_t offset = 0;  // in bytes
    Layout layout;
  };
  // A kernel's pointer. Bases are the inputs, the tensors that leave, the stack, the numbers.
  struct Pointer {
    uint32_t base = unknown;  // unknown: null
    int64_t offset = 0;
  };
  struct Step {
    ir::KernelFunction run;
    const void* parameters;
    uint32_t first_pointer, pointers;
    int64_t scratch;  // on the stack
  };
  struct Gradient {
    bool given = false;
    uint32_t root = 0;  // an input, or inputs + the number of a tensor that leaves
    bool whole = true;  // else a view
    Layout layout;
    int64_t offset = 0;  // in elements
  };

  bool place(const RuleTape& tape);
  bool place_step(const RuleTape::Step& step);
  void choose_leaving(const RuleTape& tape);
  bool lay_out(const RuleTape& tape);
  int64_t on_stack(int64_t bytes);

  const size_t inputs_;
  bool possible_ = false;
  SmallVector<uint32_t, 4> checked_;  // inputs that are read
  std::vector<Layout> layouts_;       // by input
  std::vector<Step> steps_;
  std::vector<Pointer> pointers_;
  std::vector<uint64_t> numbers_;
  std::vector<Layout> leaving_;  // of tensors that are made
  SmallVector<Gradient, 2> gradients_;
  std::vector<std::shared_ptr<const void>> kept_;  // kernels that no call of the tape holds

  // Only while it is made.
  struct Draft {
    std::vector<Place> places;                 // by slot
    std::vector<Pointer> roots;                // by root
    std::vector<Layout> made;                  // by root, of what steps make
    std::vector<const ops::BoundCall*> calls;  // by step
    int64_t stack = 0;
  };
  Draft draft_;
};

}  // namespace gradus::autograd
