// Python functions over tensors, recorded as programs; programs as functions of tensors.
#include "gradus/trace.h"

#include "gradus/apply.h"
#include "gradus/engine.h"
#include "python/bindings.h"
#include "python/context.h"
#include "python/errors.h"
#include "python/program.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

// `f` takes and gives a list of tensors. A recording `apart` is hidden from one around it. Gives
// the program, and what it captured.
nb::tuple record(const nb::object& f, const nb::list& inputs, const std::string& name,
                 std::vector<std::string> input_names, int order, bool apart, bool captures) {
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
  autograd::ThreadState state = autograd::thread_state();
  if (apart) state.recorder = nullptr;
  auto [graph, captured] = unlocked([&] {
    autograd::StateGuard guard(std::move(state));
    Variables captured;
    if (captures) options.captures = &captured;
    ir::Graph graph = trace(call, in, options).trace.graph();
    return std::pair(std::move(graph), std::move(captured));
  });
  return nb::make_tuple(program_of(std::move(graph)), to_python(captured));
}

// Runs a program's one stage, of known sizes, operator by operator: whoever records the variables
// has a part of what it records, with every derivative.
Variables play(const ir::Graph& graph, const Variables& inputs) {
  if (graph.stages.size() != 1)
    throw Error("a program of {} stages is no part of another", graph.stages.size());
  const ir::Stage& stage = graph.stages[0];
  if (inputs.size() != stage.inputs.size())
    throw Error("'{}' takes {} inputs, not {}", graph.name, stage.inputs.size(), inputs.size());
  Variables values(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[index_of(stage.inputs[i])] = inputs[i];
  auto operand = [&](const ir::Operand& o) -> autograd::VariableOperand {
    if (const auto* v = std::get_if<ir::ValueId>(&o); v && *v != ir::no_value)
      return values[index_of(*v)];
    if (const auto* n = std::get_if<ir::Number>(&o)) return *n;
    if (const auto* d = std::get_if<ir::Dim>(&o)) return ir::Number::of(d->value());
    return std::monostate();
  };
  for (const ir::Node& node : stage.nodes) {
    if (node.op->name == "constant") {
      for (const ir::NamedLiteral& a : node.op->write(node.attributes))
        if (a.name == "value")
          values[index_of(node.results[0])] = Variable(std::get<Tensor>(a.value.value));
      continue;
    }
    SmallVector<autograd::VariableOperand, 4> operands;
    for (const ir::Operand& o : node.operands) operands.push_back(operand(o));
    Variables results = autograd::apply(*node.op, node.attributes, operands);
    for (size_t i = 0; i < node.results.size(); ++i)
      values[index_of(node.results[i])] = std::move(results[i]);
  }
  Variables results;
  for (const ir::Result& r : stage.results)
    results.push_back(r.value == ir::no_value ? Variable() : values[index_of(r.value)]);
  return results;
}

}  // namespace

void bind_trace(nb::module_& m) {
  m.def("record", record, "f"_a, "inputs"_a, "name"_a, "input_names"_a, "order"_a = 0,
        "apart"_a = false, "captures"_a = false);
  m.def(
      "play",
      [](const Program& p, const nb::list& inputs) {
        Variables in = variables_from(inputs, "an input");
        return to_python(unlocked([&] { return play(p.graph(), in); }));
      },
      "program"_a, "inputs"_a,
      nb::sig("def play(program: Program, inputs: list[Tensor]) -> list[Tensor | None]"),
      "A program's one stage, operator by operator.");
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
