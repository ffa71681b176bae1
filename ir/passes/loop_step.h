// What the passes over loops share: the graph of a step, and its backward pass.
#pragma once

#include "ir/passes/loops.h"
#include "ir/text/settle.h"
#include "ops/control_flow.h"

namespace gradus::ir {

using Flags = std::vector<bool>;

// The body as sweeps take graphs: without `grad`, of operators that have rules.
Graph swept(const Graph& body);
// `body` takes that name.
Attributes scan_of(ops::LoopForm form, std::string name, Graph body);

// Whether a loop takes a step for certain, whatever the sizes.
bool takes_a_step(const Graph& graph, const Node& scan);
// Which inputs and results of a step depend on what operands depend on, in any step. What a loop
// without steps gives for a carry is the operand: so it is unless a step is `certain`.
struct Activity {
  Flags inputs, results;
};
Activity activity(Graph& body, size_t carries, Flags inputs, bool certain);

// Names that sizes of the graph's only stage have.
DimensionNames symbols_of(const Graph& graph);
// Those that these inputs alone do not settle.
DimensionNames unsettled(const Graph& graph, std::span<const ValueId> inputs);
// Whether data decide a size in the first stage.
bool settles_by_data(const Graph& graph);
bool names_one(const Type& type, const DimensionNames& names);
// Gives every input of the only stage a name that no other has.
void name_inputs(Graph& graph);

// A step and its backward pass as two stages.
struct LoopStep {
  Graph graph;
  // Inputs of stage 1: cotangents by result; by input of stage 0, the sum of its gradient so far.
  std::vector<ValueId> cotangents, sums;
  std::vector<ValueId> gradients;  // by input of stage 0; no_value: structurally zero
  Flags added;                     // by input of stage 0: its gradient has more than one term
};
// `order` says which results have cotangents, in the order in which a sweep comes to them; `summed`
// which inputs' gradients are added to a sum.
LoopStep differentiate_step(const Graph& body, const Flags& active, std::span<const size_t> order,
                            const Flags& summed);

// By operand of the node, as `differentiate_loop` has them.
std::vector<LoopGradient> differentiate_scan(Graph& graph, GraphWorld& world, Node& node,
                                             const LoopCotangents& given);
std::vector<LoopGradient> differentiate_branch(GraphWorld& world, const Node& node,
                                               const LoopCotangents& given);

}  // namespace gradus::ir
