// The parts of the module, each in a file of its own.
#pragma once

#include "python/convert.h"

namespace gradus::python {

void bind_types(nb::module_& m);      // DType, Dim, Type
void bind_context(nb::module_& m);    // Context, KernelOptions, use_device
void bind_tensor(nb::module_& m);     // Tensor, and what runs backward
void bind_operators(nb::module_& m);  // apply, the table of operators
void bind_program(nb::module_& m);    // Program, Code
void bind_state(nb::module_& m);      // State, CancelToken
void bind_trace(nb::module_& m);      // trace, StagedFunction
void bind_points(nb::module_& m);     // leaf_of, leads_elsewhere
void bind_loops(nb::module_& m);      // TracedBody, what runs it
void bind_calls(nb::module_& m);      // CallCache
void bind_python_op(nb::module_& m);  // PythonFunction, FunctionContext
void bind_potential(nb::module_& m);  // Potential, what it gives, its checks
void bind_ranks(nb::module_& m);      // Ranks, what makes them

// Operators and NumPy's protocol as methods of Tensor.
void add_methods(nb::class_<Variable>& tensor);

}  // namespace gradus::python
