// Which dimension names a stage's inputs settle.
#pragma once

#include <optional>

#include "ir/text/cursor.h"

namespace gradus::ir {

// Why range i of the graph cannot be (V15); empty if it can. Verifier and parser ask.
std::string why_wrong_range(const Graph& graph, size_t i);
// Why a condition of sizes cannot be (V15).
std::string why_wrong_condition(const SizeCondition& condition);

// A size of an input that cannot be found from the inputs' shapes.
struct UnsettledName {
  size_t input;      // index into the stage's inputs
  std::string name;  // of the dimension
  Dim size;          // where it stands
};

// Adds to `known` the names whose sizes follow from inputs of these types: from a size that is a
// bare name, and from one that is coefficient * name + (what is known by then). Returns a name of
// these types that does not follow, if there is one. Near-linear in the number of sizes.
std::optional<UnsettledName> settle_names(std::span<const Type* const> inputs,
                                          DimensionNames& known);

}  // namespace gradus::ir
