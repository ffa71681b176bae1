// The instructions of a kernel's body, as the scalar world of LLVM values asks for them.
//
// No header of LLVM is needed to write rules over it: operators' templates are instantiated in
// files that see this one and lane.h alone.
#pragma once

#include <cstdint>
#include <memory>

namespace llvm {
class Value;
}

namespace gradus::fusion::cpu {

// What a lane holds. A vector has as many lanes as the kernel works on elements at a time.
enum class LaneType : uint8_t { f32, f64, i32, i64 };

enum class Unary : uint8_t { negate, abs, sqrt, floor, ceil, trunc, round_even };
enum class Binary : uint8_t {
  add,
  subtract,
  multiply,
  divide,  // integers: towards zero; the divisor is neither 0 nor, under the minimum, -1
  remainder,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,  // arithmetic
  shift_right_logical,
  copysign,
};
enum class Compare : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };

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
  V fmod(V a, V b);  // a call for each lane

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
