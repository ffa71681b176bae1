// Running sums and products along one dimension.
//
// Elements are taken one after the other, in f64 for floats and i64 for integers, and rounded to
// the result's dtype when stored. `reverse` runs from the last to the first; `exclusive` leaves an
// element out of its own result, which starts from the identity.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct ScanAttr {
  int64_t dim = 0;
  bool exclusive = false, reverse = false;
  static constexpr auto fields() {
    return std::tuple(required_dimension("dim", &ScanAttr::dim),
                      field("exclusive", &ScanAttr::exclusive),
                      field("reverse", &ScanAttr::reverse));
  }
};

struct CumSum {  // y[i] = x[0] + … + x[i]
  static constexpr auto name = "cumsum"sv, doc = "y[i] = x[0] + ... + x[i] along dim"sv;
  static constexpr auto batch = batch_named_dimensions;
  using Attr = ScanAttr;
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = the sums of dy the other way round
};

struct CumProd {  // y[i] = x[0] * … * x[i]
  static constexpr auto name = "cumprod"sv, doc = "y[i] = x[0] * ... * x[i] along dim"sv;
  static constexpr auto batch = batch_named_dimensions;
  using Attr = ScanAttr;
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // by products of what lies on either side: no division
};

// y[0] = 0, y[i] = a[i-1] * y[i-1] + b[i-1]. What products of neighbours differentiate into; it
// differentiates into itself: with u = the recurrence of a and dy the other way round,
// db = u and da = u * y. Where `cut` holds at i - 1, y[i] = b[i-1]: nothing before is carried on,
// nor NaN.
struct LinearRecurrence {
  static constexpr auto name = "linear_recurrence"sv,
                        doc = "y[0] = 0, y[i] = a[i-1] * y[i-1] + b[i-1] along dim"sv;
  static constexpr std::array inputs{"a"sv, "b"sv, "cut?"sv};
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = 0;
    bool reverse = false;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), field("reverse", &Attr::reverse));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct LogCumSumExp {  // y[i] = log(exp(x[0]) + … + exp(x[i]))
  static constexpr auto name = "logcumsumexp"sv,
                        doc = "y[i] = log(exp(x[0]) + ... + exp(x[i])) along dim"sv;
  static constexpr auto batch = batch_named_dimensions;
  using Attr = DimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

// values[i] = the greatest of x[0] … x[i], indices[i] where it is: the last of equal ones, the last
// NaN where there is one.
struct CumMax {
  static constexpr auto name = "cummax"sv,
                        doc = "values[i] = max(x[0], ..., x[i]), and where it is"sv;
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto batch = batch_named_dimensions;
  using Attr = DimAttr;
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = dvalues, added up where they came from
};

using ScanOperators = std::tuple<CumSum, CumProd, LinearRecurrence, LogCumSumExp, CumMax>;

}  // namespace gradus::ops
