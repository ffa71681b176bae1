// Tensor: a variable of the engine, and what runs backward from it.
#include <chrono>
#include <future>

#include "gradus/device_streams.h"
#include "gradus/engine.h"
#include "gradus/read_watch.h"
#include "gradus/registry.h"
#include "python/bindings.h"
#include "python/context.h"
#include "python/errors.h"
#include "python/exchange.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

nb::tuple shape_of(const Variable& v) {
  nb::list list;
  for (int64_t n : v.shape()) list.append(n);
  return nb::tuple(list);
}

// One for each output; a number is a 0-d one of the output's dtype.
Variables cotangents_from(nb::handle list, const Variables& outputs) {
  Variables out;
  if (list.is_none()) return out;
  for (nb::handle item : list) {
    DType dtype = out.size() < outputs.size() && outputs[out.size()].defined()
                      ? outputs[out.size()].dtype()
                      : DType::f64;
    out.push_back(variable_from(item, dtype, "a cotangent"));
  }
  return out;
}

nb::object item_of(const Variable& v) {
  check_readable(v);
  const Tensor& t = v.data();
  if (t.numel() != 1) throw Error("item takes a tensor with one element, not {}", describe(t));
  if (t.dtype() == DType::boolean) return nb::bool_(t.item() != 0);
  if (is_floating(t.dtype())) return nb::float_(t.item());
  return nb::int_(t.to_int64s()[0]);
}

// For a display: without a gradient, and with a bf16's bits as a u16, since NumPy has no bf16.
Variable shown_values(const Variable& v) {
  const Tensor& t = v.data();
  if (ReadWatch::current() || has_no_values(t) || t.device() != Device()) return {};
  if (t.dtype() != DType::bf16) return Variable(t);
  Layout bits = t.layout();
  bits.dtype = DType::u16;
  return Variable(t.view(std::move(bits), t.offset()));
}

// Of a binary operator of Python's. What is no tensor, array or number is left to the other side.
bool is_operand(nb::handle x) {
  if (x.is_none() || PyUnicode_Check(x.ptr())) return false;
  return is_number(x) || nb::isinstance<Variable>(x) || has_buffer(x) ||
         nb::hasattr(x, "__dlpack__");
}

template <bool reversed = false>
auto binary(const char* name) {
  const ir::Operator* op = ops::find(name);
  ir::Attributes attributes = op->read({});
  return [op, attributes](const Variable& self, nb::handle other) -> nb::object {
    if (!is_operand(other)) return nb::borrow(Py_NotImplemented);
    check_has_values(self);
    autograd::VariableOperand operands[2] = {self, operand_from(other, "an operand")};
    if (reversed) std::swap(operands[0], operands[1]);
    return to_python(unlocked([&] { return autograd::apply(*op, attributes, operands); })[0]);
  };
}

// The quotient, rounded down, and the remainder.
template <bool reversed = false>
auto quotient_and_remainder() {
  return [quotient = binary<reversed>("floor_divide"), remainder = binary<reversed>("remainder")](
             const Variable& self, nb::handle other) -> nb::object {
    if (!is_operand(other)) return nb::borrow(Py_NotImplemented);
    return nb::make_tuple(quotient(self, other), remainder(self, other));
  };
}

auto unary(const char* name) {
  const ir::Operator* op = ops::find(name);
  ir::Attributes attributes = op->read({});
  return [op, attributes](const Variable& self) {
    check_has_values(self);
    autograd::VariableOperand operands[1] = {self};
    return unlocked([&] { return autograd::apply(*op, attributes, operands); })[0];
  };
}

// What a backward on a thread of the engine's gives.
class Future {
 public:
  explicit Future(std::future<Variables> future) : future_(future.share()) {}
  nb::list get() const {
    return to_python(unlocked([&] { return future_.get(); }));
  }
  bool done() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::shared_future<Variables> future_;
};

Variables gradients(nb::handle outputs, nb::handle inputs, nb::handle cotangents, bool keep_graph,
                    bool create_graph, bool allow_unused) {
  Variables of = variables_from(outputs, "an output"), by = variables_from(inputs, "an input"),
            ct = cotangents_from(cotangents, of);
  return unlocked([&] {
    return autograd::grad(
        of, by, ct,
        {.keep_graph = keep_graph, .create_graph = create_graph, .allow_unused = allow_unused});
  });
}

