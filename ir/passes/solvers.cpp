#include "ir/passes/solvers.h"

#include <limits>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rules.h"
#include "ir/passes/graph_world.h"
#include "ops/control_flow.h"
#include "ops/solvers.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

using Solving = SmallVector<ops::Value, 4>;
constexpr double infinity = std::numeric_limits<double>::infinity();

// A graph of one stage in the making.
class Sketch {
 public:
  explicit Sketch(std::string name) {
    graph_.name = std::move(name);
    graph_.stages.emplace_back();
  }
  ops::Value input(std::string name, Type type) {
    const ValueId v = graph_.add_value(std::move(type), std::move(name), 0);
    graph_.stages[0].inputs.push_back(v);
    return world.value(v);
  }
  void result(std::string name, const ops::Value& v) {
    graph_.stages[0].results.push_back(
        {std::move(name), v.defined() ? GraphWorld::id_of(v) : no_value});
  }
  ops::GraphName take() {
    graph_.stages[0].nodes = std::move(nodes_);
    std::string name = graph_.name;
    return {std::move(name), std::make_shared<const Graph>(std::move(graph_))};
  }

 private:
  Graph graph_;
  std::vector<Node> nodes_;

 public:
  GraphWorld world{graph_, 0, nodes_};
};

class Making {
 public:
  Making(const Operator& op, const Attributes& attributes, const ops::Solver& solver)
      : op_(op), attributes_(attributes), solver_(solver), name_(solver.equation->name) {
    const Graph& given = *solver.equation->graph;
    std::vector<std::string> inputs{"x"};
    for (size_t i = 1; i < given.stages[0].inputs.size(); ++i)
      inputs.push_back(fmt::format("c{}", i));
    equation_ = rename(given, inputs, {"r"});
    for (ValueId v : equation_.stages[0].inputs) types_.push_back(equation_[v].type);
    tolerance_ = ops::tolerance_of(*solver.form, x_type().dtype);
  }

  Attributes run() {
    if (!solver_.linear) jacobian_ = jacobian(equation_, {.wrt = {{"x"}}});
    ops::GraphName steps = solver_.linear ? conjugate_gradients() : newton(), vjp = gradients();
    return ops::settled_solver(op_, attributes_, std::move(steps), std::move(vjp));
  }

 private:
  const Type& x_type() const { return types_[0]; }
  Type number() const { return Type(x_type().dtype, {}, x_type().device); }

  void add_constants(Sketch& s, Solving& in) const {
    for (size_t i = 1; i < types_.size(); ++i)
      in.push_back(s.input(fmt::format("c{}", i), types_[i]));
  }
  Solving inputs(Sketch& s) const {
    Solving in{s.input("x", x_type())};
    add_constants(s, in);
    return in;
  }
  ops::Value equation(Sketch& s, const Solving& in) const {
    return ops::emit_graph(s.world, op_, equation_, in)[0];
  }
  ops::Value slope(Sketch& s, const Solving& in, ops::Value* residual = nullptr) const {
    const auto out = ops::emit_graph(s.world, op_, jacobian_, in);
    if (!out[1].defined())
      throw Error("graph '{}', its residual, does not depend on its first input, '{}'", name_,
                  given_name(0));
    if (residual) *residual = out[0];
    return out[1];
  }
  std::string given_name(size_t i) const {
    const Graph& given = *solver_.equation->graph;
    return given[given.stages[0].inputs[i]].name;
  }
  ops::Attributes loop(int64_t carries, Sketch& more, Sketch& step) const {
    return ops::while_attributes(carries, more.take(), step.take(), Dim(solver_.form->max_steps),
                                 {}, failure());
  }

  std::string failure() const {
    const int64_t steps = solver_.form->max_steps;
    if (solver_.linear)
      return fmt::format(
          "linear_solve: after {} steps, the most that `max_steps` allows, |b - f(x)| is more than "
          "{:g} |b|; '{}' must be symmetric and positive definite; if it is, raise `max_steps` or "
          "`tolerance`",
          steps, tolerance_, name_);
    return fmt::format(
        "root: after {} steps, the most that `max_steps` allows, '{}' gives more than {:g}; start "
        "closer to a root, or raise `max_steps` or `tolerance`",
        steps, name_, tolerance_);
  }

