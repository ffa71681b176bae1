#include "autograd/loop_call.h"

#include <algorithm>
#include <map>

#include "autograd/operator_call.h"
#include "autograd/recorder.h"
#include "autograd/saved_variable.h"
#include "autograd/shape_tensor.h"
#include "gradus/passes.h"
#include "gradus/read_watch.h"
#include "ir/passes/graph_world.h"
#include "ops/solvers.h"
#include "ops/structural.h"

namespace gradus::autograd {

namespace {

using Flags = std::vector<bool>;

std::string operand_name(size_t i) { return fmt::format("x{}", i); }
std::string result_name(size_t k) { return fmt::format("y{}", k); }

// A program that is the call alone.
ir::Graph graph_of(const OperatorCall& call) {
  ir::Graph graph;
  graph.name = call.op().name;
  graph.stages.emplace_back();
  std::vector<ir::Node> nodes;
  ir::GraphWorld world(graph, 0, nodes);
  SmallVector<ops::Value, 4> in;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const ir::ValueId id = graph.add_value(call.operands()[i].type, operand_name(i), 0);
    graph.stages[0].inputs.push_back(id);
    in.push_back(world.value(id));
  }
  const auto out = world.emit(call.op(), call.attributes(), in);
  for (size_t k = 0; k < out.size(); ++k)
    graph.stages[0].results.push_back({result_name(k), ir::GraphWorld::id_of(out[k])});
  graph.stages[0].nodes = std::move(nodes);
  return graph;
}

// The gradients of the wanted operands, of the operands and of the cotangents that arrived.
ir::Graph gradient_of(const OperatorCall& call, const Flags& wanted, const Flags& arrived) {
  std::vector<std::string> wrt, absent;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) wrt.push_back(operand_name(i));
  for (size_t k = 0; k < arrived.size(); ++k)
    if (!arrived[k] && call.results()[k].is_floating()) absent.push_back("ct1_" + result_name(k));
  const ir::Graph staged = ir::differentiate(graph_of(call), {.order = 1, .wrt = wrt});
  return ir::join_stages(staged, 1, absent);
}

bool has_sizes_by_data(const ir::Graph& graph) {
  return std::ranges::any_of(graph.stages[0].nodes,
                             [](const ir::Node& node) { return bool(node.op->data_sized); });
}

// Of one call. Keeps its operands, and what it has differentiated: who differentiates it twice has
// the same loop both times.
class LoopNode final : public Node {
 public:
  LoopNode(Ref<const OperatorCall> call, std::vector<SavedVariable> operands,
           SmallVector<Edge, 2> edges)
      : Node(std::move(edges)), call_(std::move(call)), operands_(std::move(operands)) {}
  std::string name() const override { return std::string(call_->op().name); }
  void release_variables() override {
    std::vector<SavedVariable> gone;  // die after the lock is let go
    Lock lock(*this);
    std::swap(gone, operands_);
  }

 private:
  Variables apply(Variables&& cotangents) override {
    Variables operands;
    {
      const Ref<Node> self(this);
      Lock lock(*this);
      for (size_t i = 0; i < operands_.size(); ++i)
        operands.push_back(operands_[i].unpack(
            self, [&] { return fmt::format("operand {} of '{}'", i, name()); }));
    }
    if (operands.empty())
      throw Error("'{}' was differentiated, and what it kept was freed; keep the graph", name());
    Flags wanted, arrived;
    for (size_t i = 0; i < operands.size(); ++i)
      wanted.push_back(task_should_compute_output(i) && is_floating(operands[i].dtype()));
    for (const Variable& ct : cotangents) arrived.push_back(ct.defined());
    Variables gradients(operands.size());
    if (std::ranges::count(wanted, true) == 0 || std::ranges::count(arrived, true) == 0)
      return gradients;
    const ir::Graph& gradient = this->gradient(wanted, arrived);
    // What is recorded has numbers for sizes.
    if (Recorder* recorder = thread_state().recorder; recorder && has_sizes_by_data(gradient))
      recorder->meets(fmt::format(
          "a derivative of '{}' (data decide its number of steps: take the derivative outside, or "
          "use a scan)",
          name()));
    return play(gradient, operands, cotangents);
  }

