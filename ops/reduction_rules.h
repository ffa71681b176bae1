// What reductions share: their attributes, type rules and how they name their dimensions.
#pragma once

#include "gradus/attributes.h"
#include "gradus/batching.h"
#include "gradus/rules.h"
#include "work/reduce.h"

namespace gradus::ops {

// What an attribute names, as a list.
inline std::optional<Ints> as_list(const std::optional<Ints>& dims) { return dims; }
inline std::optional<Ints> as_list(const std::optional<int64_t>& dim) {
  return dim ? std::optional<Ints>(Ints{*dim}) : std::nullopt;
}
// The same the other way round, of as many as the attribute can name.
inline void name_dims(std::optional<Ints>& dim, const Ints& dims) { dim = dims; }
inline void name_dims(std::optional<int64_t>& dim, const Ints& dims) { dim = dims[0]; }
// The reduced dimensions, ascending: all of them where attribute `dim` is none or empty.
Ints reduced_dims(const std::optional<Ints>& dim, int rank);
Ints reduced_dims(const auto& a, int rank) requires requires { a.dim; }
{ return reduced_dims(as_list(a.dim), rank); }

// The result's sizes: reduced ones are 1 with keepdim, else dropped.
Dims reduced_shape(const Dims& shape, const Ints& dims, bool keepdim);
// Pushes the result's type. Throws Error for a dimension that is named twice.
void infer_reduction(ir::InferCall& call, const std::optional<Ints>& dim, bool keepdim,
                     DType result);
void infer_reduction(ir::InferCall& call, const auto& a, DType result) {
  infer_reduction(call, as_list(a.dim), a.keepdim, result);
}
// Binds result 0 as the reduction of operand 0 over `dims`, ascending.
void bind_reduction(BindCall& call, work::Reducer reducer, const Ints& dims);
// The batch rule of reductions: over all dimensions but the added one where none is named. An
// operand without dimensions is taken as a row of one element, and one of more dimensions than the
// attribute can name as a row.
struct BatchReduction {
  BatchedResults operator()(const BatchedCall& c, auto a) const {
    constexpr bool names_one = std::is_same_v<decltype(a.dim), std::optional<int64_t>>;
    Value x = c.operands[0];
    Ints dims = reduced_dims(a, c.own_rank(0));
    if (dims.empty() || (names_one && dims.size() > 1)) {
      x = reshape(x, {c.size, ir::numel(std::span<const Dim>(x.dims()).subspan(1))});
      dims = {0};
    }
    for (int64_t& d : dims) ++d;
    name_dims(a.dim, dims);
    Value y = c.world.emit(c.op, make_attributes(std::move(a)), {&x, 1})[0];
    return {reshape(y, c.with_batch(c.results[0].dims))};
  }
};
inline constexpr BatchReduction batch_reduction;

// Refuses a reduction of no elements where the sizes say so already; bind_reduction's callers
// refuse it where they are known only at run time.
void refuse_empty(const ir::InferCall& call, const Dims& shape, const Ints& dims);
void refuse_empty(const BindCall& call, const Layout& in, const Ints& dims);

// The product of the reduced sizes.
Dim reduced_count(const Dims& shape, const Ints& dims);
// total / n: a mean of n elements. Of no elements it is NaN, and so is 0 / 0; but what is derived
// from it has no elements either, and a sum of those is 0, which is not to be divided by 0.
Value over_count(const Value& total, const Dim& n);

// In f32 where x is f16 or bf16, so that steps in between lose and overflow nothing.
Value widened(const Value& x);

}  // namespace gradus::ops
