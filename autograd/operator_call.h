// What calls of one operator on operands of the same types share: worked out once, then looked up.
#pragma once

#include <mutex>

#include "autograd/operators.h"
#include "ops/bound_call.h"

namespace gradus::autograd {

class RuleTape;

// One bit per operand or result.
class SlotMask {
 public:
  explicit SlotMask(size_t n) : words_((n + 63) / 64, 0) {}
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  bool operator[](size_t i) const { return words_[i / 64] >> i % 64 & 1; }
  bool any() const {
    for (uint64_t w : words_)
      if (w) return true;
    return false;
  }
  friend bool operator==(const SlotMask&, const SlotMask&) = default;

 private:
  SmallVector<uint64_t, 1> words_;
};

// An operator with its attributes on operands of given types. Thread-safe: what is found later (the
// kernel, what the derivative rule reads and emits) is found once and then never changes.
class OperatorCall final : public RefCounted {
 public:
  struct Operand {
    bool is_tensor = false;
    std::optional<ir::Number> number;  // neither: left out
    ir::Type type;                     // of a tensor
    Layout layout;                     // of a contiguous one
  };
  // Throws Error as the type rule does.
  OperatorCall(const ir::Operator& op, ir::Attributes attributes, SmallVector<Operand, 2> operands);
  ~OperatorCall() override;
  // The call of these operands (all defined), from this thread's memory of the latest if it is
  // there.
  static Ref<const OperatorCall> find(const ir::Operator& op, const ir::Attributes& attributes,
                                      std::span<const VariableOperand> operands);

  const ir::Operator& op() const { return op_; }
  const ir::Attributes& attributes() const { return attributes_; }
  std::span<const Operand> operands() const { return operands_; }
  std::span<const ir::Type> results() const { return results_; }  // their types
  // Of the results of a node of this call on the CPU; and their elements.
  std::span<const InputMetadata> metadata() const { return metadata_; }
  int64_t elements() const { return elements_; }
  // Where it runs: that of an operand that is not on the CPU, if there is one.
  Device device() const { return device_; }
  // Bound to contiguous operands; null for a composition.
  const ops::BoundCall* bound() const;

  // Runs it; no tensor for a number or what is left out. Throws Error as ops::evaluate does.
  SmallVector<Tensor, 2> run(std::span<const Tensor* const> operands) const;

  // Of an operator with a derivative rule: which operands' and results' values the rule may read,
  // and what it emits for these wanted operands and these cotangents that are there.
  bool rule_reads_operand(size_t i) const { return reads().operands[i]; }
  bool rule_reads_result(size_t i) const { return reads().results[i]; }
  const RuleTape& tape(const SlotMask& wanted, const SlotMask& cotangents) const;

 private:
  struct Reads {
    SlotMask operands, results;
  };
  const Reads& reads() const;
  bool matches(const ir::Operator& op, const ir::Attributes& attributes,
               std::span<const VariableOperand> operands) const;

  const ir::Operator& op_;
  const ir::Attributes attributes_;
  const SmallVector<Operand, 2> operands_;
  SmallVector<ir::Type, 1> results_;
  std::vector<InputMetadata> metadata_;
  int64_t elements_ = 0;
  Device device_;
  mutable std::atomic<const std::shared_ptr<const ops::BoundCall>*> bound_{nullptr};  // owned
  mutable std::atomic<const Reads*> reads_{nullptr};                                  // owned
  mutable std::atomic<const RuleTape*> tapes_{nullptr};  // owned; a list, the latest first
};

// Of a tensor on the CPU whose sizes are known.
InputMetadata metadata_of(const ir::Type& type);

// Runs a call on variables, recorded for the derivative where that is on and an operand leads
// somewhere. One pointer per operand; null for a number or what is left out.
Variables apply(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands);

}  // namespace gradus::autograd
