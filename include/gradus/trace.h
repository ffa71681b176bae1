// C++ functions over variables, recorded as programs.
#pragma once

#include <functional>

#include "gradus/staged_function.h"

namespace gradus::interpreter {
struct TracedProgram;
}

#pragma GCC visibility push(default)

namespace gradus {

// Takes and gives any number of variables.
using VariableFunction =
    std::function<autograd::Variables(std::span<const autograd::Variable> inputs)>;

struct TraceOptions {
  // So many derivative stages are recorded, each while a backward runs.
  int order = 0;
  std::string name = "traced";
  // In the program; empty: x0, x1, … and y0, y1, …
  std::vector<std::string> inputs, outputs;
  // Whether `trace` itself runs the backwards, with random cotangents. Otherwise the user does.
  bool run_backward = false;
  // Whether no values are computed: results have types and, where they are read as memory, zeros,
  // and are of no use outside the trace. `f` runs a second time, with values, where it calls a
  // function that needs them.
  bool shapes_only = false;
};

// A program as far as it is recorded. Copies share it. Thread-safe.
class Trace {
 public:
  // How many derivatives it is to have, and whether the stages for them are all there.
  int order() const;
  bool complete() const;
  // The stages that are there. Their signature is that of `differentiate`, for the inputs that
  // required gradients; sizes are the numbers that they were; an input that was undefined is left
  // out of stage 0.
  ir::Graph graph() const;
  // All stages, compiled. Throws Error if some are not recorded yet, saying what to do; or what
  // cannot be done any more, since the outputs whose backward would record them are gone.
  std::shared_ptr<const Code> code() const;

  // Names of the cotangents that did not arrive when their stage was recorded.
  std::vector<std::string> absent_cotangents() const;

  // Runs the program in the function's place, as one node of the inputs' graph.
  // Throws Error as `code` and State::run do, and where flags differ from the recording's, naming
  // the input: one that is undefined or not, requires a gradient or not (where gradients are
  // recorded). A cotangent that was absent must be absent when stage k runs; any may be.
  autograd::Variables operator()(std::span<const autograd::Variable> inputs) const;

 private:
  friend Trace trace_of(std::shared_ptr<interpreter::TracedProgram> program);
  interpreter::TracedProgram& program() const;  // Error for a default-made one
  std::shared_ptr<interpreter::TracedProgram> program_;
};

struct Traced {
  Trace trace;
  // What the function gave. A backward from these, by whoever and whenever, is recorded as stage 1;
  // with create_graph one from its gradients as stage 2, and so on. One that is run again records
  // its stage anew, and what was recorded beyond it goes. Everything that the stages left needs is
  // kept as long as the outputs (or their gradients) are.
  autograd::Variables outputs;
};

// Runs `f` on `inputs` and records it: operators, constants (copied), calls of registered functions
// (call_function), nested `grad` calls, at any depth. `f` runs on this thread, in a context with an
// engine of its own.
//
// Whatever would be lost is an Error that says so: a value that is read back (Tensor::item,
// to_doubles, copy, …; what is read through Tensor::data cannot be seen), sizes that data decides,
// variables that require gradients and are no inputs, custom functions that are not registered,
// backwards that accumulate, writing in place, other programs.
// Throws Error for inputs and outputs that no program can have, and whatever `f` throws.
Traced trace(const VariableFunction& f, std::span<const autograd::Variable> inputs,
             const TraceOptions& options = {});

// Runs `f` and the program on these inputs (others than those recorded say more), at every order,
// with the same random cotangents. Throws Error that names the first result whose bits differ, or
// as Trace::code and Trace's call do.
void verify(const Trace& trace, const VariableFunction& f,
            std::span<const autograd::Variable> inputs);

}  // namespace gradus

#pragma GCC visibility pop
