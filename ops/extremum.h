// Where extrema are: the greatest (least) element along a dimension, and its index. The first NaN
// wins, else the first of equal ones.
#pragma once

#include "ops/reduction.h"

namespace gradus::ops {

struct AlongDimAttr {
  int64_t dim = 0;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(required("dim", &AlongDimAttr::dim),
                      field("keepdim", &AlongDimAttr::keepdim));
  }
};

struct MaxDim {  // values = the greatest of x along dim, indices = where
  static constexpr auto
      name = "max_dim"sv,
      doc = "values = the greatest x along dim, indices = the first place it is at"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = AlongDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // dx = dvalues at indices, else 0
};

struct MinDim {  // values = the least of x along dim, indices = where
  static constexpr auto name = "min_dim"sv,
                        doc =
                            "values = the least x along dim, indices = the first place it is at"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = AlongDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct ArgMax {  // y = where the greatest of x along dim is, or in all of x, row-major
  static constexpr auto name = "argmax"sv,
                        doc = "y = the first place of the greatest x along dim, or in all of x"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = OneDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
};

struct ArgMin {  // y = where the least of x along dim is, or in all of x, row-major
  static constexpr auto name = "argmin"sv,
                        doc = "y = the first place of the least x along dim, or in all of x"sv;
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::adds_up;
  static constexpr auto no_batch_rule = not_of_cotangents;
  using Attr = OneDimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
};

using ExtremumOperators = std::tuple<MaxDim, MinDim, ArgMax, ArgMin>;

}  // namespace gradus::ops
