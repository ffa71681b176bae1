// Reductions over chosen dimensions: sums, products, extrema, all and any.
// `dim = none` (or an empty list) means all dimensions. Order of combining: work/reduce.h.
#pragma once

#include "gradus/table.h"
#include "ops/reduction_rules.h"

namespace gradus::ops {

using namespace std::literals;

struct DimsAttr {
  std::optional<Ints> dim;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &DimsAttr::dim), field("keepdim", &DimsAttr::keepdim));
  }
};

struct OneDimAttr {
  std::optional<int64_t> dim;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &OneDimAttr::dim), field("keepdim", &OneDimAttr::keepdim));
  }
};

// What a reducer does, over the dimensions that attributes of type A name.
template <work::Reducer by, class A>
struct ReducedBy {
  static constexpr auto reducer = by;
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto batch = batch_reduction;
  using Attr = A;
  static void bind(BindCall& call, const Attr& a) {
    bind_reduction(call, by, reduced_dims(a, call.in[0].rank()));
  }
};

struct Sum : ReducedBy<work::Reducer::sum, DimsAttr> {  // y = sum of x over dim
  static constexpr auto name = "sum"sv,
                        doc = "y = sum of x over dim; integers and bool add up as i64"sv;
  static constexpr auto linear = ir::Linear::jointly;
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = dy, expanded
};

struct Mean {  // y = sum of x over dim / how many they are
  static constexpr auto name = "mean"sv, doc = "y = mean of x over dim; of nothing, NaN"sv;
  using Attr = DimsAttr;
  static void infer(InferCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
};

struct Prod : ReducedBy<work::Reducer::prod, OneDimAttr> {  // y = product of x over dim
  static constexpr auto name = "prod"sv,
                        doc = "y = product of x over dim; integers and bool multiply as i64"sv;
  static void infer(InferCall&, const Attr&);
  // dx[i] = dy * (product before i) * (product after i)
  static Value dx(VjpCall&, const Attr&);
};

struct ExtremumAttr {
  std::optional<Ints> dim;
  bool keepdim = false;
  // Whether a reduction of no elements gives the identity, -inf or inf (floating x), as a step in
  // a composition may want, instead of being refused.
  bool allow_empty = false;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &ExtremumAttr::dim),
                      field("keepdim", &ExtremumAttr::keepdim),
                      field("allow_empty", &ExtremumAttr::allow_empty));
  }
};

// What amax and amin share; NaN if there is one.
struct AnyExtremum {
  using Attr = ExtremumAttr;
  static void infer(InferCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = dy * [x = y] / how many equal y
};
template <work::Reducer by>
struct Extremum : AnyExtremum, ReducedBy<by, ExtremumAttr> {
  using AnyExtremum::Attr;
  static void bind(BindCall& call, const Attr& a) {
    if (!a.allow_empty) refuse_empty(call, call.in[0], reduced_dims(a, call.in[0].rank()));
    ReducedBy<by, Attr>::bind(call, a);
  }
};

struct Amax : Extremum<work::Reducer::max> {
  static constexpr auto name = "amax"sv;
  static constexpr auto doc =
      "y = greatest x over dim, NaN if there is one; equal ones share the gradient evenly"sv;
};

struct Amin : Extremum<work::Reducer::min> {
  static constexpr auto name = "amin"sv;
  static constexpr auto doc =
      "y = least x over dim, NaN if there is one; equal ones share the gradient evenly"sv;
};

struct MaxAll {  // y = greatest of all x
  static constexpr auto name = "max_all"sv, doc = "y = amax(x), over all dimensions"sv;
  static void compose(ComposeCall&);
};

struct MinAll {  // y = least of all x
  static constexpr auto name = "min_all"sv, doc = "y = amin(x), over all dimensions"sv;
  static void compose(ComposeCall&);
};

// What all and any share.
template <work::Reducer by>
struct Truth : ReducedBy<by, OneDimAttr> {
  static void infer(InferCall& call, const OneDimAttr& a) {
    infer_reduction(call, a, DType::boolean);
  }
};

struct All : Truth<work::Reducer::all> {
  static constexpr auto name = "all"sv, doc = "y = whether no x is zero"sv;
};

struct Any : Truth<work::Reducer::any> {
  static constexpr auto name = "any"sv, doc = "y = whether an x is not zero (NaN is not)"sv;
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
