#include "python/python_op.h"

#include <algorithm>
#include <array>

#include "gradus/opaque_function.h"
#include "python/bindings.h"
#include "python/errors.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

size_t count(std::string_view convention, char kind) {
  return static_cast<size_t>(std::ranges::count(convention, kind));
}

// Tensors (or what stands for them) and scalars in the convention's order.
template <class T, class F>
nb::tuple arguments_of(const ops::CallScalars& scalars, std::span<const T> tensors, F&& to_object) {
  nb::list list;
  size_t t = 0, s = 0;
  for (char kind : scalars.convention)
    list.append(kind == 't' ? to_object(tensors[t++]) : literal_to_python(scalars.values[s++]));
  while (t < tensors.size()) list.append(to_object(tensors[t++]));
  return nb::tuple(list);
}

std::vector<nb::object> as_list(const nb::object& given) {
  std::vector<nb::object> list;
  if (PyTuple_Check(given.ptr()) || PyList_Check(given.ptr()))
    for (nb::handle item : given) list.push_back(nb::borrow(item));
  else
    list.push_back(given);
  return list;
}

}  // namespace

autograd::FunctionContext& OpContext::context() const {
  if (!context_)
    throw Error("the context of a python_op is for its forward and its backward while they run");
  return *context_;
}

Variable OpContext::variable(nb::handle value, DType dtype, const char* what) {
  for (const auto& [array, known] : converted_)
    if (array.is(value)) return known;
  Variable v = variable_from(value, dtype, what);
  if (v.defined() && !nb::isinstance<Variable>(value))
    converted_.emplace_back(nb::borrow(value), v);
  return v;
}

void OpContext::save(const nb::args& values) {
  context();
  if (!to_save_.empty())
    throw Error("a python_op saves tensors once, all together: ctx.save(x, y)");
  for (nb::handle value : values) to_save_.push_back(variable(value, DType::f64, "what is saved"));
}

nb::tuple OpContext::saved() const {
  autograd::FunctionContext& c = context();
  return nb::tuple(to_python(unlocked([&] { return c.saved(); })));
}

bool OpContext::needs_gradient(size_t operand) const { return context().needs_gradient(operand); }

void OpContext::mark_not_differentiable(const nb::args& results) {
  // The library takes a list that is written out: the last one stands in the places left.
  std::array<size_t, 8> list{};
  if (results.size() > list.size())
    throw Error("mark_not_differentiable takes {} results at most", list.size());
  if (results.size() == 0) return;
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = nb::cast<size_t>(results[std::min(i, results.size() - 1)]);
  context().mark_not_differentiable(
      {list[0], list[1], list[2], list[3], list[4], list[5], list[6], list[7]});
}

nb::tuple OpContext::scalars() const {
  nb::list list;
  for (const ir::Literal& l : scalars_.values) list.append(literal_to_python(l));
  return nb::tuple(list);
}

// One call of the function, as the engine knows it.
class PythonCustom final : public autograd::CustomFunction {
 public:
  PythonCustom(std::shared_ptr<const PythonDefinition> definition, ops::CallScalars scalars)
      : definition_(std::move(definition)), scalars_(std::move(scalars)) {}
  std::string name() const override { return definition_->name; }
  int order() const override {
    const int order = definition_->order;
    return order == ops::OpaqueFunction::any_order ? any_order : order;
  }
  bool is_thread_safe() const override { return definition_->thread_safe; }

  std::vector<Tensor> forward(autograd::FunctionContext& context,
                              std::span<const Variable> inputs) const override {
    return call_python([&] {
      nb::object shared = nb::cast(OpContext());
      auto& ctx = nb::cast<OpContext&>(shared);
      ctx.scalars_ = scalars_;
      Running running(ctx, context);
      nb::tuple arguments =
          arguments_of(scalars_, inputs, [](const Variable& v) { return to_python(v); });
      nb::object given = definition_->object.get().attr("forward")(shared, *arguments);
      DType dtype = inputs.empty() ? DType::f64 : inputs[0].dtype();
      std::vector<Tensor> results;
      for (const nb::object& item : as_list(given)) {
        Variable v = ctx.variable(item, dtype, "a result");
        if (!v.defined())
          throw Error("forward gave None for result {}; it must give a tensor", results.size());
        results.push_back(v.data());
      }
      check_saved(ctx.to_save_, inputs, results);
      context.save(std::exchange(ctx.to_save_, {}));
      context.data = std::make_shared<Kept>(shared);
      return results;
    });
  }

