// What calls of one operator on operands of the same types share: worked out once, then looked up.
#pragma once

#include <mutex>

#include "autograd/growing_list.h"
#include "gradus/apply.h"
#include "gradus/pointwise.h"
#include "kernels/bound_call.h"

namespace gradus::autograd {

class RuleTape;
struct TapePlan;

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
  // Where it runs: that of an operand that is not on the CPU, if there is one.
  Device device() const { return device_; }
  // Bound to contiguous operands; null for a composition.
  const ops::BoundCall* bound() const;

  // Whether it is for these operands, all of them tensors.
  bool is_for(std::span<const Variable* const> operands) const;
  // Puts the result in the place of the first operand's values, which nobody else sees: of small
  // pointwise operators on contiguous operands. False if it cannot.
  bool run_in_place(const Tensor& first, const Tensor& second) const;
  // Runs it; no tensor for a number or what is left out. Throws Error as ops::evaluate does.
  SmallVector<Tensor, 2> run(std::span<const Tensor* const> operands) const;

  // Of an operator with a derivative rule. What a node of it is like; its tapes' slots are the
  // operands, the results, then the results' cotangents.
  const TapePlan& plan() const {
    const TapePlan* known = plan_.load(std::memory_order_acquire);
    return known ? *known : find_plan();
  }
  // What the rule emits for these wanted operands (which may name some that are no tensors) and
  // these cotangents that are there.
  const RuleTape& tape(std::span<const bool> wanted, std::span<const bool> arrived) const;

 private:
  struct Recorded;
  const TapePlan& find_plan() const;
  bool matches(const ir::Operator& op, const ir::Attributes& attributes,
               std::span<const VariableOperand> operands) const;
  void look_for_loop(const ops::BoundCall& bound) const;
  // By its loop, if it has one and all lie contiguously.
  bool run_loop(std::span<const Tensor* const> operands, SmallVector<Tensor, 2>& results) const;

  const ir::Operator& op_;
  const ir::Attributes attributes_;
  const SmallVector<Operand, 2> operands_;
  SmallVector<ir::Type, 1> results_;
  Device device_;
  // Of a pointwise operator whose operands lie as its result does, in the dtype that it is computed
  // in: nothing has to be looked up to run it. The kernel that it is bound to does no more.
  struct Loop {
    ops::PointwiseLoop run = nullptr;
    int64_t elements = 0;
    size_t bytes = 0;
  };
  mutable std::atomic<const Loop*> loop_{nullptr};  // owned; known once it is bound
  mutable std::atomic<const std::shared_ptr<const ops::BoundCall>*> bound_{nullptr};  // owned
  mutable std::atomic<const TapePlan*> plan_{nullptr};                                // owned
  mutable GrowingList<Recorded> tapes_;
};

// The loop of a pointwise operator whose operands are values of the result's dtype, in which it is
// computed, where the kernel does no more than to hand it what it reads; else null. Some operators
// have another kernel for some operands.
ops::PointwiseLoop plain_loop(const ir::Operator& op, const work::Kernel& kernel, DType result,
                              size_t operands);

// Of a tensor whose sizes are known.
InputMetadata metadata_of(const ir::Type& type);

// Runs a call on variables, recorded for the derivative where that is on and an operand leads
// somewhere. One pointer per operand; null for a number or what is left out.
Variables apply(const Ref<const OperatorCall>& call, std::span<const Variable* const> operands);

}  // namespace gradus::autograd
