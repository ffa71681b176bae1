// An operator bound to operands of certain layouts: a call that can be run any number of times.
#pragma once

#include <memory>

#include "gradus/bind.h"
#include "gradus/tensor.h"
#include "kernels/call_table.h"

namespace gradus::ops {

// An operand of a run: a tensor, a number, or none.
struct RunOperand {
  const Tensor* tensor = nullptr;
  const ir::Number* number = nullptr;
};

// Immutable once made.
struct BoundCall {
  SmallVector<ir::Type, 1> types;  // of the results
  SmallVector<Layout, 2> in;       // of numbers too; of what is absent empty
  SmallVector<Layout, 1> out;
  SmallVector<BindCall::View, 2> views;  // one per result
  work::Kernel kernel;
};

// Infers and binds, or finds what this thread bound before. Null for a composition, which has no
// kernel of its own. Throws Error as the type rule and `bind` do.
std::shared_ptr<const BoundCall> bound_call(const ir::Operator& op,
                                            const ir::Attributes& attributes,
                                            std::span<const CallOperand> operands);

// Runs it on tensors of the layouts it was bound to: results from the context, views sharing
// storage with their operand. Throws Error as the kernel does.
SmallVector<Tensor, 2> run_call(const BoundCall& call, std::span<const RunOperand> operands,
                                Context& context);

}  // namespace gradus::ops
