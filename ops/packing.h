// Operands that several instructions would each rearrange.
#pragma once

#include <optional>

#include "ir/operator.h"

namespace gradus::ops {

// How an operand had better lie, where more than one instruction reads it.
struct Packing {
  size_t operand;
  Layout layout;  // of a copy: the same shape, without gaps
};

// Of a small product of our own that reads b across its rows: b by columns. Its result has the same
// bits. Nothing for all else.
std::optional<Packing> packing_of(const ir::Operator& op, const ir::Attributes& attributes,
                                  std::span<const Layout> in);

// Copies what lies as `from` to memory that lies as the packing. Args: the one, the other.
ir::Kernel bind_packing(const Layout& from, const Packing& packing);

}  // namespace gradus::ops
