// Loops and branches of C++ functions over variables. Within a trace each is one instruction,
// whatever the number of steps; elsewhere they run step by step, with the tape's derivatives.
// And functions for many operands at once.
#pragma once

#include "gradus/trace.h"

#pragma GCC visibility push(default)

namespace gradus {

// A function recorded as a graph that a loop or a branch runs.
struct TracedBody {
  ir::Graph graph;  // of one stage
  // What the function reads beside its arguments: values of a recording around it, and tensors.
  // They are the graph's last inputs.
  autograd::Variables captured;
};

// Runs `f` once, on tensors of these types that have no values, and records it. It may do what
// TraceOptions::shapes_only allows, and call no registered functions. Throws Error as `trace` does.
TracedBody trace_body(const VariableFunction& f, std::span<const ir::Type> arguments,
                      std::string name, std::vector<std::string> argument_names = {});

struct ScanOptions {
  std::optional<int64_t> length;  // of the sequences, where there are none
  bool reverse = false;           // the last slice first
  // Lengths of segments, each shorter than the one before: derivatives keep the carries before each
  // segment alone, and take its steps again. [1]: every step by itself. Bits stay.
  std::vector<int64_t> checkpoint;
};

// The body takes the carries, then a slice of each sequence along its first dimension; it gives the
// next carries, then the step's results. The results are the last carries, then the steps' results
// along a new first dimension. Throws Error where a carry changes its type.
autograd::Variables scan(const TracedBody& body, std::span<const autograd::Variable> carries,
                         std::span<const autograd::Variable> sequences,
                         const ScanOptions& options = {});
autograd::Variables scan(const VariableFunction& body, std::span<const autograd::Variable> carries,
                         std::span<const autograd::Variable> sequences,
                         const ScanOptions& options = {});

// What one of the two gives for these operands: `then` where the predicate, a bool[], holds.
autograd::Variables cond(const autograd::Variable& predicate, TracedBody then, TracedBody otherwise,
                         std::span<const autograd::Variable> operands);
autograd::Variables cond(const autograd::Variable& predicate, const VariableFunction& then,
                         const VariableFunction& otherwise,
                         std::span<const autograd::Variable> operands);

// The body takes the carries and gives the next ones, for as long as the condition, which takes
// them too and gives one bool[], holds. Gives the last carries. `checkpoint`: as of a scan.
autograd::Variables while_loop(TracedBody condition, TracedBody body,
                               std::span<const autograd::Variable> carries,
                               std::vector<int64_t> checkpoint = {});
autograd::Variables while_loop(const VariableFunction& condition, const VariableFunction& body,
                               std::span<const autograd::Variable> carries,
                               std::vector<int64_t> checkpoint = {});

// What the body gives for one, for many at once: operands that `mapped` marks have a dimension of
// one size in front, and so have all results. It runs by the operators' batch rules, one call for
// all of them. Throws Error where sizes differ, where none is mapped, where an operator takes no
// batch, and as ir::batch does.
autograd::Variables vmap(const TracedBody& body, std::span<const autograd::Variable> operands,
                         const std::vector<bool>& mapped);
autograd::Variables vmap(const VariableFunction& f, std::span<const autograd::Variable> operands,
                         const std::vector<bool>& mapped);

struct SolverOptions {
  std::optional<int64_t> max_steps;  // more are an Error
  std::optional<double> tolerance;   // 1e-10 in f64, 1e-5 in f32, 1e-2 else
};

// x where the residual, of x and the constants, is zero, by Newton's method from x0, a number or a
// vector: no element of the residual is larger than the tolerance then. Derivatives are those of
// the residual at x, of any order; none passes to x0.
autograd::Variable root(const TracedBody& residual, const autograd::Variable& x0,
                        std::span<const autograd::Variable> constants,
                        const SolverOptions& options = {});

// x whose product, of x and the constants, is b, by conjugate gradients: the product is linear in
// x, symmetric and positive definite. |b - product| is at most the tolerance times |b| then.
autograd::Variable linear_solve(const TracedBody& product, const autograd::Variable& b,
                                std::span<const autograd::Variable> constants,
                                const SolverOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
