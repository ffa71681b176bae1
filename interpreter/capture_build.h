// A captured backward's graph: what was read of the nodes, and their tapes played in the graph's
// world.
#pragma once

#include "autograd/taped_node.h"
#include "gradus/apply.h"
#include "gradus/engine.h"
#include "interpreter/opaque_call.h"
#include "ir/passes/graph_world.h"

namespace gradus::interpreter {

// A node that runs.
struct CapturedStep {
  const autograd::BackwardStep* from;
  // One of these; null where only what arrives is asked for.
  const autograd::TapedNode* node = nullptr;
  const OpaqueNode* opaque = nullptr;
  // By slot of the node's tape: the number of a saved variable.
  std::vector<std::optional<size_t>> slots;
  size_t instruction = 0;  // of an opaque node: what left its handle
};

// What leaves a handle in the program, with the numbers of the saved variables that it takes.
struct HandleMaker {
  Ref<const HandleOrigin> from;
  size_t evaluated = 0;  // by an eval: the maker of that handle
  std::vector<std::optional<size_t>> operands;
};

using autograd::type_of;

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
  std::vector<ops::Value> play(const CapturedStep& step);
  std::vector<ops::Value> evaluate(const CapturedStep& step);

  ir::Graph graph_;
  std::vector<ir::Node> nodes_;
  ir::GraphWorld world_;
  std::vector<ops::Value> roots_, saved_, handles_;
  std::vector<SmallVector<ops::Value, 2>> arrived_, gradients_;  // by step
};

}  // namespace gradus::interpreter