Future gradients_async(nb::handle outputs, nb::handle inputs, nb::handle cotangents,
                       bool keep_graph, bool create_graph, bool allow_unused, bool exit_on_error) {
  Variables of = variables_from(outputs, "an output"), by = variables_from(inputs, "an input"),
            ct = cotangents_from(cotangents, of);
  if (of.size() != ct.size())
    throw Error("{} outputs and {} cotangents are given; give one each", of.size(), ct.size());
  return unlocked([&] {
    std::vector<autograd::Edge> roots;
    for (const Variable& v : of) roots.push_back(v.gradient_edge());
    std::vector<autograd::Capture> captures;
    for (const Variable& v : by) captures.push_back({v.gradient_edge(), {}});
    return Future(autograd::engine_of(autograd::current_context())
                      ->execute_async(std::move(roots), std::move(ct),
                                      {.keep_graph = keep_graph,
                                       .create_graph = create_graph,
                                       .strict = !allow_unused,
                                       .exit_on_error = exit_on_error},
                                      std::move(captures)));
  });
}

// A scope of a gradient mode.
template <autograd::GradMode mode>
class ModeScope {
 public:
  void enter() {
    saved_.push_back(autograd::thread_state().mode);
    autograd::thread_state().mode = mode;
  }
  void exit() {
    if (saved_.empty()) throw Error("the scope was left before it was entered");
    autograd::thread_state().mode = saved_.back();
    saved_.pop_back();
  }
  static void bind(nb::module_& m, const char* name, const char* doc) {
    nb::class_<ModeScope>(m, name, doc)
        .def(nb::init<>())
        .def("__enter__", [](ModeScope& s) { s.enter(); })
        .def("__exit__", [](ModeScope& s, const nb::args&) { s.exit(); });
  }

 private:
  std::vector<autograd::GradMode> saved_;
};