  Variables backward(autograd::FunctionContext& context,
                     const Variables& cotangents) const override {
    return call_python([&] {
      nb::object shared = static_cast<const Kept*>(context.data.get())->take();
      auto& ctx = nb::cast<OpContext&>(shared);
      Running running(ctx, context);
      nb::list given;
      for (const Variable& ct : cotangents) given.append(to_python(ct));
      nb::object found = definition_->object.get().attr("backward")(shared, *nb::tuple(given));
      return gradients_from(as_list(found), cotangents.empty() ? DType::f64 : dtype_of(cotangents));
    });
  }

 private:
  // The context is reached by this run; runs of other threads may be under way.
  class Running {
   public:
    Running(OpContext& ctx, autograd::FunctionContext& context) : ctx_(ctx) {
      ctx.context_ = &context;
      ++ctx.running_;
    }
    ~Running() {
      if (--ctx_.running_) return;
      ctx_.context_ = nullptr;
      ctx_.converted_.clear();
    }
    Running(const Running&) = delete;

   private:
    OpContext& ctx_;
  };

  static DType dtype_of(const Variables& cotangents) {
    for (const Variable& ct : cotangents)
      if (ct.defined()) return ct.dtype();
    return DType::f64;
  }

  // Anything else would be a constant to the next derivative, without a word.
  static void check_saved(const Variables& saved, std::span<const Variable> inputs,
                          std::span<const Tensor> results) {
    for (const Variable& v : saved) {
      if (!v.defined()) continue;
      bool known =
          std::ranges::any_of(inputs,
                              [&](const Variable& x) { return x.data().same_as(v.data()); }) ||
          std::ranges::any_of(results, [&](const Tensor& y) { return y.same_as(v.data()); });
      if (!known)
        throw Error(
            "ctx.save takes arguments and results of the call: derivatives do not go on through "
            "other values; keep those as attributes of ctx if their derivatives are not needed");
    }
  }

  Variables gradients_from(const std::vector<nb::object>& found, DType dtype) const {
    const std::string& convention = scalars_.convention;
    const bool with_scalars = !convention.empty() && found.size() == convention.size();
    Variables gradients;
    for (size_t i = 0; i < found.size(); ++i) {
      if (with_scalars && convention[i] == 's') {
        if (!found[i].is_none())
          throw Error("backward gave a gradient for argument {}, which is a scalar; give None", i);
        continue;
      }
      gradients.push_back(variable_from(found[i], dtype, "a gradient"));
    }
    return gradients;
  }

  std::shared_ptr<const PythonDefinition> definition_;
  ops::CallScalars scalars_;
};

std::shared_ptr<const ops::OpaqueFunction> PythonFunction::with_scalars(
    const ops::CallScalars& given) const {
  const std::string& own = definition_->convention;
  ops::CallScalars s = given;
  if (s.convention.empty()) s.convention = own;
  const bool same = own.empty() ? count(s.convention, 's') == 0 : s.convention == own;
  if (!same)
    throw Error("its convention is \"{}\", not \"{}\"", own.empty() ? "t…" : own, s.convention);
  if (s.values.size() != count(s.convention, 's'))
    throw Error("it takes {} scalars (\"{}\"), {} are given", count(s.convention, 's'),
                s.convention, s.values.size());
  return std::make_shared<PythonFunction>(definition_, std::move(s));
}

void PythonFunction::check_arguments(size_t tensors) const {
  const std::string& own = definition_->convention;
  if (!own.empty() && tensors != count(own, 't'))
    throw Error("it takes {} tensors (\"{}\"), {} are given", count(own, 't'), own, tensors);
  if (scalars_.values.size() != count(own, 's'))
    throw Error("it takes {} scalars (\"{}\"): write convention = \"{}\" and scalars = […]",
                count(own, 's'), own, own);
}

std::vector<ir::Type> PythonFunction::infer(std::span<const ir::Type> operands) const {
  check_arguments(operands.size());
  try {
    return call_python([&] {
      nb::tuple arguments =
          arguments_of(scalars_, operands, [](const ir::Type& t) { return nb::cast(t); });
      nb::object given = definition_->object.get().attr("infer")(*arguments);
      std::vector<ir::Type> types;
      for (const nb::object& item : as_list(given)) {
        if (!nb::isinstance<ir::Type>(item))
          throw Error("`infer` must give a gradus.Type for each result");
        types.push_back(nb::cast<ir::Type>(item));
      }
      return types;
    });
  } catch (const PythonFault& fault) {
    set_cause(fault);
    throw Error("{}", fault.what());
  }
}

