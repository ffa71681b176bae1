// Operators that only move elements, by where the elements come from: what a kernel reads where
// it lies, instead of a copy.
#pragma once

#include <optional>
#include <vector>

#include "gradus/operator.h"
#include "work/index.h"

namespace gradus::ops {

// A result made of parts: each comes from an operand, or is all one number; or picked from one
// operand by an index.
struct Sources {
  struct Source {
    std::optional<uint32_t> operand;  // none: `fill` for all elements
    Sizes first, sizes;               // the part
    Sizes strides;                    // of the operand, by the result's dimensions
  };
  struct Index {
    Sizes strides;             // of the index tensor, by the result's dimensions
    int64_t step = 0;          // elements of the operand from one index to the next
    work::IndexOperand check;  // what the instruction holds indices to
    Sizes shape;               // of the index tensor
  };
  static constexpr uint32_t index_operand = 1;
  std::vector<Source> sources;  // none without elements
  ir::Number fill = ir::Number::of(int64_t{0});
  std::optional<Index> index;
};

// A call of an operator's `edge`: operands and result of known layouts in, sources out.
struct EdgeCall {
  const ir::Attributes& attributes;
  std::span<const std::optional<Layout>> in;  // none of an absent operand
  const Layout& out;                          // with elements
  const ir::DimEnvironment& sizes;
  Sources found;
};

// As gradus/dimension.h asks of every kind of call; found by its argument.
inline int rank_of(const EdgeCall& c, size_t i) { return c.in[i] ? c.in[i]->rank() : 0; }

}  // namespace gradus::ops
