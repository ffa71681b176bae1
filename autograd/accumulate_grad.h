// The node at a leaf: adds up what arrives in the leaf's `grad`.
#pragma once

#include "gradus/variable.h"

namespace gradus::autograd {

// One per living leaf: made on demand, found again while it lives. It does not keep the leaf alive
// (a gradient made with create_graph would close a cycle); once the leaf is gone it drops what
// arrives, since nobody could read it. Several tasks may accumulate at the same time: the sum is
// right, its order is not fixed.
class AccumulateGrad final : public Node {
 public:
  // The edge into `leaf`'s accumulator.
  static Edge edge_of(const Variable& leaf);
  ~AccumulateGrad() override;

  std::string name() const override { return "AccumulateGrad"; }
  bool is_thread_safe() const override;  // unless the leaf has hooks
  bool releases_hooks() const override { return false; }
  Variable accumulates_into() const override { return leaf(); }
  // The leaf; undefined if it is gone.
  Variable leaf() const { return Variable::of(anchor_->lock()); }

 private:
  explicit AccumulateGrad(const Variable& leaf, Ref<Anchor<VariableBody>> anchor);
  // Takes the gradient itself where nobody else holds it, a copy otherwise; with create_graph a
  // new, recorded one.
  Variables apply(Variables&& gradients) override;

  Ref<Anchor<VariableBody>> anchor_;
};

}  // namespace gradus::autograd