Variables PythonFunction::call(std::span<const Variable> operands) const {
  check_arguments(operands.size());
  return autograd::CustomFunction::apply(std::make_shared<PythonCustom>(definition_, scalars_),
                                         operands);
}

namespace {

// A Python number, or one of NumPy's: those are no arrays, though they have a buffer.
bool is_scalar(nb::handle a) {
  if (is_number(a) || PyFloat_Check(a.ptr())) return true;
  if (!nb::hasattr(a, "dtype")) return PyIndex_Check(a.ptr()) != 0;
  return !nb::isinstance<Variable>(a) && nb::hasattr(a, "is_integer");
}

// What Python holds of a function that it registered.
struct RegisteredFunction {
  std::shared_ptr<PythonDefinition> definition;

  nb::list call(const nb::args& arguments) const {
    const std::string& convention = definition->convention;
    const std::string& name = definition->name;
    if (!convention.empty() && arguments.size() != convention.size())
      throw Error("{} takes {} arguments (\"{}\"), {} are given", name, convention.size(),
                  convention, arguments.size());
    Variables operands;
    ops::CallScalars scalars;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string what = fmt::format("{}: argument {}", name, i);
      nb::handle a = arguments[i];
      if (convention.empty() || convention[i] == 't') {
        operands.push_back(variable_from(a, what.c_str()));
        continue;
      }
      if (!is_scalar(a))
        throw Error("{} must be a number: it is a scalar by the convention \"{}\"", what,
                    convention);
      scalars.values.push_back(literal_from(a));
    }
    if (!scalars.values.empty()) scalars.convention = convention;
    auto function = std::make_shared<PythonFunction>(definition, std::move(scalars));
    return to_python(unlocked([&] { return call_function(function, operands); }));
  }
};

RegisteredFunction register_python(const std::string& name, nb::object object,
                                   const std::string& convention, int order, bool thread_safe,
                                   bool replayable) {
  if (convention.find_first_not_of("ts") != convention.npos)
    throw Error(
        "a convention has a letter for each argument, 't' a tensor and 's' a scalar: "
        "\"tts\", not \"{}\"",
        convention);
  auto definition = std::make_shared<PythonDefinition>();
  definition->name = name;
  definition->object = Kept(std::move(object));
  definition->convention = convention;
  definition->order = order;
  definition->thread_safe = thread_safe;
  definition->replayable = replayable;
  ops::register_function(std::make_shared<PythonFunction>(definition, ops::CallScalars()));
  return {definition};
}

}  // namespace

void bind_python_op(nb::module_& m) {
  m.attr("any_order") = ops::OpaqueFunction::any_order;
  nb::class_<OpContext>(m, "OpContext", nb::dynamic_attr(),
                        "What the forward and the backward of one call of a python_op share. "
                        "Other attributes of it are the functions' own.")
      .def("save", &OpContext::save, nb::sig("def save(self, *tensors: ArrayLike) -> None"),
           "Keeps arguments and results of the call for backward. In forward, once.")
      .def_prop_ro("saved", &OpContext::saved, nb::sig("def saved(self) -> tuple[Tensor, ...]"),
                   "What was saved. With create_graph, derivatives go on through it.")
      .def("needs_gradient", &OpContext::needs_gradient, "tensor"_a,
           "Whether the gradient of this tensor argument is wanted in this run.")
      .def("mark_not_differentiable", &OpContext::mark_not_differentiable,
           nb::sig("def mark_not_differentiable(self, *results: int) -> None"),
           "In forward: results, by number, that have no derivative.")
      .def_prop_ro("scalars", &OpContext::scalars,
                   nb::sig("def scalars(self) -> tuple[float | int | bool, ...]"),
                   "The scalars of the call.");
  nb::class_<RegisteredFunction>(m, "RegisteredFunction")
      .def("__call__", &RegisteredFunction::call)
      .def_prop_rw(
          "order", [](const RegisteredFunction& f) { return f.definition->order.load(); },
          [](const RegisteredFunction& f, int order) { f.definition->order = order; });
  m.def("register_python_op", register_python);
  m.def("function_names", &ops::function_names);
  m.def("call", [](std::string_view name, const nb::args& operands) {
    Variables in;
    for (nb::handle o : operands) in.push_back(variable_from(o, "an operand"));
    return to_python(unlocked([&] { return call_function(name, in); }));
  });
}

}  // namespace gradus::python