void add_values(nb::class_<Variable>& tensor) {
  tensor.def_prop_ro("dtype", &Variable::dtype)
      .def_prop_ro("shape", shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const Variable& v) { return v.data().rank(); })
      .def_prop_ro(
          "size", [](const Variable& v) { return v.data().numel(); }, "The number of elements.")
      .def_prop_ro(
          "device", [](const Variable& v) { return to_string(v.data().device()); },
          "Where it lies: 'cpu', 'cuda:0', ….")
      .def(
          "to_device",
          [](const Variable& v, std::string_view device) {
            return unlocked([&] { return autograd::move_to(v, device_from(device)); });
          },
          "device"_a, "The same values on another device; derivatives go through the copy.")
      .def("item", item_of, nb::sig("def item(self) -> float | int | bool"),
           "The only element, as a Python number.")
      .def("__float__", [](const Variable& v) { return nb::float_(item_of(v)); })
      .def("__int__", [](const Variable& v) { return nb::int_(item_of(v)); })
      .def("__bool__", [](const Variable& v) { return nb::cast<bool>(nb::bool_(item_of(v))); })
      .def("__len__",
           [](const Variable& v) {
             if (v.shape().empty()) throw nb::type_error("a 0-d tensor has no length");
             return v.shape()[0];
           })
      .def(
          "copy",
          [](const Variable& v) {
            check_readable(v);
            return Variable(unlocked([&] { return v.data().copy(); }));
          },
          "The values in memory of their own, without a gradient.")
      .def(
          "__dlpack__",
          [](const Variable& v, nb::object stream, nb::object max_version, nb::object dl_device,
             nb::object copy) {
            check_readable(v);
            return tensor_to_dlpack(v.data(), {stream, max_version, dl_device, copy});
          },
          nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
          "dl_device"_a = nb::none(), "copy"_a = nb::none(),
          "The memory itself, without a copy; read-only where the consumer knows of that. On a "
          "device the consumer's stream waits for ours; `dl_device=(1, 0)` gives a copy on the "
          "cpu.")
      .def(
          "__dlpack_device__", [](const Variable& v) { return dlpack_device_of(v.data()); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"));
}

void add_gradients(nb::class_<Variable>& tensor) {
  tensor
      .def_prop_rw("requires_grad", &Variable::requires_grad, &Variable::set_requires_grad,
                   "Whether derivatives go through it. Only a leaf's can be set.")
      .def_prop_ro("is_leaf", &Variable::is_leaf)
      .def_prop_rw(
          "grad", [](const Variable& v) { return to_python(v.grad()); },
          [](Variable& v, nb::handle g) { v.set_grad(variable_from(g, "a gradient")); },
          nb::for_getter(nb::sig("def grad(self) -> Tensor | None")),
          nb::for_setter(nb::sig("def grad(self, value: Tensor | None) -> None")),
          "What backward added up here.")
      .def_prop_ro(
          "grad_fn",
          [](const Variable& v) -> std::optional<std::string> {
            if (v.is_leaf()) return std::nullopt;
            return v.grad_fn()->name();
          },
          "The name of the node that its gradient goes to.")
      .def("detach", &Variable::detach, "The same values without a derivative; shares the memory.")
      .def(
          "register_hook",
          [](Variable& v, nb::object f) {
            Kept hook(std::move(f));
            return v.register_hook([hook](const Variable& gradient) {
              return call_python([&] {
                nb::object given = hook.get()(to_python(gradient));
                return variable_from(given, "what a hook gives");
              });
            });
          },
          "hook"_a,
          nb::sig(
              "def register_hook(self, hook: collections.abc.Callable[[Tensor | None], Tensor | "
              "None]) -> int"),
          "Has `hook` called with each gradient that arrives; what it returns replaces the "
          "gradient, "
          "unless that is None. Gives a key for remove_hook. A hook that holds its own tensor "
          "keeps "
          "it alive.")
      .def("remove_hook", &Variable::remove_hook, "key"_a)
      .def("retain_grad", &Variable::retain_grad, "Has `grad` kept though this is no leaf.")
      .def(
          "backward",
          [](const Variable& v, nb::handle cotangent, bool keep_graph, bool create_graph) {
            Variable ct = variable_from(cotangent, v.dtype(), "a cotangent");
            unlocked([&] { v.backward(ct, keep_graph, create_graph); });
          },
          "cotangent"_a = nb::none(), "keep_graph"_a = false, "create_graph"_a = false,
          nb::sig("def backward(self, cotangent: ArrayLike | None = None, keep_graph: bool = "
                  "False, create_graph: bool = False) -> None"),
          "Adds the derivatives of this tensor, times the cotangent, to the leaves' `grad`.");
}

void add_operators(nb::class_<Variable>& tensor) {
  auto define = [&](const char* method, auto f, std::string_view result = "Tensor") {
    std::string sig = fmt::format("def {}(self, other: ArrayLike) -> {}", method, result);
    tensor.def(method, std::move(f), nb::arg("other").none(), nb::is_operator(),
               nb::sig(sig.c_str()));
  };
  define("__add__", binary("add")), define("__radd__", binary<true>("add"));
  define("__sub__", binary("sub")), define("__rsub__", binary<true>("sub"));
  define("__mul__", binary("mul")), define("__rmul__", binary<true>("mul"));
  define("__truediv__", binary("div")), define("__rtruediv__", binary<true>("div"));
  define("__floordiv__", binary("floor_divide"));
  define("__rfloordiv__", binary<true>("floor_divide"));
  define("__mod__", binary("remainder")), define("__rmod__", binary<true>("remainder"));
  define("__divmod__", quotient_and_remainder(), "tuple[Tensor, Tensor]");
  define("__rdivmod__", quotient_and_remainder<true>(), "tuple[Tensor, Tensor]");
  define("__and__", binary("bitwise_and")), define("__rand__", binary<true>("bitwise_and"));
  define("__or__", binary("bitwise_or")), define("__ror__", binary<true>("bitwise_or"));
  define("__xor__", binary("bitwise_xor")), define("__rxor__", binary<true>("bitwise_xor"));
  define("__lshift__", binary("bitwise_left_shift"));
  define("__rlshift__", binary<true>("bitwise_left_shift"));
  define("__rshift__", binary("bitwise_right_shift"));
  define("__rrshift__", binary<true>("bitwise_right_shift"));
  define("__pow__", binary("pow")), define("__rpow__", binary<true>("pow"));
  define("__matmul__", binary("matmul")), define("__rmatmul__", binary<true>("matmul"));
  define("__eq__", binary("eq")), define("__ne__", binary("ne"));
  define("__lt__", binary("lt")), define("__le__", binary("le"));
  define("__gt__", binary("gt")), define("__ge__", binary("ge"));
  // Equality is by element; as a key a tensor is itself.
  tensor.def("__hash__",
             [](nb::handle self) { return reinterpret_cast<Py_hash_t>(self.ptr()) >> 4; });
  tensor.def("__neg__", unary("neg")).def("__abs__", unary("abs"));
  tensor.def("__invert__", unary("bitwise_not"));
  tensor.def(
      "__pos__",
      [](nb::handle self) {
        if (nb::inst_ptr<Variable>(self)->dtype() == DType::boolean)
          throw Error("+ takes a tensor of numbers, not of bool; cast it, or use ~ for 'not'");
        return nb::borrow(self);
      },
      nb::sig("def __pos__(self) -> Tensor"));
}

}  // namespace

