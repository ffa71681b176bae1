// Operators that are brought at run time, by an embedder or a plug-in.
#pragma once

#include "ir/operator.h"

#pragma GCC visibility push(default)

namespace gradus::ops {

// Makes an operator known by its name, for the whole process: from then on programs, rules, the
// printer and variables find it as they find those of the table. Write a struct as ops/table.h
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
