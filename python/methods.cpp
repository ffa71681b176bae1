// Methods of Tensor that are the package's functions: operators, NumPy, indices.
#include "python/bindings.h"

namespace gradus::python {

namespace {

struct Method {
  const char* name;  // of the method
  const char* op;    // in gradus.ops
  const char* parameters;
};

// What is used most; all operators are in gradus.ops.
constexpr Method methods[] = {
    {"abs", "abs", ""},
    {"clamp", "clamp", ", *, min: float | int | None = None, max: float | int | None = None"},
    {"cos", "cos", ""},
    {"exp", "exp", ""},
    {"expand", "expand", ", *, shape: collections.abc.Sequence[int]"},
    {"flatten", "flatten", ", *, start_dim: int = 0, end_dim: int = -1"},
    {"log", "log", ""},
    {"matmul", "matmul", ", other: ArrayLike"},
    {"permute", "permute", ", *, dims: collections.abc.Sequence[int]"},
    {"relu", "relu", ""},
    {"sigmoid", "sigmoid", ""},
    {"sin", "sin", ""},
    {"softmax", "softmax", ", *, dim: int"},
    {"sqrt", "sqrt", ""},
    {"square", "square", ""},
    {"squeeze", "squeeze", ", *, dim: int | None = None"},
    {"tanh", "tanh", ""},
    {"transpose", "transpose", ", *, dim0: int, dim1: int"},
    {"unsqueeze", "unsqueeze", ", *, dim: int"},
};
constexpr const char* reductions[] = {"sum", "mean", "prod", "amax", "amin"};

nb::object package(const char* module) { return nb::module_::import_(module); }

// A call of the package's function.
template <class... Args>
nb::object call(const char* module, const char* function, Args&&... args) {
  IntoPython scope;
  return package(module).attr(function)(std::forward<Args>(args)...);
}

void add_operator(nb::class_<Variable>& tensor, const char* name, const char* op,
                  const std::string& signature) {
  tensor.def(
      name,
      [op](nb::handle self, const nb::args& arguments, const nb::kwargs& attributes) {
        IntoPython scope;
        return package("gradus.ops").attr(op)(self, *arguments, **attributes);
      },
      nb::sig(signature.c_str()));
}

}  // namespace

void add_methods(nb::class_<Variable>& tensor) {
  for (const Method& m : methods)
    add_operator(tensor, m.name, m.op,
                 fmt::format("def {}(self{}) -> Tensor", m.name, m.parameters));
  for (const char* name : reductions)
    add_operator(
        tensor, name, name,
        fmt::format("def {}(self, *, dim: int | collections.abc.Sequence[int] | None = None, "
                    "keepdim: bool = False) -> Tensor",
                    name));
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
          nb::sig("def tolist(self) -> typing.Any"));
}

}  // namespace gradus::python
