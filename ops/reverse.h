// Reverse mode at one node, written once for every world: a graph's, where a derivative rule emits
// nodes, a recorder's, and the engine's, where it runs.
#pragma once

#include "gradus/value.h"

namespace gradus::ops {

// A node and what has arrived at its results. First its operands and results are added, then its
// rule is called.
class PullBack {
 public:
  // `x` is undefined where it is left out. `wanted`: its gradient is asked for.
  void operand(Value&& x, bool wanted);
  // `dy` is undefined where no cotangent arrives.
  void result(Value&& y, Value dy);
  // Calls the rule, if anything arrives and anything is wanted. Of the gradients there is one per
  // operand, undefined where it is structurally zero or not wanted; it may still be broadcast or
  // promoted: see `fit`. Throws what the rule throws. The call refers to this.
  VjpCall call(World& world, const Operator& op, const Attributes& attributes) const;

 private:
  SmallVector<Value, 4> x_;
  SmallVector<Value, 2> y_, dy_;
  SmallVector<bool, 4> wanted_;
  bool arrives_ = false, wants_ = false;
};

// The gradient of an operand of that type: undoes broadcasting and promotion, and what ranks of a
// group did with a value that they share (ops/collectives.h).
Value fit(const Value& gradient, Type type);
// The same, but for what ranks share.
Value fit_here(const Value& gradient, Type type);

// Adds a contribution to what has arrived, which is undefined at first.
void accumulate(Value& sum, const Value& contribution);

}  // namespace gradus::ops
