// Python functions over tensors, recorded as programs; programs as functions of tensors.
#include "gradus/trace.h"

#include "gradus/engine.h"
#include "python/bindings.h"
#include "python/context.h"
#include "python/errors.h"
#include "python/program.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

// `f` takes and gives a list of tensors.
Program record(const nb::object& f, const nb::list& inputs, const std::string& name,
               std::vector<std::string> input_names, int order) {
  Variables in = variables_from(inputs, "an input");
  TraceOptions options;
  options.order = order;
  options.run_backward = order > 0;
  options.shapes_only = true;
  options.name = name;
  options.inputs = std::move(input_names);
  auto call = [&](std::span<const Variable> given) {
    return call_python([&] {
      nb::list arguments;
      for (const Variable& v : given) arguments.append(to_python(v));
      return variables_from(f(arguments), "what the function gives");
    });
  };
  return unlocked([&] { return program_of(trace(call, in, options).trace.graph()); });
}

}  // namespace

void bind_trace(nb::module_& m) {
  m.def("record", record, "f"_a, "inputs"_a, "name"_a, "input_names"_a, "order"_a = 0);
  nb::class_<StagedFunction>(m, "StagedFunction",
                             "A program as one differentiable function of tensors.")
      .def(
          "__init__",
          [](StagedFunction* self, std::shared_ptr<Code> code, nb::handle context) {
            auto in = context_from(context);
            unlocked([&] { new (self) StagedFunction(code, in); });
          },
          "code"_a, "context"_a = nb::none(),
          nb::sig("def __init__(self, code: Code, context: Context | None = None) -> None"))
      .def_prop_ro("derivatives", &StagedFunction::derivatives,
                   "How often it can be differentiated.")
      .def(
          "__call__",
          [](const StagedFunction& f, const nb::args& inputs) {
            Variables in = variables_from(inputs, "an input");
            return to_python(unlocked([&] { return f(in); }));
          },
          nb::sig("def __call__(self, *inputs: ArrayLike | None) -> list[Tensor | None]"),
          "Stage 0; later stages run when a backward asks for them.");
}

}  // namespace gradus::python
