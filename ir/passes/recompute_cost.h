// What computing a value again costs, in one place.
#pragma once

#include <cstdint>
#include <optional>

#include "gradus/graph.h"
#include "gradus/operator.h"

namespace gradus::ir {

// How much computing a lowered node again costs for each byte that it reads or writes, as its
// operator says (`again` in gradus/operator.h); nullopt for what is never computed again. That are
// also opaque calls, what data gives a size, and pointwise operators on integers, which may refuse
// to divide by a zero.
std::optional<int64_t> recompute_cost(const Graph& graph, const Node& node);

// From this on, only where nothing cheaper suffices.
inline constexpr int64_t costly = again::multiplies;

}  // namespace gradus::ir
