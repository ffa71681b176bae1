// What computing a value again costs, in one place.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace gradus::ir {

// How much computing a lowered node again costs for each byte that it reads or writes, in units of
// what a byte costs that is only moved; nullopt for what is never computed again:
//   views and copies, arithmetic, comparisons, and tensors made of sizes and numbers   1
//   sums and other reductions                                                          2
//   exp and its like, powers, activations, norms                                       4
//   matrix products and convolutions                                                   256
// Never: opaque calls, random operators, whatever may refuse its operands while it runs (indices,
// factorizations, division of integers), what data gives a size, sorting and scans, pooling.
std::optional<int64_t> recompute_cost(const Graph& graph, const Node& node);

// From this on, only where nothing cheaper suffices.
inline constexpr int64_t costly = 256;

// Whether the operator may give views, as `bind` says for known layouts.
bool may_be_view(const Operator* op);

}  // namespace gradus::ir