  const ir::Graph& gradient(const Flags& wanted, const Flags& arrived) {
    Lock lock(*this);
    auto [it, made] = gradients_.try_emplace({wanted, arrived});
    if (made) it->second = std::make_unique<const ir::Graph>(gradient_of(*call_, wanted, arrived));
    return *it->second;
  }

  Variables play(const ir::Graph& gradient, const Variables& operands,
                 const Variables& cotangents) const {
    std::map<std::string, const Variable*, std::less<>> given;
    for (size_t i = 0; i < operands.size(); ++i) given[operand_name(i)] = &operands[i];
    for (size_t k = 0; k < cotangents.size(); ++k) given["ct1_" + result_name(k)] = &cotangents[k];
    VariableWorld world;
    SmallVector<ops::Value, 4> in;
    const ir::Stage& stage = gradient.stages[0];
    for (const ir::ValueId v : stage.inputs) in.push_back(world.value(*given.at(gradient[v].name)));
    const auto out = ops::emit_graph(world, call_->op(), gradient, in);
    std::map<std::string, size_t, std::less<>> places;
    for (size_t i = 0; i < operands.size(); ++i) places["d1_" + operand_name(i)] = i;
    Variables gradients(operands.size());
    for (size_t r = 0; r < out.size(); ++r)
      if (auto place = places.find(stage.results[r].name);
          place != places.end() && stage.results[r].value != ir::no_value)
        gradients[place->second] = VariableWorld::variable(out[r]);
    return gradients;
  }

  const Ref<const OperatorCall> call_;
  std::vector<SavedVariable> operands_;
  std::map<std::pair<Flags, Flags>, std::unique_ptr<const ir::Graph>> gradients_;
};

// The results, where a recorder wants values: step by step, and nobody is told of the steps.
SmallVector<Tensor, 2> run_unrecorded(const OperatorCall& call,
                                      std::span<const VariableOperand> operands) {
  ThreadState state = thread_state();
  state.recorder = nullptr;
  state.mode = GradMode::no_grad;
  StateGuard guard(std::move(state));
  ReadWatchGuard watch(nullptr);
  SmallVector<Tensor, 2> results;
  const bool solves = ops::solver_in(call.op(), call.attributes()).has_value();
  for (const Variable& v :
       solves ? solve_by_steps(call, operands) : apply(call.op(), call.attributes(), operands))
    results.push_back(v.data());
  return results;
}

SmallVector<Tensor, 2> shapes_only(const OperatorCall& call) {
  SmallVector<Tensor, 2> results;
  for (const ir::Type& type : call.results())
    if (type.device != Device() || !results.emplace_back(shape_tensor(type)).defined()) return {};
  return results;
}

}  // namespace

Variables apply_loop(const ir::Operator& op, const ir::Attributes& attributes,
                     std::span<const VariableOperand> operands) {
  SmallVector<OperatorCall::Operand, 2> typed;
  SmallVector<const Variable*, 4> variables;
  SmallVector<Edge, 2> edges;
  bool leads = false;
  for (const VariableOperand& o : operands) {
    const auto* v = std::get_if<Variable>(&o);
    if (!v || !v->defined()) throw Error("{}: operand {} is no tensor", op.name, typed.size());
    const Layout& layout = v->data().layout();
    typed.push_back({true, {}, type_of(v->data()), Layout(layout.dtype, layout.shape)});
    variables.push_back(v);
    edges.push_back(v->gradient_edge());
    leads |= v->requires_grad();
  }
  const auto call = make_ref<const OperatorCall>(op, attributes, std::move(typed));
  Recorder* recorder = thread_state().recorder;
  SmallVector<Tensor, 2> results;
  if (recorder && recorder->shapes_only()) results = shapes_only(*call);
  if (results.empty()) results = run_unrecorded(*call, operands);
  Ref<Node> node;
  if (recording() && leads) {
    std::vector<SavedVariable> kept;
    for (const Variable* v : variables) kept.push_back(SavedVariable::input(*v));
    node = make_ref<LoopNode>(call, std::move(kept), std::move(edges));
  }
  Variables out;
  for (Tensor& t : results) {
    if (node && is_floating(t.dtype())) {
      out.push_back(create_gradient_edge(std::move(t), node));
      continue;
    }
    if (node) node->add_undefined_input();
    out.emplace_back(std::move(t));
  }
  if (recorder) recorder->called(*call, variables, out);
  return out;
}

}  // namespace gradus::autograd
