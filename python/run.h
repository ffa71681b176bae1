// How Python asks for a run of a stage.
#pragma once

#include "gradus/state.h"
#include "python/convert.h"

namespace gradus::python {

// State.run: inputs in order, then by name, and options by keyword. A keyword that names an input
// of the stage is that input.
nb::object run(State& state, const nb::args& in_order, const nb::kwargs& keywords);

void bind_cancel(nb::module_& m);  // CancelToken

}  // namespace gradus::python
