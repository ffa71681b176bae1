// Loops, branches and batches of functions: their bodies as graphs.
#include <algorithm>

#include "autograd/shape_tensor.h"
#include "gradus/apply.h"
#include "gradus/control_flow.h"
#include "gradus/passes.h"
#include "interpreter/trace_tape.h"
#include "ops/control_flow.h"
#include "ops/solvers.h"
#include "ops/structural.h"

namespace gradus {

using autograd::Variable;
using autograd::Variables;
using interpreter::TracedProgram;
using interpreter::TraceTape;
using interpreter::TraceValues;

TracedBody trace_body(const VariableFunction& f, std::span<const ir::Type> arguments,
                      std::string name, std::vector<std::string> argument_names) {
  if (!argument_names.empty() && argument_names.size() != arguments.size())
    throw Error("{} arguments of '{}' were given {} names", arguments.size(), name,
                argument_names.size());
  Variables inputs;
  for (const ir::Type& type : arguments) {
    const Tensor shape = autograd::shape_tensor(type);
    if (!shape.defined())
      throw Error(
          "'{}' is recorded with a {}, which is larger than the memory that the process can "
          "address",
          name, to_string(type));
    // All that is floating requires gradients: what the function differentiates itself stays
    // connected with it.
    inputs.emplace_back(shape, type.is_floating());
  }
  auto program = std::make_shared<TracedProgram>();
  program->options.name = std::move(name);
  program->options.inputs = std::move(argument_names);
  program->options.shapes_only = true;
  auto tape = std::make_shared<TraceTape>(program);
  program->tape = tape;
  tape->capture_from(TraceValues::current());
  tape->run(f, inputs);
  return {std::move(program->graph), tape->captured()};
}

namespace {

std::vector<ir::Type> types_of(std::span<const Variable> values) {
  std::vector<ir::Type> types;
  for (const Variable& v : values) types.push_back(autograd::type_of(v.data()));
  return types;
}

ops::GraphName named(ir::Graph graph) {
  std::string name = graph.name;
  return {std::move(name), std::make_shared<const ir::Graph>(std::move(graph))};
}

Variables apply_to(const ir::Operator& op, const ir::Attributes& attributes,
                   std::initializer_list<std::span<const Variable>> lists) {
  std::vector<autograd::VariableOperand> operands;
  for (std::span<const Variable> list : lists)
    operands.insert(operands.end(), list.begin(), list.end());
  return autograd::apply(op, attributes, operands);
}

bool is_same(const Variable& a, const Variable& b) {
  return a.data().same_as(b.data()) && a.gradient_edge() == b.gradient_edge();
}

size_t place_in(Variables& list, const Variable& v) {
  auto it = std::ranges::find_if(list, [&](const Variable& k) { return is_same(k, v); });
  const auto place = static_cast<size_t>(it - list.begin());
  if (it == list.end()) list.push_back(v);
  return place;
}

// The graph takes `all`, in that order, in the place of what it captured.
ir::Graph taking(TracedBody body, const Variables& all) {
  std::vector<ir::ValueId>& inputs = body.graph.stages[0].inputs;
  const size_t first = inputs.size() - body.captured.size();
  std::vector<ir::ValueId> taken(all.size(), ir::no_value);
  Variables places = all;
  for (size_t i = 0; i < body.captured.size(); ++i)
    taken[place_in(places, body.captured[i])] = inputs[first + i];
  for (size_t i = 0; i < all.size(); ++i) {
    std::string name = fmt::format("captured{}", i);
    if (taken[i] == ir::no_value)
      taken[i] = body.graph.add_value(autograd::type_of(all[i].data()), name, 0);
    for (size_t k = 0; k < first; ++k)
      if (body.graph[inputs[k]].name == name) name += '_';
    body.graph[taken[i]].name = name;
  }
  inputs.resize(first);
  inputs.insert(inputs.end(), taken.begin(), taken.end());
  return std::move(body.graph);
}

}  // namespace

Variables scan(const TracedBody& body, std::span<const Variable> carries,
               std::span<const Variable> sequences, const ScanOptions& options) {
  ops::LoopForm form;
  form.carries = static_cast<int64_t>(carries.size());
  form.sequences = static_cast<int64_t>(sequences.size());
  form.reverse = options.reverse;
  form.checkpoint = options.checkpoint;
  if (options.length) form.length = ir::Dim(*options.length);
  return apply_to(ops::scan_operator(), ops::scan_attributes(form, named(body.graph)),
                  {carries, sequences, body.captured});
}

Variables scan(const VariableFunction& body, std::span<const Variable> carries,
               std::span<const Variable> sequences, const ScanOptions& options) {
  std::vector<ir::Type> types = types_of(carries);
  for (ir::Type t : types_of(sequences)) {
    if (t.rank() == 0)
      throw Error("scan: a sequence has a first dimension; {} has none", to_string(t));
    t.dims.erase(t.dims.begin());
    types.push_back(std::move(t));
  }
  return scan(trace_body(body, types, "step"), carries, sequences, options);
}

Variables cond(const Variable& predicate, TracedBody then, TracedBody otherwise,
               std::span<const Variable> operands) {
  Variables captured = then.captured;
  for (const Variable& v : otherwise.captured) place_in(captured, v);
  const auto attributes = ops::if_attributes(named(taking(std::move(then), captured)),
                                             named(taking(std::move(otherwise), captured)));
  return apply_to(ops::if_operator(), attributes, {{&predicate, 1}, operands, captured});
}

Variables cond(const Variable& predicate, const VariableFunction& then,
               const VariableFunction& otherwise, std::span<const Variable> operands) {
  const std::vector<ir::Type> types = types_of(operands);
  return cond(predicate, trace_body(then, types, "then"), trace_body(otherwise, types, "else"),
              operands);
}

Variables while_loop(TracedBody condition, TracedBody body, std::span<const Variable> carries,
                     std::vector<int64_t> checkpoint) {
  Variables captured = condition.captured;
  for (const Variable& v : body.captured) place_in(captured, v);
  const auto attributes = ops::while_attributes(
      static_cast<int64_t>(carries.size()), named(taking(std::move(condition), captured)),
      named(taking(std::move(body), captured)), {}, std::move(checkpoint));
  return apply_to(ops::while_operator(), attributes, {carries, captured});
}

Variables while_loop(const VariableFunction& condition, const VariableFunction& body,
                     std::span<const Variable> carries, std::vector<int64_t> checkpoint) {
  const std::vector<ir::Type> types = types_of(carries);
  return while_loop(trace_body(condition, types, "condition"), trace_body(body, types, "step"),
                    carries, std::move(checkpoint));
}

namespace {

// The one size that the mapped operands have in front.
ir::Dim size_in_front(const ir::Graph& graph, std::span<const ir::Type> types,
                      const std::vector<bool>& mapped) {
  std::optional<size_t> first;
  for (size_t i = 0; i < types.size(); ++i) {
    if (!mapped[i]) continue;
    if (types[i].rank() == 0)
      throw Error("vmap of '{}': operand {} is {}, which has no dimension to map over", graph.name,
                  i, to_string(types[i]));
    if (first && types[i].dims[0] != types[*first].dims[0])
      throw Error("vmap of '{}': operand {} has {} in front, and operand {} has {}", graph.name, i,
                  to_string(types[i].dims[0]), *first, to_string(types[*first].dims[0]));
    if (!first) first = i;
  }
  if (!first) throw Error("vmap of '{}': no operand is mapped", graph.name);
  return types[*first].dims[0];
}

void check_marks(std::string_view name, size_t operands, size_t marks) {
  if (operands != marks)
    throw Error("vmap of '{}': {} operands have {} marks that say which are mapped", name, operands,
                marks);
}

}  // namespace

Variables vmap(const TracedBody& body, std::span<const Variable> operands,
               const std::vector<bool>& mapped) {
  check_marks(body.graph.name, operands.size(), mapped.size());
  const size_t inputs = body.graph.stages[0].inputs.size(), captured = body.captured.size();
  if (operands.size() + captured != inputs)
    throw Error("vmap of '{}': it takes {} operands, and has {}", body.graph.name,
                inputs - std::min(inputs, captured), operands.size());
  const ir::Dim size = size_in_front(body.graph, types_of(operands), mapped);
  std::vector<std::string> names;
  for (size_t i = 0; i < operands.size(); ++i)
    if (mapped[i]) names.push_back(body.graph[body.graph.stages[0].inputs[i]].name);
  return apply_to(ops::call_operator(), ops::call_attributes(named(batch(body.graph, names, size))),
                  {operands, body.captured});
}

Variables vmap(const VariableFunction& f, std::span<const Variable> operands,
               const std::vector<bool>& mapped) {
  check_marks("function", operands.size(), mapped.size());
  std::vector<ir::Type> types = types_of(operands);
  for (size_t i = 0; i < types.size(); ++i)
    if (mapped[i] && types[i].rank() > 0) types[i].dims.erase(types[i].dims.begin());
  return vmap(trace_body(f, types, "function"), operands, mapped);
}

Variable root(const TracedBody& residual, const Variable& x0, std::span<const Variable> constants,
              const SolverOptions& options) {
  return apply_to(ops::root_operator(),
                  ops::root_attributes(named(residual.graph), options.max_steps, options.tolerance),
                  {{&x0, 1}, constants, residual.captured})[0];
}

Variable linear_solve(const TracedBody& product, const Variable& b,
                      std::span<const Variable> constants, const SolverOptions& options) {
  return apply_to(
      ops::linear_solve_operator(),
      ops::linear_solve_attributes(named(product.graph), options.max_steps, options.tolerance),
      {{&b, 1}, constants, product.captured})[0];
}

}  // namespace gradus
