// Operators' rules into LLVM values.
#pragma once

#include <llvm/IR/Value.h>

#include "fusion/cpu/llvm/emitter.h"
#include "fusion/rules.h"

namespace gradus::fusion::cpu {

// Emitted values are LLVM's, under another name.
class RuleEmitter final : public ScalarEmitter {
 public:
  explicit RuleEmitter(Emitter& to) : to_(to) {}

  static llvm::Value* value(V v) { return reinterpret_cast<llvm::Value*>(v); }
  static V emitted(llvm::Value* v) { return reinterpret_cast<V>(v); }

  V constant(LaneType type, double c) override { return emitted(to_.constant(type, c)); }
  V constant(LaneType type, int64_t c) override { return emitted(to_.constant(type, c)); }
  V truth(bool c) override { return emitted(to_.truth(c)); }
  V unary(Unary op, V x) override { return emitted(to_.unary(op, value(x))); }
  V binary(Binary op, V a, V b) override { return emitted(to_.binary(op, value(a), value(b))); }
  V compare(Compare op, V a, V b) override { return emitted(to_.compare(op, value(a), value(b))); }
  V select(V c, V a, V b) override { return emitted(to_.select(value(c), value(a), value(b))); }
  V fma(V a, V b, V c) override { return emitted(to_.fma(value(a), value(b), value(c))); }
  V to_bits(V x) override { return emitted(to_.to_bits(value(x))); }
  V from_bits(V x) override { return emitted(to_.from_bits(value(x))); }
  V fmod(V a, V b) override { return emitted(to_.fmod(value(a), value(b))); }
  V scale_by_exp2(V x, V k) override { return emitted(to_.scale_by_exp2(value(x), value(k))); }
  void begin_rare(V condition) override { to_.begin_rare(value(condition)); }
  void join_rare() override { to_.join_rare(); }
  void end_rare() override { to_.end_rare(); }

 private:
  Emitter& to_;
};

// A rule on vectors of what is computed in, or truth values for conditions.
inline llvm::Value* emit(Rule rule, Emitter& at, std::span<llvm::Value* const> operands,
                         const ir::AttributeRecord* attributes) {
  RuleEmitter emitter(at);
  SmallVector<Emitted*, 4> given;
  for (llvm::Value* v : operands) given.push_back(RuleEmitter::emitted(v));
  return RuleEmitter::value(rule(emitter, given.data(), attributes));
}

}  // namespace gradus::fusion::cpu
