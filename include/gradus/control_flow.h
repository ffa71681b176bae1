// Loops, branches, batches and solvers of C++ functions over variables. In a trace, each call is
// one instruction, for any number of steps. Outside a trace, steps run one after the other, and the
// autograd graph has their derivatives.
#pragma once

#include "gradus/trace.h"

#pragma GCC visibility push(default)

namespace gradus {

// A function that was recorded as the graph of a loop or a branch.
struct TracedBody {
  ir::Graph graph;  // has one stage
  // Values that the function uses besides its arguments: values of a surrounding recording, and
  // tensors. They are the last inputs of the graph.
  autograd::Variables captured;
};

// Runs `f` once, on tensors of these types without values, and records it. `f` may use what
// TraceOptions::shapes_only allows, and must not call registered functions. Throws Error as `trace`
// does.
TracedBody trace_body(const VariableFunction& f, std::span<const ir::Type> arguments,
                      std::string name, std::vector<std::string> argument_names = {});

// Options of a scan.
struct ScanOptions {
  std::optional<int64_t> length;  // the number of steps, if there are no sequences
  bool reverse = false;           // the last slice first
  // Lengths of segments, each shorter than the previous one. Derivatives keep only the carries
  // before each segment and repeat its steps. [1]: each step is a segment. The results are
  // bit-identical.
  std::vector<int64_t> checkpoint;
};

// The body takes the carries and a slice of each sequence along its first dimension. It returns the
// next carries and the results of the step. `scan` returns the last carries, and the results of all
// steps along a new first dimension. Throws Error if the type of a carry changes.
autograd::Variables scan(const TracedBody& body, std::span<const autograd::Variable> carries,
                         std::span<const autograd::Variable> sequences,
                         const ScanOptions& options = {});
autograd::Variables scan(const VariableFunction& body, std::span<const autograd::Variable> carries,
                         std::span<const autograd::Variable> sequences,
                         const ScanOptions& options = {});

// Returns the results of `then` if the predicate, a bool[], is true, otherwise those of
// `otherwise`.
autograd::Variables cond(const autograd::Variable& predicate, TracedBody then, TracedBody otherwise,
                         std::span<const autograd::Variable> operands);
autograd::Variables cond(const autograd::Variable& predicate, const VariableFunction& then,
                         const VariableFunction& otherwise,
                         std::span<const autograd::Variable> operands);

// Repeats the body as long as the condition holds. The body takes the carries and returns the next
// ones. The condition takes the carries and returns one bool[]. Returns the last carries.
// `checkpoint` is as in ScanOptions.
autograd::Variables while_loop(TracedBody condition, TracedBody body,
                               std::span<const autograd::Variable> carries,
                               std::vector<int64_t> checkpoint = {});
autograd::Variables while_loop(const VariableFunction& condition, const VariableFunction& body,
                               std::span<const autograd::Variable> carries,
                               std::vector<int64_t> checkpoint = {});

// Applies the body to a batch. Operands that `mapped` marks have an additional first dimension of
// one common size, as have all results. The batch rules of the operators compute the whole batch at
// once. Throws Error if the sizes differ, if no operand is mapped, and as ir::batch does.
autograd::Variables vmap(const TracedBody& body, std::span<const autograd::Variable> operands,
                         const std::vector<bool>& mapped);
autograd::Variables vmap(const VariableFunction& f, std::span<const autograd::Variable> operands,
                         const std::vector<bool>& mapped);

// Options of the solvers.
struct SolverOptions {
  std::optional<int64_t> max_steps;  // more steps are an Error
  std::optional<double> tolerance;   // 1e-10 for f64, 1e-5 for f32, otherwise 1e-2
};

// Solves residual(x, constants) = 0 for x, a number or a vector, by Newton's method from x0. In the
// solution, no element of the residual exceeds the tolerance in magnitude. Derivatives are those of
// the implicit function at x, of any order. The gradient of x0 is zero.
autograd::Variable root(const TracedBody& residual, const autograd::Variable& x0,
                        std::span<const autograd::Variable> constants,
                        const SolverOptions& options = {});

// Solves product(x, constants) = b for x by the method of conjugate gradients. The product must be
// linear in x, symmetric and positive definite. In the solution, |b - product| is at most the
// tolerance times |b|.
autograd::Variable linear_solve(const TracedBody& product, const autograd::Variable& b,
                                std::span<const autograd::Variable> constants,
                                const SolverOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
