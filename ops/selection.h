// Results whose size depends on data: places of what is not zero, what a mask picks, the numbers
// below a number. The
// attribute `count` says how many there are: a name that nothing else settles is settled by the
// data, any other size is held against it.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct CountAttr {
  std::optional<Dim> count;
  static constexpr auto fields() { return std::tuple(field("count", &CountAttr::count)); }
};

// How many elements are not zero (NaN is not).
int64_t count_nonzero(const Tensor& x);

struct Nonzero {
  static constexpr std::string_view name = "nonzero",
                                    doc = "y[k, d] = the k-th place of x != 0 along dimension d";
  static constexpr auto no_batch_rule = "data decides how many results each call has";
  using Attr = CountAttr;
  static bool data_sized(std::span<const ir::OperandType>) { return true; }
  static int64_t count(std::span<const Tensor* const> x) { return count_nonzero(*x[0]); }
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
};

struct MaskedSelect {
  static constexpr std::string_view name = "masked_select",
                                    doc = "y[k] = x where the k-th place of mask is true";
  static constexpr std::array inputs{"x"sv, "mask"sv};
  using Attr = CountAttr;
  static bool data_sized(std::span<const ir::OperandType>) { return true; }
  static int64_t count(std::span<const Tensor* const> x);
  static void compose(ComposeCall&, const Attr&);
};

// The numbers below one that data gives: as many steps as that says.
struct Range {
  static constexpr std::string_view name = "range", doc = "y[i] = i, as many as n says";
  static constexpr std::array inputs{"n"sv};
  static constexpr bool zero_gradient = true;
  static constexpr auto no_batch_rule = "data decides how many results each call has";
  using Attr = CountAttr;
  static bool data_sized(std::span<const ir::OperandType>) { return true; }
  static int64_t count(std::span<const Tensor* const> n);
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
};
const Operator& range_operator();
Attributes range_attributes(Dim count);

// Of `index` and `index_put`: a bool mask among the indices, from operand `first` on, counts for as
// many dimensions as it has; it stands for the places where it is true.
bool has_mask(std::span<const ir::OperandType> operands, size_t first);
int64_t count_masked(std::span<const Tensor* const> operands, size_t first);
// The operands with each mask replaced by its places.
SmallVector<Value, 6> without_masks(ComposeCall& call, size_t first, const Dim& count);

using SelectionOperators = std::tuple<Nonzero, MaskedSelect, Range>;

}  // namespace gradus::ops
