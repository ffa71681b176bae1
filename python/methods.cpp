// Methods of Tensor that are the package's functions: operators, NumPy, indices.
#include "python/bindings.h"

namespace gradus::python {

namespace {

struct Method {
  const char *name, *parameters;
};

constexpr const char* reduction_parameters =
    ", dim: int | collections.abc.Sequence[int] | None = None, keepdim: bool = False";
// What is used most; all operators are in gradus.ops.
constexpr Method methods[] = {
    {"abs", ""},
    {"clamp", ", min: float | int | None = None, max: float | int | None = None"},
    {"cos", ""},
    {"exp", ""},
    {"expand", ", *shape: int | collections.abc.Sequence[int]"},
    {"flatten", ", start_dim: int = 0, end_dim: int = -1"},
    {"log", ""},
    {"matmul", ", other: ArrayLike"},
    {"permute", ", *dims: int | collections.abc.Sequence[int]"},
    {"relu", ""},
    {"sigmoid", ""},
    {"sin", ""},
    {"softmax", ", dim: int"},
    {"sqrt", ""},
    {"square", ""},
    {"squeeze", ", dim: int | None = None"},
    {"tanh", ""},
    {"transpose", ", dim0: int, dim1: int"},
    {"unsqueeze", ", dim: int"},
    {"sum", reduction_parameters},
    {"mean", reduction_parameters},
    {"prod", reduction_parameters},
    {"amax", reduction_parameters},
    {"amin", reduction_parameters},
};

// A call of the package's function.
template <class... Args>
nb::object call(const char* module, const char* function, Args&&... args) {
  IntoPython scope;
  return nb::module_::import_(module).attr(function)(std::forward<Args>(args)...);
}

}  // namespace

void add_methods(nb::class_<Variable>& tensor) {
  for (const Method& m : methods)
    tensor.def(
        m.name,
        [op = m.name](nb::handle self, const nb::args& arguments, const nb::kwargs& attributes) {
          return call("gradus.ops", op, self, *arguments, **attributes);
        },
        nb::sig(fmt::format("def {}(self{}) -> Tensor", m.name, m.parameters).c_str()));
  tensor
      .def(
          "reshape",
          [](nb::handle self, const nb::args& shape) {
            nb::object sizes = shape.size() == 1 && !PyIndex_Check(nb::handle(shape[0]).ptr())
                                   ? nb::list(shape[0])
                                   : nb::list(shape);
            return call("gradus.ops", "reshape", self, nb::arg("shape") = sizes);
          },
          nb::sig("def reshape(self, *shape: int | collections.abc.Sequence[int]) -> Tensor"))
      .def(
          "to",
          [](nb::handle self, nb::handle dtype) {
            return call("gradus.ops", "cast", self, nb::arg("dtype") = dtype_from(dtype));
          },
          nb::arg("dtype"), nb::sig("def to(self, dtype: typing.Any) -> Tensor"),
          "The values as another dtype.")
      .def_prop_ro(
          "T",
          [](nb::handle self) {
            nb::list dims;
            for (int d = nb::cast<int>(self.attr("ndim")) - 1; d >= 0; --d) dims.append(d);
            return call("gradus.ops", "permute", self, nb::arg("dims") = dims);
          },
          nb::sig("def T(self) -> Tensor"), "The dimensions in reverse order.")
      .def(
          "__getitem__",
          [](nb::handle self, nb::handle key) {
            return call("gradus._indexing", "get", self, key);
          },
          nb::arg("key").none(), nb::sig("def __getitem__(self, key: typing.Any) -> Tensor"))
      .def(
          "__iter__",
          [](nb::handle self) { return nb::iter(call("gradus._indexing", "parts", self)); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[Tensor]"))
      .def(
          "astype",
          [](nb::handle self, nb::handle dtype) {
            return call("gradus.ops", "cast", self, nb::arg("dtype") = dtype_from(dtype));
          },
          nb::arg("dtype"), nb::sig("def astype(self, dtype: typing.Any) -> Tensor"),
          "The values as another dtype, as NumPy calls it.")
      .def(
          "numpy", [](nb::handle self) { return call("gradus._tensors", "as_numpy", self); },
          nb::sig("def numpy(self) -> NDArray"),
          "The memory as a NumPy array: read-only, without a copy.")
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            return call("gradus._tensors", "as_array", self, dtype, copy);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                  "NDArray"))
      .def(
          "tolist",
          [](nb::handle self) {
            return call("gradus._tensors", "as_numpy", self).attr("tolist")();
          },
          nb::sig("def tolist(self) -> typing.Any"))
      .def(
          "__repr__", [](nb::handle self) { return call("gradus._display", "tensor_text", self); },
          nb::sig("def __repr__(self) -> str"));
}

}  // namespace gradus::python
