// A rule's tape bound to contiguous values on the CPU: kernels one after the other, what lies
// between them on the stack.
#pragma once

#include "autograd/rule_tape.h"
#include "gradus/pointwise.h"

namespace gradus::autograd {

class RuleTape::Small {
 public:
  explicit Small(const RuleTape& tape);
  bool possible() const { return possible_; }
  // See RuleTape::play_small.
  bool play(std::span<const Tensor* const> given, Context& context,
            SmallVector<Tensor, 4>& gradients) const;

 private:
  static constexpr int64_t most_scratch_bytes = 8192;
  static constexpr uint32_t unknown = UINT32_MAX, most_pointers = 32;

  // Where a slot's elements lie: `root` is what is given, or what some step makes.
  struct Place {
    uint32_t root = unknown;
    int64_t offset = 0;  // in bytes
    Layout layout;
  };
  // A kernel's pointer. Bases are what is given, the tensors that leave, the stack, the numbers.
  struct Pointer {
    uint32_t base = unknown;  // unknown while it is made: null
    int64_t offset = 0;
  };
  struct Step {
    ops::PointwiseLoop loop = nullptr;  // called itself where it is known to serve; else the kernel
    int64_t elements = 0;
    const ir::AttributeRecord* attributes = nullptr;
    work::KernelFunction run = nullptr;
    const void* parameters = nullptr;
    uint32_t first_pointer = 0, pointers = 0;
    int64_t scratch = 0;  // on the stack
  };
  struct Leaving {
    Layout layout;
    size_t bytes;
  };
  struct Gradient {
    bool given = false;
    bool whole = true;  // else a view
    bool last = true;   // no later one lies there
    uint32_t root = 0;  // a base
    Layout layout;
    int64_t offset = 0;  // in elements
  };

  bool place(const RuleTape& tape);
  bool place_step(const RuleTape::Step& step);
  void choose_leaving(const RuleTape& tape);
  bool lay_out(const RuleTape& tape);
  bool lay_out_step(const RuleTape::Step& step, const ops::BoundCall& call);
  ops::PointwiseLoop loop_of(const RuleTape::Step& step, const ops::BoundCall& call) const;
  Pointer number(const ir::Number& n, const Layout* as);
  int64_t on_stack(int64_t bytes);

  const uint32_t given_;  // how many
  bool possible_ = false;
  std::vector<Layout> layouts_;  // of what is given
  std::vector<Step> steps_;
  std::vector<Pointer> pointers_;
  std::vector<uint64_t> numbers_;
  std::vector<Leaving> leaving_;  // tensors that are made
  SmallVector<Gradient, 2> gradients_;
  std::vector<std::shared_ptr<const void>> kept_;  // kernels that no call of the tape holds

  // Only while it is made.
  struct Draft {
    std::vector<Place> places;                 // by slot
    std::vector<Pointer> roots;                // by root
    std::vector<Layout> made;                  // by root: of what is given, of what steps make
    std::vector<const ops::BoundCall*> calls;  // by step
    int64_t stack = 0;
  };
  Draft draft_;
};

}  // namespace gradus::autograd
