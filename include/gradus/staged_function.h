// Calls a compiled program as one function of an autograd graph.
#pragma once

#include "gradus/state.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus {

// Runs stage 0 on variables and records one node. A backward pass through that node runs stage 1 on
// the cotangents. With create_graph, the results of stage 1 have a node that runs stage 2, and so
// on. A program with stages 0 to N can be differentiated N times.
//
// The later stages of the code must have the interface of `differentiate`. Undefined cotangents are
// passed to the stage as absent. A node holds the state after its stage. A backward pass that keeps
// the graph runs on a clone of that state. A pass that does not keep the graph uses the state
// itself, and a second pass throws Error. Thread-safe: calls share only the code.
//
// If the context's kernels are those of a device, stages run there, on the current stream of the
// thread that calls the function or runs the node. Results are on the device if an input is.
// Gradients are where their inputs are.
class StagedFunction {
 public:
  // Throws Error if a later stage does not have the interface of a derivative stage. `unread` names
  // cotangents that the code does not read. A defined cotangent of such a name is an Error.
  explicit StagedFunction(std::shared_ptr<const Code> code,
                          std::shared_ptr<Context> context = Context::default_context(),
                          std::vector<std::string> unread = {});
  // Compiles `graph` with `derivatives` derivative stages.
  static StagedFunction of(const ir::Graph& graph, int derivatives);

  // How often the function can be differentiated.
  int derivatives() const;
  const std::shared_ptr<const Code>& code() const { return code_; }

  // Runs stage 0. Takes one variable per input and returns one per result, undefined for a
  // structural zero. Throws Error as State::run does, and for an input that requires a gradient if
  // the program was not differentiated with respect to that input.
  autograd::Variables operator()(std::span<const autograd::Variable> inputs) const;

 private:
  std::shared_ptr<const Code> code_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const std::vector<std::string>> unread_;
};

}  // namespace gradus

#pragma GCC visibility pop