void bind_tensor(nb::module_& m) {
  auto tensor = nb::class_<Variable>(
      m, "Tensor", nb::type_slots(tensor_buffer_slots), nb::is_weak_referenceable(),
      nb::dynamic_attr(),
      "An array of numbers that takes part in differentiation. Its memory is never written to; "
      "NumPy and DLPack see it without a copy, read-only.");
  add_values(tensor);
  add_gradients(tensor);
  add_operators(tensor);
  add_methods(tensor);
  // NumPy's own operators leave the work to a Tensor on their right.
  tensor.attr("__array_priority__") = 1000;

  m.def(
      "as_tensor",
      [](nb::handle value) {
        if (value.is_none()) throw Error("there must be a tensor, an array or a number, not None");
        DType dtype = PyBool_Check(value.ptr())    ? DType::boolean
                      : PyFloat_Check(value.ptr()) ? DType::f64
                                                   : DType::i64;
        return variable_from(value, dtype, "a value");
      },
      "value"_a, nb::sig("def as_tensor(value: ArrayLike) -> Tensor"),
      "A tensor as it is; an array's memory, without a copy where it lies as tensors do; a number "
      "as a 0-d f64, i64 or bool.");
  m.def(
      "shown_values", [](const Variable& v) { return to_python(shown_values(v)); }, "tensor"_a,
      nb::sig("def shown_values(tensor: Tensor) -> Tensor | None"),
      "What a display reads of a tensor; a bf16 as the u16 of its bits. None for one that is on a "
      "device or has no values, and while a function is recorded, which may not read any.");
  m.def("from_array", [](nb::handle a) { return Variable(tensor_from_buffer(a)); });
  m.def(
      "from_dlpack", [](nb::handle a) { return Variable(tensor_from_dlpack(a)); }, "object"_a,
      nb::sig("def from_dlpack(object: typing.Any) -> Tensor"),
      "A tensor that views the object's memory, without a copy. What its owner writes later "
      "changes the tensor; nobody notices.");
  m.def(
      "grad_of",
      [](nb::handle outputs, nb::handle inputs, nb::handle cotangents, bool keep_graph,
         bool create_graph, bool allow_unused) {
        return to_python(
            gradients(outputs, inputs, cotangents, keep_graph, create_graph, allow_unused));
      },
      nb::sig("def grad_of(outputs: list[Tensor], inputs: list[Tensor], cotangents: list[ArrayLike "
              "| None], keep_graph: bool, create_graph: bool, allow_unused: bool) -> list[Tensor | "
              "None]"));
  nb::class_<Future>(m, "Future", "What a backward on a thread of the engine's gives.")
      .def("get", &Future::get, nb::sig("def get(self) -> list[Tensor | None]"),
           "Waits for the gradients; raises what the backward raised.")
      .def("done", &Future::done);
  m.def("grad_of_async", gradients_async,
        nb::sig("def grad_of_async(outputs: list[Tensor], inputs: list[Tensor], cotangents: "
                "list[ArrayLike], keep_graph: bool, create_graph: bool, allow_unused: bool, "
                "exit_on_error: bool) -> Future"));
  ModeScope<autograd::GradMode::no_grad>::bind(
      m, "no_grad", "Within it nothing is recorded: `with gradus.no_grad(): …`. For one thread.");
  ModeScope<autograd::GradMode::enabled>::bind(m, "recording", "Within it, all is.");
  m.def("is_recording", &autograd::recording);
  m.def("is_tracing", [] { return autograd::thread_state().recorder != nullptr; });
}

}  // namespace gradus::python
