// Where extrema are: the greatest (least) element along a dimension, and its index. The first NaN
// wins, else the first of equal ones.
#pragma once

#include "ops/reduction.h"

namespace gradus::ops {

struct AlongDimAttr {
  int64_t dim = 0;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(required_dimension("dim", &AlongDimAttr::dim),
                      field("keepdim", &AlongDimAttr::keepdim));
  }
};

// What max_dim and min_dim share.
struct AnyExtremumAlong {
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto batch = batch_named_dimensions;
  using Attr = AlongDimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&, bool greatest);
  static Value dx(VjpCall&, const Attr&);  // dx = dvalues at indices, else 0
};
template <bool greatest>
struct ExtremumAlong : AnyExtremumAlong {
  static void bind(BindCall& call, const Attr& a) { AnyExtremumAlong::bind(call, a, greatest); }
};

struct MaxDim : ExtremumAlong<true> {
  static constexpr auto name = "max_dim"sv;
  static constexpr auto doc =
      "values = the greatest x along dim, indices = the first place it is at"sv;
};

struct MinDim : ExtremumAlong<false> {
  static constexpr auto name = "min_dim"sv;
  static constexpr auto doc =
      "values = the least x along dim, indices = the first place it is at"sv;
};

// What argmax and argmin share: the place along dim, or in all of x, row-major.
struct AnyPlace {
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto batch = batch_reduction;
  using Attr = OneDimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&, bool greatest);
};
template <bool greatest>
struct Place : AnyPlace {
  static void bind(BindCall& call, const Attr& a) { AnyPlace::bind(call, a, greatest); }
};

struct ArgMax : Place<true> {
  static constexpr auto name = "argmax"sv,
                        doc = "y = the first place of the greatest x along dim, or in all of x"sv;
};

struct ArgMin : Place<false> {
  static constexpr auto name = "argmin"sv,
                        doc = "y = the first place of the least x along dim, or in all of x"sv;
};

using ExtremumOperators = std::tuple<MaxDim, MinDim, ArgMax, ArgMin>;

}  // namespace gradus::ops
