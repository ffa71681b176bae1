// The instructions of a kernel's body in LLVM values: vectors of as many lanes as the kernel works
// on elements at a time. What operators' rules ask for comes through fusion/cpu/rule_emitter.h.
#pragma once

#include "fusion/scalar_emitter.h"

namespace llvm {
class Value;
}

namespace gradus::fusion::cpu {

// Appends to where it stands. Values are vectors; floats and integers are told apart by their
// types. Nothing is contracted or reassociated.
class Emitter {
 public:
  using V = llvm::Value*;

  V constant(LaneType type, double value);
  V constant(LaneType type, int64_t value);
  V truth(bool value);
  V unary(Unary op, V x);
  V binary(Binary op, V a, V b);
  V compare(Compare op, V a, V b);
  V select(V condition, V a, V b);
  V fma(V a, V b, V c);
  V to_bits(V x);
  V from_bits(V x);
  V fmod(V a, V b);           // a call for each lane
  V scale_by_exp2(V x, V k);  // null where the target has no instruction for it

  // What stands between the first two runs only if `condition` holds in a lane. Between the last
  // two nothing but select(condition, rare, common) is emitted, which joins the two ways.
  void begin_rare(V condition);
  void join_rare();
  void end_rare();

  struct State;
  explicit Emitter(State& state) : state_(state) {}

 private:
  State& state_;
};

}  // namespace gradus::fusion::cpu
