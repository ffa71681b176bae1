// The table of operators, folded from the families' lists.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace gradus::ops {

// All operators, by name.
std::span<const ir::Operator* const> all();
// Null if there is none of that name.
const ir::Operator* find(std::string_view name);
// What to write instead of a name that is no operator: "; did you mean 'exp'?", or nothing.
std::string advice(std::string_view name);

// Runs an operator's type rule for a node of a graph. Throws Error (without a place). `results` is
// how many results it has, where the node does not have them yet.
SmallVector<ir::Type, 2> infer(const ir::Graph& graph, const ir::Node& node,
                               std::vector<ir::DimEquality>* equalities,
                               size_t results = ir::any_results);
// The same for loose operands. An Error names all operands with their types.
SmallVector<ir::Type, 2> infer(const ir::Operator& op, std::span<const ir::OperandType> in,
                               const ir::Attributes& attributes,
                               std::vector<ir::DimEquality>* equalities,
                               size_t results = ir::any_results);
// The same for a part of a composition: its Error does not list the operands, which are not those
// that the user wrote.
SmallVector<ir::Type, 2> infer_part(const ir::Operator& op, std::span<const ir::OperandType> in,
                                    const ir::Attributes& attributes,
                                    std::vector<ir::DimEquality>* equalities, size_t results);

}  // namespace gradus::ops
