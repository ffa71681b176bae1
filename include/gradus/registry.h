// The table of operators, and those that are added to it at run time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "gradus/graph.h"
#include "gradus/operator.h"

#pragma GCC visibility push(default)

// The table of operators, folded from the families' lists.

namespace gradus::ops {

// All operators, by name.
std::span<const ir::Operator* const> all();
// Null if there is none of that name.
const ir::Operator* find(std::string_view name);
// By the key of its struct, as record<Op>() of gradus/rules.h does; null if it is not there.
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

// Operators that are brought at run time, by an embedder or a plug-in.

// Makes an operator known by its name, for the whole process: from then on programs, rules, the
// printer and variables find it as they find those of the table. Write a struct as gradus/table.h
// says, and register `operator_record` of it; the record, and what it points to, live for good.
// Names are only ever added and never change their meaning. Thread-safe. A pointwise operator runs
// by its own loops: fused kernels leave it out.
// Throws Error for a name that is taken or that a program cannot write, and for a record that lacks
// what a run needs.
void register_operator(const ir::Operator& op);

// Whether it was registered so.
bool is_added(const ir::Operator* op);
// The table's own, by name: those that were there before anybody registered one.
std::span<const ir::Operator* const> built_in();

}  // namespace gradus::ops

#pragma GCC visibility pop
