// How Python asks for a run of a stage.
#pragma once

#include "gradus/state.h"
#include "python/convert.h"
#include "python/errors.h"

namespace gradus::python {

// State.run: inputs in order, then by name, and options by keyword. A keyword that names an input
// of the stage is that input.
nb::object run(State& state, const nb::args& in_order, const nb::kwargs& keywords);

// State.bind, of a clone: with inputs as for `run`, and results as for its `into`.
struct Bound {
  std::shared_ptr<const Code> code;
  BoundRun run;
};
Bound bind(State& state, const nb::args& in_order, const nb::kwargs& keywords);

// `f` runs a stage, without the lock. What Python raised within an instruction says where in the
// program that was.
template <class F>
auto run_placed(const State& state, F&& f) {
  try {
    return unlocked(std::forward<F>(f));
  } catch (const PythonFault& fault) {
    if (!state.fault().empty()) fault.add_note(state.fault());
    throw;
  }
}

void bind_bound(nb::module_& m);   // BoundRun
void bind_cancel(nb::module_& m);  // CancelToken

}  // namespace gradus::python
