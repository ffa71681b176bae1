// Python objects as the library's values, and back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "gradus/apply.h"
#include "gradus/operator.h"
#include "gradus/type.h"
#include "python/gil.h"

namespace gradus::python {

using autograd::Variable;
using autograd::Variables;

// None for an undefined variable.
nb::object to_python(const Variable& v);
nb::list to_python(const Variables& list);
// None is undefined. A Tensor is itself; an array (anything with the buffer protocol or __dlpack__)
// is viewed without a copy where that is possible, and copied where its layout or byte order is not
// ours. Throws Error, naming `what`, for anything else.
Variable variable_from(nb::handle object, const char* what);
// The same; a Python number becomes a 0-d tensor of `dtype`.
Variable variable_from(nb::handle object, DType dtype, const char* what);
// One for each of a list, by the first of these; none for None.
Variables variables_from(nb::handle list, const char* what);
bool is_number(nb::handle object);
ir::Number number_from(nb::handle object);
autograd::VariableOperand operand_from(nb::handle object, const char* what);

ir::Literal literal_from(nb::handle object);
nb::object literal_to_python(const ir::Literal& literal);
ir::LiteralList attributes_from(const nb::dict& attributes);

// "f64", gradus.DType, or a NumPy dtype or scalar type.
DType dtype_from(nb::handle object);
// An int or a Dim.
ir::Dim dim_from(nb::handle object);
nb::object dim_to_python(const ir::Dim& dim);
nb::tuple shape_to_python(std::span<const ir::Dim> dims);

// Throws Error for what a recording left behind, which has a shape and no values.
void check_has_values(const Variable& v);
// Throws Error if the values of `v` must not be read by others than operators now: it takes part in
// differentiation, or a trace is recorded.
void check_readable(const Variable& v);

}  // namespace gradus::python
