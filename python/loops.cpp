// Loops, branches and batches of Python functions, as graphs of what is recorded.
#include "gradus/control_flow.h"
#include "python/bindings.h"
#include "python/errors.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

TracedBody record_body(const nb::object& f, const std::vector<ir::Type>& arguments,
                       const std::string& name, std::vector<std::string> argument_names) {
  auto call = [&](std::span<const Variable> given) {
    return call_python([&] {
      nb::list list;
      for (const Variable& v : given) list.append(to_python(v));
      return variables_from(f(list), "what the function gives");
    });
  };
  return unlocked([&] { return trace_body(call, arguments, name, std::move(argument_names)); });
}

std::vector<ir::Type> results_of(const TracedBody& body) {
  std::vector<ir::Type> types;
  for (const ir::Result& r : body.graph.stages[0].results)
    types.push_back(body.graph[r.value].type);
  return types;
}

}  // namespace

void bind_loops(nb::module_& m) {
  nb::class_<TracedBody>(m, "TracedBody", "A function recorded as a graph of a loop or a branch.")
      .def_prop_ro("results", results_of, "The types of what it gives.");
  m.def("record_body", record_body, "f"_a, "arguments"_a, "name"_a, "argument_names"_a,
        nb::sig("def record_body(f: collections.abc.Callable[[list[Tensor]], list[Tensor]], "
                "arguments: collections.abc.Sequence[Type], name: str, argument_names: "
                "collections.abc.Sequence[str]) -> TracedBody"),
        "Runs `f` once, on tensors of these types that have no values, and records it.");
  m.def(
      "scan_body",
      [](const TracedBody& body, const nb::list& carries, const nb::list& sequences,
         std::optional<int64_t> length, bool reverse, std::vector<int64_t> checkpoint) {
        const Variables first = variables_from(carries, "a carry"),
                        slices = variables_from(sequences, "a sequence");
        const ScanOptions options{length, reverse, std::move(checkpoint)};
        return to_python(unlocked([&] { return scan(body, first, slices, options); }));
      },
      "body"_a, "carries"_a, "sequences"_a, "length"_a, "reverse"_a, "checkpoint"_a,
      nb::sig("def scan_body(body: TracedBody, carries: list[Tensor], sequences: list[Tensor], "
              "length: int | None, reverse: bool, checkpoint: list[int]) -> list[Tensor]"));
  m.def(
      "cond_bodies",
      [](nb::handle predicate, const TracedBody& then, const TracedBody& otherwise,
         const nb::list& operands) {
        const Variable p = variable_from(predicate, "the predicate");
        const Variables in = variables_from(operands, "an operand");
        return to_python(unlocked([&] { return cond(p, then, otherwise, in); }));
      },
      "predicate"_a, "then"_a, "otherwise"_a, "operands"_a,
      nb::sig("def cond_bodies(predicate: Tensor, then: TracedBody, otherwise: TracedBody, "
              "operands: list[Tensor]) -> list[Tensor]"));
  m.def(
      "while_bodies",
      [](const TracedBody& condition, const TracedBody& body, const nb::list& carries,
         const std::vector<int64_t>& checkpoint) {
        const Variables first = variables_from(carries, "a carry");
        return to_python(unlocked([&] { return while_loop(condition, body, first, checkpoint); }));
      },
      "condition"_a, "body"_a, "carries"_a, "checkpoint"_a,
      nb::sig("def while_bodies(condition: TracedBody, body: TracedBody, carries: list[Tensor], "
              "checkpoint: list[int]) -> list[Tensor]"));
  m.def(
      "vmap_body",
      [](const TracedBody& body, const nb::list& operands, const std::vector<bool>& mapped) {
        const Variables in = variables_from(operands, "an operand");
        return to_python(unlocked([&] { return vmap(body, in, mapped); }));
      },
      "body"_a, "operands"_a, "mapped"_a,
      nb::sig("def vmap_body(body: TracedBody, operands: list[Tensor], mapped: list[bool]) -> "
              "list[Tensor]"));
  auto solver = [&](const char* name, auto solve, const char* signature) {
    m.def(
        name,
        [solve](const TracedBody& body, nb::handle first, const nb::list& constants,
                std::optional<int64_t> max_steps, std::optional<double> tolerance) {
          const Variable x = variable_from(first, "the first argument");
          const Variables others = variables_from(constants, "a constant");
          const Variables out = unlocked([&] {
            return Variables{solve(body, x, others, SolverOptions{max_steps, tolerance})};
          });
          return to_python(out[0]);
        },
        "body"_a, "first"_a, "constants"_a, "max_steps"_a, "tolerance"_a, nb::sig(signature));
  };
  solver("root_body", root,
         "def root_body(body: TracedBody, first: Tensor, constants: list[Tensor], max_steps: int | "
         "None, tolerance: float | None) -> Tensor");
  solver("linear_solve_body", linear_solve,
         "def linear_solve_body(body: TracedBody, first: Tensor, constants: list[Tensor], "
         "max_steps: int | None, tolerance: float | None) -> Tensor");
}

}  // namespace gradus::python
