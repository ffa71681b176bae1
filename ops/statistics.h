// Reductions made of others: variance, logsumexp, norms.
#pragma once

#include "ops/reduction.h"

namespace gradus::ops {

struct VarianceAttr {
  std::optional<Ints> dim;
  int64_t correction = 1;
  bool keepdim = false;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &VarianceAttr::dim),
                      field("correction", &VarianceAttr::correction),
                      field("keepdim", &VarianceAttr::keepdim));
  }
};

struct Var {  // y = sum of (x - mean)^2 over dim / max(n - correction, 0)
  static constexpr auto name = "var"sv,
                        doc = "y = sum of (x - mean)^2 over dim / max(n - correction, 0)"sv;
  using Attr = VarianceAttr;
  static constexpr auto batch = batch_reduction;
  static void infer(InferCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = 2 dy (x - mean) / (n - correction)
};

struct Std {  // y = sqrt(var(x))
  static constexpr auto name = "std"sv,
                        doc = "y = sqrt(var(x)); where that is 0, its derivative too"sv;
  using Attr = VarianceAttr;
  static constexpr auto batch = batch_reduction;
  static void infer(InferCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct LogSumExp {  // y = log(sum of exp(x) over dim)
  static constexpr auto name = "logsumexp"sv, doc = "y = log(sum of exp(x) over dim)"sv;
  using Attr = DimsAttr;
  static constexpr auto batch = batch_reduction;
  static void infer(InferCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = dy exp(x - y)
};

// y = (sum of |x|^p over dim)^(1/p); p = 0 counts what is not zero, inf and -inf are max and min of
// |x|. Derivatives are 0 where x, or the norm, is 0.
struct Norm {
  static constexpr auto name = "norm"sv,
                        doc = "y = (sum of |x|^p over dim)^(1/p); p may be 0, inf or -inf"sv;
  struct Attr {
    double p = 2;
    std::optional<Ints> dim;
    bool keepdim = false;
    static constexpr auto fields() {
      return std::tuple(field("p", &Attr::p), dimension("dim", &Attr::dim),
                        field("keepdim", &Attr::keepdim));
    }
  };
  static constexpr auto batch = batch_reduction;
  static void infer(InferCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using StatisticsOperators = std::tuple<Var, Std, LogSumExp, Norm>;

}  // namespace gradus::ops
