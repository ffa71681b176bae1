// A whole program as one function of somebody else's autograd graph.
#pragma once

#include "gradus/state.h"
#include "gradus/variable.h"

#pragma GCC visibility push(default)

namespace gradus {

// Calls stage 0 on variables and leaves one node. When a backward reaches that node it runs stage 1
// on the cotangents that arrive; with create_graph stage 1's results have a node too, which runs
// stage 2, and so on: a program with stages 0 to N can be differentiated N times.
//
// The code's later stages have to be those of `differentiate` (D1's interface). Undefined
// cotangents are handed on as they are. A node holds the state as it was after its stage: a
// backward that keeps the graph, or runs beside another one, works on a clone; one that does not
// keep it uses the state up, and a second one is an Error. Thread-safe; calls share the code and
// nothing else.
//
// Where the context's kernels are a device's, stages run there, on the current stream of who calls
// and of who runs the node; results lie there if an input does, gradients where their inputs lie.
class StagedFunction {
 public:
  // Throws Error if a later stage does not have the interface of a derivative.
  // `unread` names cotangents that the code does not look at: one that arrives is an Error.
  explicit StagedFunction(std::shared_ptr<const Code> code,
                          std::shared_ptr<Context> context = Context::default_context(),
                          std::vector<std::string> unread = {});
  // Compiles `graph` with as many derivative stages.
  static StagedFunction of(const ir::Graph& graph, int derivatives);

  // How often it can be differentiated.
  int derivatives() const;
  const std::shared_ptr<const Code>& code() const { return code_; }

  // Stage 0: one variable per input, one per result (undefined where that is a structural zero).
  // Throws Error as State::run does, and for an input that requires a gradient which the program
  // was not differentiated with respect to.
  autograd::Variables operator()(std::span<const autograd::Variable> inputs) const;

 private:
  std::shared_ptr<const Code> code_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const std::vector<std::string>> unread_;
};

}  // namespace gradus

#pragma GCC visibility pop
