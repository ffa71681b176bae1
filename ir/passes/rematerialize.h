// Values computed again in a later stage instead of being held for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

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