  ops::GraphName newton() const {
    Sketch more(name_ + "_far"), step(name_ + "_newton"), all(name_ + "_root");
    const ops::Value r = equation(more, inputs(more));
    more.result("far", ops::any_beyond(r, tolerance_));

    const Solving at = inputs(step);
    ops::Value residual;
    const ops::Value j = slope(step, at, &residual);
    step.result("next", at[0] - ops::quotient(residual, j));

    const Solving in = inputs(all);
    all.result("solution", all.world.emit(ops::while_operator(), loop(1, more, step), in)[0]);
    return all.take();
  }

  ops::GraphName conjugate_gradients() const {
    Sketch more(name_ + "_far"), step(name_ + "_conjugate"), all(name_ + "_solve");
    const Solving seen = carried(more);
    // A sum beyond the dtype is no small one.
    const ops::Value near = ops::le(seen[3], seen[4]),
                     beyond = ops::eq(seen[3], ops::num(infinity));
    more.result("far", ops::logical_or(ops::logical_not(near), beyond));

    const Solving at = carried(step);
    const ops::Value &x = at[0], &r = at[1], &p = at[2], &square = at[3];
    Solving in{p};
    for (size_t i = 5; i < at.size(); ++i) in.push_back(at[i]);
    const ops::Value product = equation(step, in), pp = p * product;
    const ops::Value length = square / ops::sum_all(pp);
    const ops::Value by = length * p, next_x = x + by, less = length * product;
    const ops::Value next_r = r - less, rr = next_r * next_r, next_square = ops::sum_all(rr);
    const ops::Value ratio = next_square / square, along = ratio * p;
    step.result("next_x", next_x);
    step.result("next_r", next_r);
    step.result("next_p", next_r + along);
    step.result("next_square", next_square);

    Solving given = inputs(all);
    // The squares of what is scaled are neither too large nor too small for the dtype.
    const ops::Value scale = ops::scale_of(given[0]);
    const ops::Value b = given[0] / scale, bb = b * b, whole = ops::sum_all(bb);
    const ops::Value bound = whole * (tolerance_ * tolerance_);
    Solving operands{ops::zeros_like(b), b, b, whole, bound};
    for (size_t i = 1; i < given.size(); ++i) operands.push_back(given[i]);
    const auto out = all.world.emit(ops::while_operator(), loop(4, more, step), operands);
    all.result("solution", out[0] * scale);
    return all.take();
  }

  // x, its residual, the direction, the residual's square, what that has to come to, constants.
  Solving carried(Sketch& s) const {
    Solving in{s.input("x", x_type()), s.input("residual", x_type()),
               s.input("direction", x_type()), s.input("squares", number()),
               s.input("bound", number())};
    add_constants(s, in);
    return in;
  }

  // Of the constants: -(d equation / d constants)^T adjoint.
  ops::GraphName gradients() const {
    Sketch s(name_ + "_vjp");
    Solving in = inputs(s);
    ops::Value adjoint = s.input("cotangent", x_type());
    std::vector<std::string> wrt;
    for (size_t i = 1; i < types_.size(); ++i)
      if (types_[i].is_floating()) wrt.push_back(fmt::format("c{}", i));
    if (wrt.empty()) return s.take();
    if (!solver_.linear) {
      const ops::Value j = slope(s, in);
      adjoint = ops::quotient(adjoint, j.rank() == 0 ? j : ops::swap_last(j));
    }
    const Graph pullback = join_stages(differentiate(equation_, {.order = 1, .wrt = wrt}), 1);
    in.push_back(-adjoint);
    const auto found = ops::emit_graph(s.world, op_, pullback, in);
    for (size_t i = 0; i < wrt.size(); ++i) s.result("d_" + wrt[i], found[i]);
    return s.take();
  }

  const Operator& op_;
  const Attributes& attributes_;
  const ops::Solver solver_;
  const std::string name_;
  Graph equation_, jacobian_;
  std::vector<Type> types_;  // of x and the constants, as the equation has them
  double tolerance_ = 0;
};

}  // namespace

bool settle_solver(const Graph& graph, Node& node) {
  if (!node.op || !node.attributes) return false;
  const auto solver = ops::solver_in(*node.op, node.attributes);
  if (!solver || solver->settled()) return false;
  try {
    node.attributes = Making(*node.op, node.attributes, *solver).run();
  } catch (const Error& e) {
    throw graph.error_at(node.where, fmt::format("{}: {}", node.op->name, e.bare()));
  }
  return true;
}

}  // namespace gradus::ir
