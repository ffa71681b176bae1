// What holds for every graph that anything but the parser and the passes sees.
#pragma once

#include <string>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// The invariants. Messages end in the number of the one that does not hold: "[V4]".
//
//   V1   There is at least one stage.
//   V2   Every value that is named somewhere is in the graph's table.
//   V3   A value is defined once: as an input or as a node's result.
//   V4   It is used only after its definition: in the same stage or in a later one.
//   V5   The table says in which stage it is defined.
//   V6   A node's operator is one of the table, and its attributes are there.
//   V7   A node has the operands its operator takes; only optional ones are `none`.
//   V8   A handle is no input, no result, and no operand but the last one of `eval`.
//   V9   The operator's type rule accepts the node; it gives as many results as the node has, of
//        the types that the graph's table says. (Among others: numbers stand only where the rule
//        allows them, and `grad` differentiates a 0-d floating value, or one with a cotangent of
//        its type, with respect to floating values.)
//   V10  An input has a name, which no other input of the graph has. A result has one, which no
//        other result of the stage has, `none` included.
//   V11  Sizes are never negative, names of dimensions can be written in a program, and the number
//        of elements can be counted.
//   V12  Names of dimensions that inputs, attributes and operands use are settled by inputs of the
//        same stage or of an earlier one, or by the `count` of an earlier node.
//   V13  Inputs that lie on a device lie on the same one.
//   V14  A `call` knows its graph, which has one stage and does not call itself, not even through
//        others, and is valid itself. It has no size that data decides.

// Throws Error, with the node's place where the graph has a source, for the first invariant that
// does not hold. Any graph can be given, however broken, as long as its pointers can be followed.
// Near-linear in the number of nodes; does not recurse.
void verify(const Graph& graph);

// The same without V9 and without the graphs that are called, for who has just made the types by
// the type rules and has verified those graphs.
void verify_but_types(const Graph& graph);

// Why a program cannot have an input of this type: "would be a handle…"; empty if it can (V8, V11,
// V13).
std::string why_no_input(const Type& type);

// Why an operator cannot have these operands, by their number (V7); empty if it can.
std::string why_wrong_operands(const Operator& op, std::span<const Operand> operands);

// Calls may be nested this deep.
inline constexpr size_t deepest_call = 100;

}  // namespace gradus::ir

#pragma GCC visibility pop
