// Solvers of equations, step by step.
#include "autograd/loop_call.h"
#include "autograd/operator_call.h"
#include "gradus/apply.h"
#include "ir/passes/solvers.h"
#include "ops/solvers.h"
#include "ops/structural.h"

namespace gradus::autograd {

Variables solve_by_steps(const OperatorCall& call, std::span<const VariableOperand> operands) {
  ir::Node node{&call.op(), call.attributes(), {}, {}, {}};
  ir::settle_solver(ir::Graph(), node);
  const ops::Solver solver = *ops::solver_in(*node.op, node.attributes);
  VariableWorld world;
  SmallVector<ops::Value, 4> in;
  for (const VariableOperand& o : operands) in.push_back(world.value(std::get<Variable>(o)));
  Variables out;
  for (const ops::Value& v : ops::emit_graph(world, call.op(), *solver.form->steps->graph, in))
    out.push_back(VariableWorld::variable(v));
  return out;
}

}  // namespace gradus::autograd
