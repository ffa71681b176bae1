// A backward as a program of its own.
#pragma once

#include "gradus/code.h"
#include "gradus/variable.h"

namespace gradus {

struct CaptureOptions {
  // By output: whether its cotangent does not arrive. Empty: all arrive.
  std::vector<bool> absent;
  // So many derivatives of the backward are compiled with it, for a StagedFunction of `code`.
  int derivatives = 0;
};

// What the engine would run from outputs down to inputs, as a program of one stage.
struct CapturedBackward {
  // Takes dy<i>, the cotangent of output i, for each that arrives; then s<k>, what was saved for
  // the derivative. Returns dx<i>, the gradient of input i, `none` where no path leads. Sizes are
  // the numbers that they were. `ir::differentiate` derives it further, with respect to what was
  // saved, too.
  std::shared_ptr<const ir::Graph> graph;
  // The same compiled, with the derivative stages that were asked for.
  std::shared_ptr<const Code> code;
  // What s<k> stands for: as it was saved, so that derivatives with respect to it go on through it.
  autograd::Variables saved;

  // The inputs of stage 0 for these cotangents, one for each that arrives.
  std::vector<Tensor> inputs(std::span<const Tensor> cotangents) const;
};

// Follows the graph of `outputs` as the engine does: the same nodes run, in the same order, and
// their gradients are added in the same order, so that the program gives the same bits. The graph
// is left as it is. Thread-safe. Backwards of one structure (operators, attributes, sizes, and
// which values are the same) share one graph and one code, kept in the current context.
//
// A registered function that was called by `call_function` is a `cpp_op` (or `python_op`) of what
// it was called with and an `eval` of its handle: it is called again when the program runs.
//
// Throws Error as `autograd::grad` does, and, naming the node, for what no program can hold: nodes
// of custom functions and of other C++ code, hooks that may change gradients, functions that
// declare how often they can be differentiated (registered ones may).
CapturedBackward capture_backward(std::span<const autograd::Variable> outputs,
                                  std::span<const autograd::Variable> inputs,
                                  const CaptureOptions& options = {});

// What a context has kept of captures.
struct CaptureStatistics {
  size_t kept = 0;             // structures, of which the most recently used are kept
  size_t hits = 0, built = 0;  // captures that found theirs, and those that built it
};
inline constexpr size_t most_kept_captures = 64;
CaptureStatistics capture_statistics(Context& context);

}  // namespace gradus
