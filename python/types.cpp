// DType, Dim and Type in Python.
#include <nanobind/operators.h>

#include "python/bindings.h"

namespace gradus::python {

namespace {

ir::Type type_of(nb::handle dtype, nb::handle shape) {
  ir::Dims dims;
  for (nb::handle d : shape) dims.push_back(dim_from(d));
  return {dtype_from(dtype), std::move(dims)};
}

}  // namespace

void bind_types(nb::module_& m) {
  auto dtype = nb::enum_<DType>(m, "DType", "An element type.");
  for (int d = 0; d < dtype_count; ++d) {
    // "bool" is a type of Python's.
    const char* name = d == static_cast<int>(DType::boolean) ? "boolean" : dtype_names[d].data();
    dtype.value(name, static_cast<DType>(d));
  }

  nb::class_<ir::Dim>(m, "Dim",
                      "A size: a polynomial over named sizes. Arithmetic makes others of it.")
      .def("__init__",
           [](ir::Dim* self, std::string_view name) { new (self) ir::Dim(ir::Dim::symbol(name)); })
      .def("__add__", [](const ir::Dim& a, nb::handle b) { return a + dim_from(b); })
      .def("__radd__", [](const ir::Dim& a, nb::handle b) { return dim_from(b) + a; })
      .def("__sub__", [](const ir::Dim& a, nb::handle b) { return a - dim_from(b); })
      .def("__rsub__", [](const ir::Dim& a, nb::handle b) { return dim_from(b) - a; })
      .def("__mul__", [](const ir::Dim& a, nb::handle b) { return a * dim_from(b); })
      .def("__rmul__", [](const ir::Dim& a, nb::handle b) { return dim_from(b) * a; })
      .def("__floordiv__", [](const ir::Dim& a, nb::handle b) { return floor_div(a, dim_from(b)); })
      .def("__eq__",
           [](const ir::Dim& a, nb::handle b) {
             int64_t n = 0;
             if (nb::isinstance<ir::Dim>(b)) return a == nb::cast<ir::Dim>(b);
             return nb::try_cast(b, n) && a == ir::Dim(n);
           })
      .def("__hash__", [](const ir::Dim& a) { return std::hash<std::string>()(a.to_string()); })
      .def("__str__", &ir::Dim::to_string)
      .def("__repr__", [](const ir::Dim& a) { return fmt::format("Dim('{}')", a.to_string()); });

  nb::class_<ir::Type>(m, "Type", "The type of a program's tensor: f64[N, 3].")
      .def(
          "__init__",
          [](ir::Type* self, nb::handle dtype, nb::handle shape) {
            new (self) ir::Type(type_of(dtype, shape));
          },
          nb::arg("dtype"), nb::arg("shape"),
          nb::sig("def __init__(self, dtype: DType | str, shape: collections.abc.Sequence[int | "
                  "Dim]) -> None"),
          "Sizes are ints, or Dims with names.")
      .def_prop_ro("dtype", [](const ir::Type& t) { return t.dtype; })
      .def_prop_ro(
          "shape", [](const ir::Type& t) { return shape_to_python(t.dims); },
          nb::sig("def shape(self) -> tuple[int | Dim, ...]"))
      .def_prop_ro("is_floating", &ir::Type::is_floating)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__str__", [](const ir::Type& t) { return to_string(t); })
      .def("__repr__", [](const ir::Type& t) { return fmt::format("Type('{}')", to_string(t)); });
}

}  // namespace gradus::python
