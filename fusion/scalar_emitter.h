// The instructions of a kernel's body, as the scalar world of emitted values (fusion/lane.h) asks
// for them.
//
// Operators' rules are instantiated over it once, and serve every back end: one derives from it and
// says how an instruction is written.
#pragma once

#include <cstdint>

namespace gradus::fusion {

// What a lane holds.
enum class LaneType : uint8_t { f32, f64, i32, i64, u64 };

enum class Unary : uint8_t { negate, abs, sqrt, floor, ceil, trunc, round_even };
enum class Binary : uint8_t {
  add,
  subtract,
  multiply,
  divide,  // integers: towards zero; the divisor is neither 0 nor, under the minimum, -1
  remainder,
  divide_unsigned,  // the divisor is not 0
  remainder_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,  // arithmetic
  shift_right_logical,
  copysign,
};
enum class Compare : uint8_t {
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  less_unsigned,
  less_equal_unsigned,
  greater_unsigned,
  greater_equal_unsigned,
};

// What is made of the operations above unless a back end has an operation of its own for it. The
// names are those of ops/scalar.
enum class Function : uint8_t {
  // floats
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  atan2,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  sigmoid,
  logsigmoid,
  log1p_exp,
  erf,
  erfc,
  erfinv,
  lgamma,
  digamma,
  polygamma,  // of any order: refused or made of others
  pow,
  fmod,
  hypot,
  is_nan,
  is_inf,
  // integers
  abs,
  trunc_div,
  floor_div,
  floor_mod,
  c_rem,
  // both
  maximum,
  minimum,
};

// A value that an emitter made, or was given as an operand: what it is only that emitter knows.
struct Emitted;

// Appends to where it stands. Floats, integers and truth values are told apart by the values; where
// the sign of integers has a say, by the operation.
// Nothing is contracted or reassociated.
class ScalarEmitter {
 public:
  using V = Emitted*;

  virtual V constant(LaneType type, double value) = 0;
  virtual V constant(LaneType type, int64_t value) = 0;
  virtual V truth(bool value) = 0;
  virtual V unary(Unary op, V x) = 0;
  virtual V binary(Binary op, V a, V b) = 0;  // of truth values: bit_and, bit_or, bit_xor
  virtual V compare(Compare op, V a, V b) = 0;
  virtual V select(V condition, V a, V b) = 0;
  virtual V fma(V a, V b, V c) = 0;
  virtual V to_bits(V x) = 0;
  virtual V from_bits(V x) = 0;
  virtual V fmod(V a, V b) = 0;  // C's, exact
  // The function by an operation of the back end's own, y for those of two operands; null where it
  // has none.
  virtual V function(Function f, V x, V y) {
    static_cast<void>(f), static_cast<void>(x), static_cast<void>(y);
    return nullptr;
  }
  // x * 2^k for integral k as gradus/scalar/pair.h has it, where there is an instruction for that;
  // else null.
  virtual V scale_by_exp2(V x, V k) {
    static_cast<void>(x), static_cast<void>(k);
    return nullptr;
  }

  // What stands between the first two runs only if `condition` holds in a lane. Between the last
  // two nothing but select(condition, rare, common) is emitted, which joins the two ways.
  virtual void begin_rare(V condition) = 0;
  virtual void join_rare() = 0;
  virtual void end_rare() = 0;

 protected:
  ~ScalarEmitter() = default;
};

}  // namespace gradus::fusion
