#include "ops/solvers.h"

#include "gradus/rules.h"
#include "ops/control_flow.h"
#include "ops/declared.h"
#include "ops/factorizations.h"
#include "ops/structural.h"

namespace gradus::ops {

Value quotient(const Value& b, const Value& a) { return b.rank() == 0 ? b / a : emit<Solve>(a, b); }

Value any_beyond(const Value& x, double bound) {
  const Value beyond = logical_not(le(emit<Abs>(x), num(bound)));
  return x.rank() == 0 ? beyond : gt(sum_all(cast(beyond, DType::i64)), num(0.0));
}

Value scale_of(const Value& x) {
  const Value flat = reshape(emit<Abs>(x), {ir::numel(x.dims())});
  const Value greatest = emit<Amax>(pad_zeros(flat, 0, Dim(0), Dim(1)));
  const Value power = emit<Exp2>(emit<Floor>(emit<Log2>(greatest)));
  return where(gt(greatest, num(0.0)), power, ones_like(power));
}

double tolerance_of(const SolverForm& form, DType dtype) {
  if (form.tolerance) return *form.tolerance;
  switch (dtype) {
    case DType::f64:
      return 1e-10;
    case DType::f32:
      return 1e-5;
    default:
      return 1e-2;
  }
}

const Operator& root_operator() { return record<Root>(); }
const Operator& linear_solve_operator() { return record<LinearSolve>(); }

namespace {

template <class Op>
Attributes attributes_for(GraphName equation, std::optional<int64_t> max_steps,
                          std::optional<double> tolerance) {
  typename Op::Attr a;
  a.equation = std::move(equation);
  if (max_steps) a.max_steps = *max_steps;
  a.tolerance = tolerance;
  return make_attributes(std::move(a));
}

}  // namespace

Attributes root_attributes(GraphName residual, std::optional<int64_t> max_steps,
                           std::optional<double> tolerance) {
  return attributes_for<Root>(std::move(residual), max_steps, tolerance);
}
Attributes linear_solve_attributes(GraphName product, std::optional<int64_t> max_steps,
                                   std::optional<double> tolerance) {
  return attributes_for<LinearSolve>(std::move(product), max_steps, tolerance);
}

std::optional<Solver> solver_in(const Operator& op, const Attributes& attributes) {
  auto parts = [](const auto& a, bool linear) { return Solver{&a.equation, &a, linear}; };
  if (&op == &record<Root>()) return parts(attributes_as<Root::Attr>(attributes), false);
  if (&op == &record<LinearSolve>())
    return parts(attributes_as<LinearSolve::Attr>(attributes), true);
  return std::nullopt;
}

Attributes settled_solver(const Operator& op, const Attributes& attributes, GraphName steps,
                          GraphName vjp) {
  auto filled = [&](auto a) {
    a.steps = std::move(steps);
    a.vjp = std::move(vjp);
    return make_attributes(std::move(a));
  };
  if (&op == &record<Root>()) return filled(attributes_as<Root::Attr>(attributes));
  return filled(attributes_as<LinearSolve::Attr>(attributes));
}

namespace {

void infer_solution(InferCall& call, const GraphName& equation, const SolverForm& form,
                    std::string_view part) {
  const Type& x = call.tensor(0);
  if (!x.is_floating()) call.fail("operand 0 is {}; it has to be floating", to_string(x));
  if (form.max_steps < 0) call.fail("max_steps is {}, which is negative", form.max_steps);
  if (form.tolerance && !(*form.tolerance >= 0))
    call.fail("tolerance is {}; it has to be zero or more", *form.tolerance);
  const auto given = types_given(call, call.in, equation, part);
  if (given.size() != 1)
    call.fail("graph '{}', its {}, returns {} values; it has to return one", equation.name, part,
              given.size());
  const std::string what = fmt::format("what graph '{}', its {}, returns", equation.name, part);
  if (given[0].dtype != x.dtype || given[0].rank() != x.rank() || given[0].device != x.device)
    call.fail("{}, is {}; operand 0 is {}, and they must have one type", what, to_string(given[0]),
              to_string(x));
  for (size_t d = 0; d < x.dims.size(); ++d)
    call.require_equal(given[0].dims[d], x.dims[d], fmt::format("dimension {} of {}", d, what));
  call.out.push_back(x);
}

void compose_steps(ComposeCall& c, const SolverForm& form) {
  if (!form.steps || !form.steps->graph) c.fail("no pass has made its steps");
  c.results = emit_graph(c.world, c.op, *form.steps->graph, c.operands);
}

// `last` is what the graph of gradients takes behind the result and the constants.
void give_constants(VjpCall& d, const SolverForm& form, const Value& last) {
  SmallVector<Value, 4> inputs{d.y()};
  for (size_t i = 1; i < d.operands.size(); ++i) inputs.push_back(d.x(i));
  inputs.push_back(last);
  const auto gradients = emit_graph(d.world, d.op, *form.vjp->graph, inputs);
  size_t next = 0;
  for (size_t i = 1; i < d.operands.size(); ++i) {
    if (!d.x_type(i).is_floating()) continue;
    const Value& g = gradients[next++];
    if (g.defined()) d.give(i, [&] { return g; });
  }
}

bool wants_constants(const VjpCall& d) {
  for (size_t i = 1; i < d.operands.size(); ++i)
    if (d.wants(i)) return true;
  return false;
}

}  // namespace

void Root::infer(InferCall& call) {
  const auto& a = attributes_as<Attr>(call.attributes);
  if (const Type& x = call.tensor(0); x.rank() > 1)
    call.fail("x0 is {}; it has to be a number or a vector: reshape it", to_string(x));
  infer_solution(call, a.equation, a, "residual");
}
void Root::compose(ComposeCall& c) { compose_steps(c, c.attr<Attr>()); }
bool Root::vjp_holds(const Attributes& attributes) {
  return attributes_as<Attr>(attributes).vjp.has_value();
}
void Root::vjp(VjpCall& d) {
  if (wants_constants(d)) give_constants(d, d.attr<Attr>(), d.dy());
}

void LinearSolve::infer(InferCall& call) {
  const auto& a = attributes_as<Attr>(call.attributes);
  infer_solution(call, a.equation, a, "product");
}
void LinearSolve::compose(ComposeCall& c) { compose_steps(c, c.attr<Attr>()); }
bool LinearSolve::vjp_holds(const Attributes& attributes) {
  return attributes_as<Attr>(attributes).vjp.has_value();
}
void LinearSolve::vjp(VjpCall& d) {
  SmallVector<Value, 4> operands(d.operands);
  operands[0] = d.dy();
  const Value db = emit(d.op, d.attributes, operands);
  d.give(0, [&] { return db; });
  if (wants_constants(d)) give_constants(d, d.attr<Attr>(), db);
}

}  // namespace gradus::ops
