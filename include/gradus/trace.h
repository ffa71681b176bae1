// Traces C++ functions over variables: records them as programs.
#pragma once

#include <functional>

#include "gradus/staged_function.h"

namespace gradus::interpreter {
struct TracedProgram;
}

#pragma GCC visibility push(default)

namespace gradus {

// A function from any number of variables to any number of variables.
using VariableFunction =
    std::function<autograd::Variables(std::span<const autograd::Variable> inputs)>;

// Options of a trace.
struct TraceOptions {
  // The number of derivative stages. Each is recorded while a backward pass runs.
  int order = 0;
  std::string name = "traced";
  // Names in the program. Empty: x0, x1, … and y0, y1, …
  std::vector<std::string> inputs, outputs;
  // Whether `trace` runs the backward passes, with random cotangents. If false, the caller runs
  // them.
  bool run_backward = false;
  // Whether to compute no values. Results then have types; where they are read as memory they are
  // zeros, and they must not be used outside the trace. If `f` calls a function that needs values,
  // `f` runs a second time, with values.
  bool shapes_only = false;
  // If not null: variables that require gradients and are no inputs become inputs of the program,
  // after the others, and are stored here. If null, each of them is an Error. Only for order 0.
  autograd::Variables* captures = nullptr;
};

// A recorded program, of which later stages may still be missing. Copies share the program.
// Thread-safe. The functions of a default-constructed trace throw Error.
class Trace {
 public:
  // The number of derivative stages, and whether all of them are recorded.
  int order() const;
  bool complete() const;
  // The recorded stages. Inputs and results are those of `differentiate`, for the inputs that
  // required gradients. Sizes are the recorded numbers. Stage 0 has no input for an undefined
  // variable.
  ir::Graph graph() const;
  // Returns the compiled program. Throws Error if a stage is missing. The message says how to
  // record it, or that this is impossible because the variables of the recording were destroyed.
  std::shared_ptr<const Code> code() const;

  // Names of the cotangents that were absent when their stage was recorded.
  std::vector<std::string> absent_cotangents() const;

  // Runs the program in place of the function, as one node of the inputs' graph. Throws Error as
  // `code` and State::run do, and for inputs that differ from the recorded ones: their number,
  // whether an input is defined and, in gradient mode, whether it requires a gradient. The message
  // names the input. A cotangent that was absent in the recording must be absent when its stage
  // runs. The other cotangents may be absent.
  autograd::Variables operator()(std::span<const autograd::Variable> inputs) const;

 private:
  friend Trace trace_of(std::shared_ptr<interpreter::TracedProgram> program);
  interpreter::TracedProgram& program() const;  // Error for a default-constructed trace
  std::shared_ptr<interpreter::TracedProgram> program_;
};

// The results of `trace`.
struct Traced {
  Trace trace;
  // The results of the function. A backward pass from them is recorded as stage 1. With
  // create_graph, a backward pass from its gradients is recorded as stage 2, and so on. Running a
  // pass again replaces its stage and removes the later stages. The values that missing stages need
  // are kept as long as the outputs (or their gradients) exist.
  autograd::Variables outputs;
};

// Runs `f` on `inputs` and records its operators, constants (copied), calls of registered functions
// (call_function) and nested calls of `grad`, at any depth. `f` runs on the calling thread, in a
// context with a separate engine.
//
// A program cannot represent the following operations. Each throws an Error that names it.
//   reading the value of a variable (Tensor::item, to_doubles, copy, …); reading through
//     Tensor::data is not detected
//   sizes that data determine
//   variables that require gradients and are no inputs, unless TraceOptions::captures
//   custom functions that are not registered
//   backward passes that accumulate
//   writing in place
//   calls of other programs
// Throws Error also for inputs and outputs that a program cannot have. Exceptions of `f` are passed
// on.
Traced trace(const VariableFunction& f, std::span<const autograd::Variable> inputs,
             const TraceOptions& options = {});

// Returns a leaf with the values of `v` that requires gradients. No gradient flows on from it to
// `v`. A trace that is recorded on this thread takes the leaf for a value of its program, so that a
// function can be differentiated at a constant there.
autograd::Variable leaf_of(const autograd::Variable& v);

// Runs `f` and the program on these inputs, at every order, with the same random cotangents. Use
// inputs that differ from the recorded ones. Throws Error, which names the first result whose bits
// differ, and as Trace::code and the call of a Trace do.
void verify(const Trace& trace, const VariableFunction& f,
            std::span<const autograd::Variable> inputs);

}  // namespace gradus

#pragma GCC visibility pop
