// Reductions over chosen dimensions: sums, products, extrema, all and any.
// `dim = none` (or an empty list) means all dimensions. Order of combining: work/reduce.h.
#pragma once

#include "ops/reduction_rules.h"
#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

struct DimsAttr {
  std::optional<Ints> dim;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(field("dim", &DimsAttr::dim), field("keepdim", &DimsAttr::keepdim));
  }
};

struct Sum {  // y = sum of x over dim
  static constexpr auto name = "sum"sv,
                        doc = "y = sum of x over dim; integers and bool add up as i64"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::sum;
  static constexpr auto recompute_cost = ir::again::adds_up;
  using Attr = DimsAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // dx = dy, expanded
  static BatchedResults batch(const BatchedCall&);
};

struct Mean {  // y = sum of x over dim / how many they are
  static constexpr auto name = "mean"sv, doc = "y = mean of x over dim; of nothing, NaN"sv;
  static constexpr std::array inputs{"x"sv};
  using Attr = DimsAttr;
  static void infer(InferCall&);
  static void compose(ComposeCall&);
};

struct OneDimAttr {
  std::optional<int64_t> dim;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(field("dim", &OneDimAttr::dim), field("keepdim", &OneDimAttr::keepdim));
  }
};

struct Prod {  // y = product of x over dim
  static constexpr auto name = "prod"sv,
                        doc = "y = product of x over dim; integers and bool multiply as i64"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::prod;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = OneDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // dx[i] = dy * (product before i) * (product after i)
};

struct ExtremumAttr {
  std::optional<Ints> dim;
  bool keepdim = false;
  // Whether a reduction of no elements gives the identity, -inf or inf (floating x), as a step in
  // a composition may want, instead of being refused.
  bool allow_empty = false;
  static constexpr auto fields() {
    return std::tuple(field("dim", &ExtremumAttr::dim), field("keepdim", &ExtremumAttr::keepdim),
                      field("allow_empty", &ExtremumAttr::allow_empty));
  }
};

struct Amax {  // y = greatest of x over dim; NaN if there is one
  static constexpr auto name = "amax"sv,
                        doc =
                            "y = greatest x over dim, NaN if there is one; equal ones share the "
                            "gradient evenly"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::max;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = ExtremumAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // dx = dy * [x = y] / how many equal y
};

struct Amin {  // y = least of x over dim; NaN if there is one
  static constexpr auto name = "amin"sv,
                        doc =
                            "y = least x over dim, NaN if there is one; equal ones share the "
                            "gradient evenly"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::min;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = ExtremumAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct MaxAll {  // y = greatest of all x
  static constexpr auto name = "max_all"sv, doc = "y = amax(x), over all dimensions"sv;
  static constexpr std::array inputs{"x"sv};
  static void compose(ComposeCall&);
};

struct MinAll {  // y = least of all x
  static constexpr auto name = "min_all"sv, doc = "y = amin(x), over all dimensions"sv;
  static constexpr std::array inputs{"x"sv};
  static void compose(ComposeCall&);
};

struct All {  // y = whether every x is not zero
  static constexpr auto name = "all"sv, doc = "y = whether no x is zero"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::all;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = OneDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
};

struct Any {  // y = whether some x is not zero
  static constexpr auto name = "any"sv, doc = "y = whether an x is not zero (NaN is not)"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto reducer = work::Reducer::any;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = OneDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
};

// What a node of one of these operators reduces, once its type rule has passed.
struct ReductionCall {
  work::Reducer reducer;
  Ints dims;  // ascending, not negative
  bool keepdim;
};
// Nothing for other operators. `rank` is the operand's.
std::optional<ReductionCall> reduction_call(const ir::Operator& op,
                                            const ir::Attributes& attributes, int rank);

using ReductionOperators = std::tuple<Sum, Mean, Prod, Amax, Amin, MaxAll, MinAll, All, Any>;

}  // namespace gradus::ops
