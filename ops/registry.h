// The table of operators, folded from the families' lists.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// All operators, by name.
std::span<const ir::Operator* const> all();
// Null if there is none of that name.
const ir::Operator* find(std::string_view name);
// By the key of its struct, as record<Op>() of ops/emit.h does; null if it is not there.
const ir::Operator* find_type(const void* key);
// What to write instead of a name that is no operator: "; did you mean 'exp'?", or nothing.
std::string advice(std::string_view name);

// The value of a constant; null of any other node.
const Tensor* constant_in(const ir::Node& node);

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

// Of an operator where data decides a size: whether a call with these operands lacks the attribute
// `count` that names it; what it is, if it is there; attributes with it.
bool lacks_count(const ir::Operator& op, const ir::Attributes& attributes,
                 std::span<const ir::OperandType> in);
std::optional<ir::Dim> count_in(const ir::Operator& op, const ir::Attributes& attributes);
ir::Attributes with_count(const ir::Operator& op, const ir::Attributes& attributes, ir::Dim count);
// For tensors that are there (null for others): with the count that they have, if one is lacking.
ir::Attributes counted(const ir::Operator& op, const ir::Attributes& attributes,
                       std::span<const Tensor* const> operands);

}  // namespace gradus::ops

#pragma GCC visibility pop
