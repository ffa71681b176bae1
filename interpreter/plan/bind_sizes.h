// Sizes of named dimensions from the tensors of a stage's inputs.
#pragma once

#include "interpreter/plan.h"

namespace gradus::interpreter {

// How many ranks the groups have that the program's sizes are named after, in the order of its
// ranges, then those of the graphs that it runs; 1 without a context. Throws Error for a group that
// is not bound.
std::vector<int64_t> rank_counts(const Code& code, Context* context);

// Checks every input of the stage against its declared type and `place`, and extends `sizes` (by
// the index of Code::dimensions()), also by those that `ranks` says. Throws Error that says which
// stage and input, what was expected and what came.
void bind_sizes(const Code& code, size_t stage, std::span<const Tensor> inputs, Device place,
                std::span<const int64_t> ranks, DimensionSizes& sizes);

// Sizes by name, for Dim::evaluate.
class SizesByName final : public ir::DimEnvironment {
 public:
  SizesByName(const Code& code, const DimensionSizes& sizes) : code_(code), sizes_(sizes) {}
  std::optional<int64_t> find(std::string_view symbol) const override;

 private:
  const Code& code_;
  const DimensionSizes& sizes_;
};

Sizes sizes_of(const ir::Type& type, const ir::DimEnvironment& known);
// A tensor of that type, without memory: plans ask for layouts alone. Throws Error for too many
// elements.
Tensor stand_in(const ir::Type& type, const ir::DimEnvironment& known, Device device);

}  // namespace gradus::interpreter
