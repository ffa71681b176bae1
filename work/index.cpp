#include "work/index.h"

namespace gradus::work {

std::string_view name_of(IndexAction action) {
  constexpr std::string_view names[] = {"read", "write", "add"};
  return names[static_cast<size_t>(action)];
}

DType Index::indexed_dtype() const { return sums ? accumulation_dtype(sides.dtype) : sides.dtype; }

IndexCheck index_check(const ir::Operator& op, IndexOperand of, const Sizes& shape) {
  Sizes joined = shape;
  join_dimensions(joined, std::array{&of.strides});
  if (numel(shape) == 1) of.strides = {0};
  return {&op, std::move(of), std::move(joined)};
}

bool stands_apart(const Sizes& shape, const Sizes& strides, size_t d) {
  const int64_t step = strides[d], whole = step * shape[d];
  int64_t within = 0;
  for (size_t o = 0; o < strides.size(); ++o) {
    if (o == d || shape[o] == 1) continue;
    if (step > 0 && strides[o] % whole == 0 && strides[o] > 0) continue;
    within += (shape[o] - 1) * strides[o];
  }
  return within < step;
}

Error index_error(const ir::Operator& op, const IndexOperand& o, int64_t value) {
  if (o.size == 0)
    return Error("{}: an index of {} picks from dimension {}, which has a size of 0", op.name,
                 value, o.dimension);
  return Error("{}: an index of {} is out of range; dimension {} takes {} to {}", op.name, value,
               o.dimension, o.wraps ? -o.size : 0, o.size - 1);
}

}  // namespace gradus::work
