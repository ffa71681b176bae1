// The table of operators, and the registration of operators at run time.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "gradus/graph.h"
#include "gradus/operator.h"

#pragma GCC visibility push(default)

// The table of operators.

namespace gradus::ops {

// All operators, in alphabetical order.
std::span<const ir::Operator* const> all();
// Returns the operator of that name, or null.
const ir::Operator* find(std::string_view name);
// Returns the operator with the key of a struct, like record<Op>() of gradus/rules.h, or null.
const ir::Operator* find_type(const void* key);
// Returns advice for an unknown name, to append to a message: "; did you mean 'exp'?".
std::string advice(std::string_view name);

// The tensor of a `constant` node. Null for other nodes.
const Tensor* constant_in(const ir::Node& node);

// Applies the type rule of a node's operator. Throws Error without a location. `results` is the
// number of results, if the node has no results. Size equalities that cannot be proved are appended
// to `equalities`, which may be null.
SmallVector<ir::Type, 2> infer(const ir::Graph& graph, const ir::Node& node,
                               std::vector<ir::DimEquality>* equalities,
                               size_t results = ir::any_results);
// The same for operands without a node. The message of an Error lists all operands with their
// types.
SmallVector<ir::Type, 2> infer(const ir::Operator& op, std::span<const ir::OperandType> in,
                               const ir::Attributes& attributes,
                               std::vector<ir::DimEquality>* equalities,
                               size_t results = ir::any_results);
// The same for a node of a composition. The message does not list the operands, which are not those
// of the program.
SmallVector<ir::Type, 2> infer_part(const ir::Operator& op, std::span<const ir::OperandType> in,
                                    const ir::Attributes& attributes,
                                    std::vector<ir::DimEquality>* equalities, size_t results);

// For operators whose result has a size that data determine; the attribute `count` states this
// size. `lacks_count` returns whether a call with these operands lacks the attribute, `count_in`
// returns the attribute, and `with_count` returns attributes with it.
bool lacks_count(const ir::Operator& op, const ir::Attributes& attributes,
                 std::span<const ir::OperandType> in);
std::optional<ir::Dim> count_in(const ir::Operator& op, const ir::Attributes& attributes);
ir::Attributes with_count(const ir::Operator& op, const ir::Attributes& attributes, ir::Dim count);
// Returns the attributes for existing operands (null: other operands). A missing `count` is
// computed from the operands.
ir::Attributes counted(const ir::Operator& op, const ir::Attributes& attributes,
                       std::span<const Tensor* const> operands);

// Registration of operators by a program or a plug-in.

// Adds an operator to the table, for the whole process. Programs, rules, the printer and variables
// then find it like Gradus' own operators. gradus/table.h describes the struct of an operator;
// register its `operator_record`. The record and the objects to which it points must never be
// destroyed. Registered names are never removed or changed. A pointwise operator that is registered
// runs in a separate loop, not in fused kernels. Thread-safe. Throws Error for a name that is in
// use or that program text cannot contain, and for an incomplete record.
void register_operator(const ir::Operator& op);

// Whether the operator was added by register_operator.
bool is_added(const ir::Operator* op);
// Gradus' own operators, in alphabetical order.
std::span<const ir::Operator* const> built_in();

}  // namespace gradus::ops

#pragma GCC visibility pop
