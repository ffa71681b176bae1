// Loops in passes: their derivatives, batches of them, and what of them nobody reads.
//
// A step of a loop is a graph. Its backward pass is a second stage of that graph, as of any other;
// what that reads of the first is kept: the loop stacks it, and the backward loop, which takes the
// steps the other way round, reads it slice by slice. So the derivative of a loop is a loop. That
// of a branch is a branch, whose graphs compute again what they read. "Loop" stands for both below.
#pragma once

#include "gradus/batching.h"
#include "ir/passes/graph_world.h"

namespace gradus::ir {

// Given   a loop of `graph`, and by operand whether it depends on something through differentiable
//         rules
// Result  the same by result: the least fixed point over the carries
std::vector<bool> dependent_results(const Graph& graph, const Node& loop,
                                    std::span<const bool> operands);

// What a sweep has when it comes to a loop.
struct LoopCotangents {
  std::span<const bool> wanted;           // by operand: its gradient is
  std::span<const ops::Value> results;    // by result: its cotangent; undefined where there is none
  std::span<const ops::Value> gradients;  // by operand: what later nodes give it, if anything
};

// Given   a loop of `graph`
// Execute the loop stacks what its backward pass reads, as further results; the backward loop is
//         emitted into `world`
// Result  by operand its gradient, undefined where it is structurally zero. It may be the sum with
//         what later nodes give the operand, which the backward loop carries on: terms are added in
//         the order in which a sweep over the unrolled loop would
struct LoopGradient {
  ops::Value value;
  bool is_sum = false;
};
std::vector<LoopGradient> differentiate_loop(Graph& graph, GraphWorld& world, Node& loop,
                                             const LoopCotangents& given);

// The loop for a whole batch: every carry has the dimension then. Or the call of a graph that has a
// derivative of its own: every result has the dimension.
SmallVector<ops::Value, 2> batch_graphs(const Node& node, const ops::BatchedCall& call);

// Takes out results that `used` does not say, carries that none of the others needs, and operands
// that no step reads.
void prune_loop(const Graph& graph, Node& loop, const std::vector<bool>& used);

}  // namespace gradus::ir
