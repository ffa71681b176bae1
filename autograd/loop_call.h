// Loops and branches on variables while something is recorded.
#pragma once

#include "gradus/apply.h"

namespace gradus::autograd {

// One call, however many steps it takes, of which the recorder is told. Its derivative is that of
// the passes (ir/passes/loops.h), at every order.
Variables apply_loop(const ir::Operator& op, const ir::Attributes& attributes,
                     std::span<const VariableOperand> operands);

class OperatorCall;
// What a call of a solver gives, by the steps that a program takes.
Variables solve_by_steps(const OperatorCall& call, std::span<const VariableOperand> operands);

}  // namespace gradus::autograd
