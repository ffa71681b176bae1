// A captured backward's graph: what was read of the nodes, and the rules run in the graph's world.
#pragma once

#include "autograd/backward_steps.h"
#include "autograd/operator_node.h"
#include "interpreter/opaque_call.h"
#include "ir/passes/graph_world.h"

namespace gradus::interpreter {

// A node that runs.
struct CapturedStep {
  const autograd::BackwardStep* from;
  // One of these; null where only what arrives is asked for.
  const autograd::OperatorNode* node = nullptr;
  const autograd::TapeNode* tape = nullptr;
  const OpaqueNode* opaque = nullptr;
  // Of an operator, its operands and results as the rule sees them: what was saved is the number of
  // a saved variable.
  SmallVector<ops::Value, 2> x, y;
  // Of a tape, by slot: the number of a saved variable.
  std::vector<std::optional<size_t>> slots;
  size_t instruction = 0;  // of an opaque node: what left its handle
};

// What leaves a handle in the program, with the numbers of the saved variables that it takes.
struct HandleMaker {
  Ref<const HandleOrigin> from;
  size_t evaluated = 0;  // by an eval: the maker of that handle
  std::vector<std::optional<size_t>> operands;
};

// The type of a tensor whose sizes are known.
ir::Type type_of(DType dtype, std::span<const int64_t> shape, Device device);
inline ir::Type type_of(const Tensor& t) { return type_of(t.dtype(), t.shape(), t.device()); }

// First the makers of handles are added, then the steps, in their orders.
class CaptureBuilder {
 public:
  // `arriving` numbers the outputs whose cotangents the roots take.
  CaptureBuilder(std::span<const autograd::Edge> roots, std::span<const size_t> arriving,
                 const autograd::Variables& saved);
  void add(const HandleMaker& maker);
  void add(const CapturedStep& step);
  // What arrives at an input of a step's node is result dx<i>; of none: a structural zero.
  void give(size_t i, std::optional<size_t> step, size_t input);
  ir::Graph take();

 private:
  ops::Value input(ir::Type type, std::string name);
  ops::Value sum(const std::vector<autograd::BackwardStep::Contribution>& contributions) const;
  SmallVector<ops::Value, 4> apply_rule(const CapturedStep& step);
  SmallVector<ops::Value, 4> apply_tape(const CapturedStep& step);
  SmallVector<ops::Value, 4> evaluate(const CapturedStep& step);
  SmallVector<ops::Value, 2> placed(const SmallVector<ops::Value, 2>& values);

  ir::Graph graph_;
  std::vector<ir::Node> nodes_;
  ir::GraphWorld world_;
  std::vector<ops::Value> roots_, saved_, handles_;
  std::vector<SmallVector<ops::Value, 2>> arrived_, gradients_;  // by step
};

}  // namespace gradus::interpreter
