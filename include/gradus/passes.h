// Passes over graphs: derivatives, directions, what is computed again, and lowering.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/graph.h"

#pragma GCC visibility push(default)

// The passes. Each takes a verified graph and leaves a verified one; all are iterative and
// near-linear in the number of nodes. They throw Error, with the node's place, for programs that
// cannot be what is asked for.

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

// Given   loops, in loops or not
// Execute each whose length is a number is replaced by its steps
// Result  the same bits; branches, and loops of other lengths, are left
void unroll(Graph& graph);

// Removes nodes of the stages from `first_stage` on that no result needs, but those of functions,
// which may do something beside; of these only a handle that nobody uses.
void eliminate_dead_code(Graph& graph, size_t first_stage = 0);

// Within each stage from `first_stage` on, a node equal to an earlier one is replaced by it.
void eliminate_common_subexpressions(Graph& graph, size_t first_stage = 0);

// Nodes that give what they are given (a reshape to the shape that is there) are taken out; whoever
// read their result reads their operand.
void eliminate_identities(Graph& graph);

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

// Derivatives along directions, and whole matrices of them. Each takes a program of one stage and
// gives a program of one stage, which computes what the given one does and the derivatives beside:
// it can be run, printed and differentiated like any other.
//
// All throw Error for a program of several stages, for operators without a derivative, and for
// names that are taken. A function's forward derivative is its second one, run at a cotangent of
// zeros, so that one that has fewer is refused; whatever wants a batch refuses functions.

struct DirectionOptions {
  // Inputs to differentiate with respect to; absent: all floating ones.
  std::optional<std::vector<std::string>> wrt;
};

// Given   y.. = f(x..)
// Result  further inputs t_<x>, a tangent of each x; further results t_<y> = the sum over x of
//         dy/dx t_<x>, `none` where y depends on no x
// Forward mode: the work is that of f and of one linear program beside it. What is emitted is the
// transpose of the backward pass, so that the operators' rules are those of `differentiate`.
Graph jvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further inputs t_<x>; further results hvp_<x>, the Hessian of y times all t_<x>, by
//         forward mode over the gradient
Graph hvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results laplacian_<x> = the sum over i of d2y/dx_i2, 0-d
Graph laplacian(const Graph& graph, const DirectionOptions& options = {});

// Given   y.. = f(x..)
// Result  further results jacobian_<y>_<x>, of y's sizes, then x's. All rows come out of one
//         backward pass with a batch of cotangents, or all columns out of one forward pass with a
//         batch of tangents, where there are fewer of those.
Graph jacobian(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results hessian_<x>_<w> = d2y/dx dw, of x's sizes, then w's
Graph hessian(const Graph& graph, const DirectionOptions& options = {});

// Given   a program whose last stage is the backward pass of the one before
// Result  that stage takes cotangents with a dimension `size` in front, for each of which it gives
//         the gradients: those that depend on a cotangent have that dimension too
// Throws Error where an operator on the way takes no batch. `size` is a number or a name: there is
// one call for the whole batch.
Graph batch_cotangents(const Graph& graph, const Dim& size);

// Given   a program of one stage
// Result  the program for many of these inputs at once: they have a dimension `size` in front, as
//         all results have
// Throws Error as batch_cotangents does.
Graph batch(const Graph& graph, const std::vector<std::string>& inputs, const Dim& size);

// Parts of a staged program.

// Given   a program with stages 0 .. m
// Result  a program of one stage: the inputs of all, and the results of the stages from `from` on.
//         Inputs that `absent` names are zeros
Graph join_stages(const Graph& graph, size_t from, const std::vector<std::string>& absent = {});

// Given   a program of one stage
// Result  the same with these results alone, in this order, and only what they need
Graph select_results(const Graph& graph, const std::vector<std::string>& names);

// Given   a program of one stage
// Result  the same with these names of its inputs and results, in order; other values have none
Graph rename(const Graph& graph, const std::vector<std::string>& inputs,
             const std::vector<std::string>& results);

// Weights that stand in a program as constants, taken out of it.

// Given   a verified program, as a trace is, with weights as constants
// Execute each constant of at least so many elements becomes an input of stage 0, behind those that
//         are there, named as the constant's value is, or w0, w1, …; equal tensors become one input
// Result  what the inputs have to be given, by name: for write_safetensors, and `gradus run
//         --weights`. Later stages stay as they are: no gradient of the new inputs is among them
std::vector<std::pair<std::string, Tensor>> lift_constants(Graph& graph, int64_t elements = 16);

// Values computed again in a later stage instead of being held for it.

// How much a program may hold between its stages, for inputs of these sizes.
struct MemoryBudget {
  int64_t bytes = 0;
  // Of all dimensions that inputs have, by name.
  std::map<std::string, int64_t, std::less<>> sizes;
};

// What is held after a stage: memory that the stages so far have made and later ones read. Inputs
// and what stages returned are not counted, which the caller has, nor are the program's constants,
// nor what a function's handle keeps. A view is its base's memory; a place is whole units of 64
// bytes. By stage; throws Error for a size that is missing or that data decides.
std::vector<int64_t> held_bytes(const Graph& graph, const MemoryBudget& sizes);

// Given   a lowered program
// Execute after each stage whose held values are more than the budget, values are chosen that later
//         stages compute again, right before they are read, of others that are held or the
//         caller's: those that cost least to compute, by `recompute_cost`; products and
//         convolutions only where nothing cheaper suffices
// Result  the same results, bit for bit; never more is held than the budget allows. Throws Error,
//         with how many bytes would do, where that cannot be
//
// The choice after one stage is a minimal cut, as in AOTAutograd's partitioner (Horace He, 2022): a
// value that a later stage needs is held, at the price of its bytes, or computed again, at the
// price of that and of having its operands. What a byte is worth is raised until the budget is kept
// (Lagrange's relaxation); of equal ones, what was computed first is computed again first, which a
// backward stage needs last.
void rematerialize(Graph& graph, const MemoryBudget& budget);

}  // namespace gradus::ir

#pragma GCC visibility pop
