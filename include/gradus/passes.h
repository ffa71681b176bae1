// Passes over graphs: derivatives, directional derivatives, batches, lowering, and
// rematerialization.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/graph.h"

#pragma GCC visibility push(default)

// A pass takes a verified graph and gives a verified graph. Passes do not recurse, and their time
// is nearly linear in the number of nodes. A pass throws Error, with the node's location, for a
// program to which it cannot be applied.

namespace gradus::ir {

// The largest number of nodes of a stage. Repeated derivatives and nested calls can grow
// exponentially. A pass that would exceed the limit throws Error.
inline constexpr size_t most_nodes = size_t{1} << 24;

// Given   call nodes, whose graphs may contain `grad`s and calls
// Execute the `grad`s of every called graph are expanded within that graph, once for each graph
// Result  no called graph contains `grad`. A `grad` in a called graph follows the paths of that
//         graph, not those of the caller. Its result does not depend on the caller. `expand_grad`
//         and `decompose` begin with this pass.
void settle_calls(Graph& graph);

// Given   nodes that are compositions (gelu, logsumexp, call, …)
// Execute each is replaced by the nodes of its composition, recursively
// Result  only primitives; with `keep_differentiable`, also compositions with a derivative
//         rule
void decompose(Graph& graph, bool keep_differentiable);

// Given   %g0, %g1 = grad(%y, %x0, %x1) nodes, nested to any depth
// Execute each, first to last, is replaced by the nodes of its reverse sweep
// Result  no `grad`, neither here nor in called graphs; a gradient without a path is a `full` of
//         zeros
void expand_grad(Graph& graph);

// Given   loops, nested or not
// Execute each loop whose length is a number is replaced by its steps
// Result  bit-identical results; branches, and loops of other lengths, remain
void unroll(Graph& graph);

// Removes nodes from the stages from `first_stage` on that no result needs. Calls of opaque
// functions remain, because they may have side effects; only their unused handles are removed.
void eliminate_dead_code(Graph& graph, size_t first_stage = 0);

// Replaces each node that equals an earlier node of its stage by that node, in the stages from
// `first_stage` on.
void eliminate_common_subexpressions(Graph& graph, size_t first_stage = 0);

// Removes nodes whose result equals their operand, such as a reshape to the same shape.
void eliminate_identities(Graph& graph);

// Whether `fold_constants` folds what reads the result of an operator without operands, such as
// `arange`.
enum class Created : uint8_t { stay, fold };

// Replaces nodes that read only constants, and have at most 1024 elements, by constants. The
// kernels of a run compute the values. With Created::fold, results of at most 1024 elements of
// operators without operands count as constants, too, if the operators may be recomputed and the
// elements are not all the same. The operators themselves stay.
void fold_constants(Graph& graph, Created created = Created::fold);

// Removes values that are not used, and renumbers the others.
void compact(Graph& graph);

// Returns the program with every floating type, constant and dtype attribute changed to `dtype`.
Graph retype_floating(const Graph& graph, DType dtype);

// Options of `differentiate`.
struct DifferentiateOptions {
  int order = 1;  // the last stage of the result
  // Inputs of stage 0 to differentiate with respect to. nullopt: all floating inputs.
  std::optional<std::vector<std::string>> wrt;
  bool cotangents = true;  // also with respect to the cotangents of earlier stages
  bool total = false;      // a cotangent for every result of every earlier stage
};

// Given   a program with stages 0 .. m
// Execute stages m+1 .. order are appended. Each is the backward pass of the previous stage: inputs
//         ct<k>_<result>, results d<k>_<input>, `none` for structural zeros
// Result  a new program. Existing stages remain, with `grad`s and compositions without a derivative
//         rule expanded
Graph differentiate(const Graph& graph, const DifferentiateOptions& options);

// Called after each step of a pipeline, with the name of the step.
using DumpHook = std::function<void(std::string_view pass, const Graph& graph)>;

// Lowers a program: runs the sequence of passes before compilation.
Graph lower(Graph graph, const DumpHook& dump = {});
// The names of the steps of `lower`, in order.
std::vector<std::string_view> pipeline_steps();

// Directional derivatives, and Jacobian and Hessian matrices. Each pass takes a program of one
// stage. Its result is a program of one stage, which computes the results of the given program and
// the derivatives.
//
// All throw Error for a program of several stages, for operators without a derivative, and for
// names that are in use. The forward derivative of an opaque function is its second derivative, at
// a cotangent of zeros, so a function without a second derivative is an error. Passes that batch
// derivatives reject opaque functions.

// The inputs of a program of one point that differ between points, and the number of points: a
// number, or a name that no size of the program has.
struct Points {
  std::vector<std::string> inputs;
  Dim size;
  // Which dimension values within the program have in front, that of the directions or that of the
  // points. Unset: the directions, if most values of a point have few elements, so that rows are
  // long. Results have the same bits.
  std::optional<bool> directions_first = {};
};

// Options of the passes below.
struct DirectionOptions {
  // Inputs to differentiate with respect to. nullopt: all floating inputs.
  std::optional<std::vector<std::string>> wrt;
  // The result is the program for many points: these inputs, their tangents and all results have an
  // additional first dimension. This is `batch` of the pass' result for one point, with the same
  // bits.
  std::optional<Points> points = {};
};

// Given   y.. = f(x..)
// Result  further inputs t_<x>, a tangent of each x; further results t_<y> = the sum over x of
//         dy/dx t_<x>, `none` if y depends on no x
//
// Forward mode: the cost is that of f and of one linear program. The nodes are the transpose of the
// backward pass, so the derivative rules are those of `differentiate`.
Graph jvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further inputs t_<x>; further results hvp_<x>, the Hessian of y times all t_<x>, by
//         forward mode over the gradient
Graph hvp(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results laplacian_<x> = the sum over i of d2y/dx_i2, 0-d
//
// One forward pass (the forward Laplacian) carries the first derivatives along all directions, and
// the sum of the second derivatives, which takes one direction.
Graph laplacian(const Graph& graph, const DirectionOptions& options = {});

// Given   y.. = f(x..)
// Result  further results jacobian_<y>_<x>, with the sizes of y, then the sizes of x. One backward
//         pass with a batch of cotangents computes all rows, or one forward pass with a batch of
//         tangents all columns, if there are fewer columns.
Graph jacobian(const Graph& graph, const DirectionOptions& options = {});

// Given   y = f(x..), one 0-d floating result
// Result  further results hessian_<x>_<w> = d2y/dx dw, with the sizes of x, then the sizes of w
Graph hessian(const Graph& graph, const DirectionOptions& options = {});

// Given   a program whose last stage is the backward pass of the previous stage
// Result  the last stage takes cotangents with an additional first dimension `size`, and returns
//         the gradients for each: gradients that depend on a cotangent have that dimension, too
//
// Throws Error if an operator has no batch rule. `size` is a number or a name. The batch is one
// call of each operator.
Graph batch_cotangents(const Graph& graph, const Dim& size);

// Given   a program of one stage
// Result  the program for a batch of `inputs`: these inputs and all results have an additional
//         first dimension `size`
//
// Throws Error as batch_cotangents does, and for a name that is no input.
Graph batch(const Graph& graph, const std::vector<std::string>& inputs, const Dim& size);

// Passes that select parts of a staged program.

// Given   a program with stages 0 .. m
// Result  a program of one stage, with the inputs of all stages and the results of the stages from
//         `from` on. Inputs in `absent` are replaced by zeros
Graph join_stages(const Graph& graph, size_t from, const std::vector<std::string>& absent = {});

// Given   a program of one stage
// Result  the program with only these results, in this order, and the nodes that they need
Graph select_results(const Graph& graph, const std::vector<std::string>& names);

// Given   a program of one stage
// Result  the program with these names for its inputs and results, in order; other values lose
//         their names
Graph rename(const Graph& graph, const std::vector<std::string>& inputs,
             const std::vector<std::string>& results);

// Given   a graph that was imported from a model with modules (Source::modules)
// Execute successive nodes of one module become the call of a graph, which has the module's name
//         and calls the graphs of the modules within. Single nodes stay, as do nodes with sizes
//         that the inputs of the graph would not determine
void outline_modules(Graph& graph);

// Weights that a program contains as constants.

// Given   a verified program, such as a trace, with weights as constants
// Execute each constant of at least `elements` elements becomes an input of stage 0, after the
//         existing inputs. Its name is that of the constant's value, or w0, w1, …. Equal tensors
//         become one input
// Result  the values of the new inputs by name, for write_safetensors and `gradus run --weights`.
//         Later stages do not change: they contain no gradients of the new inputs
std::vector<std::pair<std::string, Tensor>> lift_constants(Graph& graph, int64_t elements = 16);

// Rematerialization: later stages recompute values instead of holding them.

// The limit on the bytes that a program holds between stages, for inputs of given sizes.
struct MemoryBudget {
  int64_t bytes = 0;
  // The sizes of all dimensions of inputs, by name.
  std::map<std::string, int64_t, std::less<>> sizes;
};

// Returns the bytes that are held after each stage: memory that stages up to then made and that
// later stages read. Inputs, returned results and constants of the program are not counted, and
// neither is memory that a function's handle keeps. A view counts as the memory of its base. Sizes
// are rounded up to multiples of 64 bytes. Throws Error if a size is missing or if data determine
// it.
std::vector<int64_t> held_bytes(const Graph& graph, const MemoryBudget& sizes);

// Given   a lowered program
// Execute if the values held after a stage exceed the budget, later stages recompute some of them,
//         immediately before they are read, from held values, inputs and results. The values that
//         cost the least to compute, by `recompute_cost`, are chosen. Products and convolutions are
//         recomputed only if nothing cheaper suffices
// Result  bit-identical results; held memory never exceeds the budget. Throws Error, with a budget
//         that can be kept, if this one cannot
//
// After each stage, the choice is a minimal cut, as in the partitioner of AOTAutograd (Horace He,
// 2022). A value that a later stage needs is either held, at the price of its bytes, or recomputed,
// at the price of the computation and of its operands. The price of a byte is raised until the
// budget is kept (Lagrangian relaxation). Among equal values, the value that was computed first is
// recomputed first, because a backward stage reads it last.
void rematerialize(Graph& graph, const MemoryBudget& budget);

}  // namespace gradus::ir

#pragma GCC visibility pop
