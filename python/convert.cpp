#include "python/convert.h"

#include "gradus/convert.h"
#include "gradus/messages.h"
#include "gradus/read_watch.h"
#include "python/exchange.h"

namespace gradus::python {

nb::object to_python(const Variable& v) { return v.defined() ? nb::cast(v) : nb::none(); }

nb::list to_python(const Variables& list) {
  nb::list out;
  for (const Variable& v : list) out.append(to_python(v));
  return out;
}

namespace {

std::string class_of(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

// An array whose strides, alignment or byte order tensors do not have, as one that they do.
nb::object plain_copy(nb::handle array) {
  IntoPython scope;
  nb::object numpy = nb::module_::import_("numpy");
  nb::object copy = numpy.attr("array")(array, nb::arg("order") = "C");
  return copy.attr("astype")(copy.attr("dtype").attr("newbyteorder")("="), nb::arg("copy") = false);
}

std::optional<Tensor> tensor_from(nb::handle object) {
  if (has_buffer(object)) {
    try {
      return tensor_from_buffer(object);
    } catch (const Error&) {
      if (!nb::hasattr(object, "__array_interface__")) throw;
      return tensor_from_buffer(plain_copy(object));
    }
  }
  if (nb::hasattr(object, "__dlpack__") || PyCapsule_CheckExact(object.ptr()))
    return tensor_from_dlpack(object);
  return std::nullopt;
}

}  // namespace

Variable variable_from(nb::handle object, const char* what) {
  if (object.is_none()) return {};
  if (nb::isinstance<Variable>(object)) {
    Variable v = nb::cast<Variable>(object);
    check_has_values(v);
    return v;
  }
  if (auto t = tensor_from(object)) return Variable(std::move(*t));
  throw Error("{} must be a tensor or an array, not {}", what, printable(class_of(object)));
}

Variable variable_from(nb::handle object, DType dtype, const char* what) {
  if (!is_number(object)) return variable_from(object, what);
  ir::Number n = number_from(object);
  Tensor t = Tensor::empty(dtype, {});
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (n.category == Category::floating || is_floating(dtype))
      *t.mutable_data_as<T>() = gradus::convert<T>(n.as_double());
    else
      *t.mutable_data_as<T>() = gradus::convert<T>(n.integer);
  });
  return Variable(std::move(t));
}

Variables variables_from(nb::handle list, const char* what) {
  Variables out;
  if (list.is_none()) return out;
  for (nb::handle item : list) out.push_back(variable_from(item, what));
  return out;
}

bool is_number(nb::handle object) {
  return PyBool_Check(object.ptr()) || PyLong_Check(object.ptr()) ||
         PyFloat_CheckExact(object.ptr());
}

ir::Number number_from(nb::handle object) {
  if (PyBool_Check(object.ptr())) return ir::Number::of(object.is(nb::handle(Py_True)));
  if (PyFloat_Check(object.ptr())) return ir::Number::of(PyFloat_AS_DOUBLE(object.ptr()));
  int64_t i = 0;
  if (!nb::try_cast(object, i)) throw Error("an integer has more than 64 bits");
  return ir::Number::of(i);
}

autograd::VariableOperand operand_from(nb::handle object, const char* what) {
  if (object.is_none()) return std::monostate();
  if (is_number(object)) return number_from(object);
  return variable_from(object, what);
}

