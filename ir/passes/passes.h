// The passes. Each takes a verified graph and leaves a verified one; all are iterative and
// near-linear in the number of nodes. They throw Error, with the node's place, for programs that
// cannot be what is asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// A stage never has more nodes than this: derivatives of derivatives and calls of calls can grow
// beyond what any machine holds. What would is an Error.
inline constexpr size_t most_nodes = size_t{1} << 24;

// Given   call nodes, whose graphs may hold `grad`s and further calls
// Execute the `grad`s of every graph below are expanded within that graph, each graph once
// Result  called graphs without `grad`: what one computes does not depend on who calls it, since a
//         `grad` in it follows that graph's paths and not the caller's. `expand_grad` and
//         `decompose` begin with this.
void settle_calls(Graph& graph);

// Given   nodes that are compositions (gelu, logsumexp, call, …)
// Execute each is replaced by what it is composed of, recursively
// Result  only primitives are left; with `keep_differentiable`, also compositions with a derivative
//         rule of their own
void decompose(Graph& graph, bool keep_differentiable);

// Given   %g0, %g1 = grad(%y, %x0, %x1) nodes, nested to any depth
// Execute each, first to last, is replaced by the nodes of its reverse sweep
// Result  no `grad` is left, neither here nor in called graphs; a gradient without a path is a
// `full` of zeros
void expand_grad(Graph& graph);

// Removes nodes of the stages from `first_stage` on that no result needs, but those of functions,
// which may do something beside; of these only a handle that nobody uses.
void eliminate_dead_code(Graph& graph, size_t first_stage = 0);

// Within each stage from `first_stage` on, a node equal to an earlier one is replaced by it.
void eliminate_common_subexpressions(Graph& graph, size_t first_stage = 0);

// Nodes of small constants become constants, computed by the same kernels.
void fold_constants(Graph& graph);

// Renumbers the values so that only those that are used are left.
void compact(Graph& graph);

// The same program with every floating type, constant and dtype attribute made `dtype`.
Graph retype_floating(const Graph& graph, DType dtype);

struct DifferentiateOptions {
  int order = 1;  // stages 0 to `order` will be there
  // Stage-0 inputs to differentiate with respect to; absent: all floating ones.
  std::optional<std::vector<std::string>> wrt;
  bool cotangents = true;  // earlier cotangents are differentiated too
  bool total = false;      // a cotangent for every result of every earlier stage
};

// Given   a program with stages 0 .. m
// Execute stages m+1 .. order are appended, each the backward pass of the one before: inputs
//         ct<k>_<result>, results d<k>_<input>, `none` for structural zeros
// Result  a new program; existing stages are kept, with `grad`s and compositions without a rule
//         taken apart
Graph differentiate(const Graph& graph, const DifferentiateOptions& options);

// Called after each step of a pipeline with the step's name.
using DumpHook = std::function<void(std::string_view pass, const Graph& graph)>;

// What happens to a program between its text and its instructions; reads like a recipe.
Graph lower(Graph graph, const DumpHook& dump = {});
// The steps' names, in order.
std::vector<std::string_view> pipeline_steps();

}  // namespace gradus::ir

#pragma GCC visibility pop
