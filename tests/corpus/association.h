// Which bits a program keeps when some of its nodes go behind a function.
#pragma once

#include <string_view>

#include "gradus/graph.h"

namespace gradus::corpus {

// Sums are what can differ: the function and its evals make in one place what the plain program's
// sweeps make among other contributions. They associate alike up to the last stage if in all stages
// before it
//
//   1. a floating operand of the function, or of an eval of it, is used nowhere else and returned
//      nowhere: all that is contributed to it comes from the function's nodes, so that the one
//      contribution of the eval is the whole sum, made in the engine's order, which is the sweep's;
//   2. each stage, the last one included, has at most one eval of the function. So cotangents reach
//      it once in a stage, at what the stage before left: what is summed at a value within it is
//      summed in one eval, and is multiplied by a slope as one sum. (There are more where something
//      outside that depends on a result of the function is not linear.)
//   3. where nodes hand one cotangent on to several operands, it is one value in the plain program
//      and several results of the eval. What is contributed to these is added up for each, then
//      together: the same if there are at most two contributions, or if each comes from a stage's
//      result, in the results' order.
//
// Contributions that arrive from outside come first in both: later made nodes lie before in a
// sweep, roots before nodes in the engine's discovery.
//
// `derived` is the program with the function of that name, `plain` the one without, with as many
// stages. Returns how many stages, from the first on, have the same bits.
size_t stages_alike(const ir::Graph& derived, std::string_view function, const ir::Graph& plain);

}  // namespace gradus::corpus