ir::Literal literal_from(nb::handle object) {
  if (object.is_none()) return {};
  if (PyBool_Check(object.ptr())) return object.is(nb::handle(Py_True));
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  if (nb::isinstance<ir::Dim>(object)) return nb::cast<ir::Dim>(object);
  if (PyUnicode_Check(object.ptr())) return nb::cast<std::string>(object);
  if (is_number(object)) {
    ir::Number n = number_from(object);
    return n.category == Category::floating ? ir::Literal(n.floating) : ir::Literal(n.integer);
  }
  if (PyTuple_Check(object.ptr()) || PyList_Check(object.ptr())) {
    std::vector<ir::Literal> list;
    for (nb::handle item : object) list.push_back(literal_from(item));
    return list;
  }
  // NumPy's integers and floats are no Python numbers, but 0-d arrays too.
  if (PyIndex_Check(object.ptr())) {
    if (PyObject* index = PyNumber_Index(object.ptr())) return literal_from(nb::steal(index));
    PyErr_Clear();  // an array of several, say
  }
  if (PyFloat_Check(object.ptr())) return PyFloat_AS_DOUBLE(object.ptr());
  if (nb::isinstance<Variable>(object)) {
    const auto& v = nb::cast<const Variable&>(object);
    check_readable(v);
    return v.data();
  }
  if (PyType_Check(object.ptr()) || nb::hasattr(object, "itemsize")) {
    if (!nb::hasattr(object, "shape") || PyType_Check(object.ptr())) return dtype_from(object);
  }
  return variable_from(object, "an attribute").data();
}

nb::object literal_to_python(const ir::Literal& literal) {
  struct Convert {
    nb::object operator()(ir::NoneLiteral) const { return nb::none(); }
    nb::object operator()(bool b) const { return nb::bool_(b); }
    nb::object operator()(const ir::Dim& d) const { return dim_to_python(d); }
    nb::object operator()(double f) const { return nb::float_(f); }
    nb::object operator()(const std::string& s) const { return nb::str(s.c_str(), s.size()); }
    nb::object operator()(DType d) const { return nb::cast(d); }
    nb::object operator()(const std::vector<ir::Literal>& items) const {
      nb::list out;
      for (const ir::Literal& l : items) out.append(literal_to_python(l));
      return out;
    }
    nb::object operator()(const Tensor& t) const { return nb::cast(Variable(t)); }
  };
  return std::visit(Convert(), literal.value);
}

ir::LiteralList attributes_from(const nb::dict& attributes) {
  ir::LiteralList list;
  for (auto [name, value] : attributes)
    list.push_back({nb::cast<std::string>(name), literal_from(value), {}});
  return list;
}

DType dtype_from(nb::handle object) {
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  nb::object name = nb::borrow(object);
  if (!PyUnicode_Check(object.ptr()) || !dtype_from_name(nb::cast<std::string_view>(object))) {
    IntoPython scope;
    name = nb::module_::import_("gradus._dtypes").attr("name_of")(object);
  }
  auto dtype = dtype_from_name(nb::cast<std::string_view>(name));
  if (!dtype)
    throw Error(
        "there is no dtype '{}'; the dtypes are f64, f32, f16, bf16, i64, i32, i8, u8, bool",
        printable(nb::cast<std::string>(name)));
  return *dtype;
}

ir::Dim dim_from(nb::handle object) {
  if (nb::isinstance<ir::Dim>(object)) return nb::cast<ir::Dim>(object);
  int64_t n = 0;
  if (!nb::try_cast(object, n))
    throw Error("a size must be an int or a gradus.Dim, not {}", printable(class_of(object)));
  return n;
}

nb::object dim_to_python(const ir::Dim& dim) {
  if (dim.is_constant()) return nb::int_(dim.value());
  return nb::cast(dim);
}

nb::tuple shape_to_python(std::span<const ir::Dim> dims) {
  nb::list list;
  for (const ir::Dim& d : dims) list.append(dim_to_python(d));
  return nb::tuple(list);
}

void check_has_values(const Variable& v) {
  if (has_no_values(v.data()) && !autograd::thread_state().recorder) [[unlikely]]
    throw Error(
        "the {} was made while a function was recorded, which keeps shapes and no values: return "
        "it from the function instead",
        describe(v.data()));
}

void check_readable(const Variable& v) {
  check_has_values(v);
  if (const ReadWatch* watch = ReadWatch::current()) watch->reads(v.data());
  if (v.requires_grad() && autograd::recording())
    throw Error(
        "the tensor takes part in differentiation, and what is done to its values elsewhere would "
        "be lost: use gradus.ops, or detach() it first");
}

}  // namespace gradus::python
