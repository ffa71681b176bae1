#include "interpreter/capture_build.h"

#include <algorithm>

#include "ops/opaque.h"
#include "ops/reverse.h"

namespace gradus::interpreter {

using autograd::BackwardStep;
using autograd::Edge;
using autograd::InputMetadata;
using autograd::Variables;

CaptureBuilder::CaptureBuilder(std::span<const Edge> roots, std::span<const size_t> arriving,
                               const Variables& saved)
    : world_(graph_, 0, nodes_) {
  graph_.name = "backward";
  graph_.stages.emplace_back();
  for (size_t r = 0; r < roots.size(); ++r) {
    const InputMetadata& m = roots[r].node->input_metadata(roots[r].input);
    roots_.push_back(input(type_of(m), fmt::format("dy{}", arriving[r])));
  }
  for (size_t k = 0; k < saved.size(); ++k)
    saved_.push_back(input(type_of(saved[k].data()), fmt::format("s{}", k)));
}
void CaptureBuilder::add(const HandleMaker& maker) {
  SmallVector<ops::Value, 4> operands;
  for (const auto& o : maker.operands) operands.push_back(o ? saved_[*o] : ops::Value());
  const size_t count = maker.from->results + 1;
  SmallVector<ops::Value, 2> results;
  if (const auto& function = maker.from->function) {
    results =
        world_.emit_results(ops::caller_of(*function),
                            ops::call_attributes(*function, maker.from->marks), operands, count);
  } else {
    operands.push_back(handles_[maker.evaluated]);
    results = ops::emit_eval(world_, operands, count);
  }
  handles_.push_back(results.back());
}

void CaptureBuilder::add(const CapturedStep& step) {
  auto& arrived = arrived_.emplace_back();
  gradients_.emplace_back().resize(step.from->node->outputs());
  for (const auto& contributions : step.from->inputs) arrived.push_back(sum(contributions));
  if (!step.from->runs || std::ranges::none_of(arrived, &ops::Value::defined)) return;
  auto given = step.opaque ? evaluate(step) : play(step);
  auto edges = step.from->node->next_edges();
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!step.from->wanted[i] || !given[i].defined()) continue;
    // As the engine does with what a node gives.
    const InputMetadata& to = edges[i].node->input_metadata(edges[i].input);
    gradients_.back()[i] =
        to.kind == InputMetadata::Kind::known ? ops::fit(given[i], type_of(to)) : given[i];
  }
}

void CaptureBuilder::give(size_t i, std::optional<size_t> step, size_t input) {
  ops::Value gradient = step ? arrived_[*step][input] : ops::Value();
  graph_.stages[0].results.push_back({fmt::format("dx{}", i), gradient.defined()
                                                                  ? ir::GraphWorld::id_of(gradient)
                                                                  : ir::no_value});
}

ir::Graph CaptureBuilder::take() {
  graph_.stages[0].nodes = std::move(nodes_);
  return std::move(graph_);
}

ops::Value CaptureBuilder::input(ir::Type type, std::string name) {
  ir::ValueId v = graph_.add_value(std::move(type), std::move(name), 0);
  graph_.stages[0].inputs.push_back(v);
  return world_.value(v);
}

// Contributions in the engine's order.
ops::Value CaptureBuilder::sum(const std::vector<BackwardStep::Contribution>& contributions) const {
  ops::Value sum;
  for (const auto& c : contributions) {
    const ops::Value& v =
        c.step == BackwardStep::root ? roots_[c.output] : gradients_[c.step][c.output];
    if (v.defined()) ops::accumulate(sum, v);
  }
  return sum;
}

std::vector<ops::Value> CaptureBuilder::play(const CapturedStep& step) {
  const auto& arrived = arrived_.back();
  SmallVector<bool, 4> given;
  for (const ops::Value& v : arrived) given.push_back(v.defined());
  const autograd::RuleTape& tape = step.node->tape(step.from->wanted, given);
  std::vector<ops::Value> slots(tape.slots());
  for (size_t s = 0; s < step.slots.size(); ++s)
    if (step.slots[s]) slots[s] = saved_[*step.slots[s]];
  for (size_t i = 0; i < arrived.size(); ++i)
    if (arrived[i].defined()) slots[step.node->cotangent_slot(i)] = arrived[i];
  return tape.emit(world_, std::move(slots));
}

std::vector<ops::Value> CaptureBuilder::evaluate(const CapturedStep& step) {
  SmallVector<ops::Value, 4> operands;
  for (size_t i = 0; i < arrived_.back().size(); ++i)
    if (step.opaque->takes(i)) operands.push_back(arrived_.back()[i]);
  operands.push_back(handles_[step.instruction]);
  auto gradients = ops::emit_eval(world_, operands);
  return {gradients.begin(), gradients.end()};
}

}  // namespace gradus::interpreter
