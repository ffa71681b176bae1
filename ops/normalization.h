// Softmax, and what brings values to mean 0 and variance 1.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Softmax {  // y = e^x / sum of e^x along dim
  static constexpr auto name = "softmax"sv, doc = "y = e^x / sum of e^x along dim"sv;
  using Attr = DimAttr;
  static constexpr auto batch = batch_named_dimensions;
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = y (dy - sum of y dy)
};

struct LogSoftmax {  // y = x - log(sum of e^x along dim)
  static constexpr auto name = "log_softmax"sv, doc = "y = x - log(sum of e^x along dim)"sv;
  using Attr = DimAttr;
  static constexpr auto batch = batch_named_dimensions;
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);  // dx = dy - e^y sum of dy
};

struct Softmin {  // y = softmax(-x)
  static constexpr auto name = "softmin"sv, doc = "y = softmax(-x)"sv;
  using Attr = DimAttr;
  static void compose(ComposeCall&, const Attr&);
};

// What all norms are made of. `scale` is kept because derivatives of any order are made of the two
// results alone: x need not be saved. `dim` none means all.
struct Standardize {
  static constexpr auto name = "standardize"sv;
  static constexpr auto doc =
      "scale = 1 / sqrt(var + eps), y = (x - mean) * scale, with the mean and the biased variance "
      "of x over dim"sv;
  static constexpr std::array results{"y"sv, "scale"sv};
  struct Attr {
    std::optional<Ints> dim;
    double eps = 1e-5;
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
  // With n elements each: dx = scale (dy - mean dy - y mean(y dy)) - dscale scale^2 y / n
  static Value dx(VjpCall&, const Attr&);
};

struct EpsAttr {
  double eps = 1e-5;
  static constexpr auto fields() { return std::tuple(field("eps", &EpsAttr::eps)); }
};

struct LayerNorm {
  static constexpr auto name = "layer_norm"sv,
                        doc = "y = standardize(x over its last dimensions) * w + b"sv;
  static constexpr std::array inputs{"x"sv, "w?"sv, "b?"sv};
  struct Attr {
    Dims normalized_shape;
    double eps = 1e-5;
    static constexpr auto fields() {
      return std::tuple(required("normalized_shape", &Attr::normalized_shape),
                        field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct BatchNormTrain {  // x [N, C, ..], w and b [C]
  static constexpr auto name = "batch_norm_train"sv,
                        doc = "y = standardize(x over all but its channels) * w + b"sv;
  static constexpr std::array inputs{"x"sv, "w?"sv, "b?"sv};
  using Attr = EpsAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct BatchNormEval {  // no derivative goes to mean and var
  static constexpr auto name = "batch_norm_eval"sv,
                        doc = "y = (x - mean) / sqrt(var + eps) * w + b; mean, var are constants"sv;
  static constexpr std::array inputs{"x"sv, "mean"sv, "var"sv, "w?"sv, "b?"sv};
  using Attr = EpsAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct GroupNorm {
  static constexpr auto name = "group_norm"sv,
                        doc = "y = standardize(x over each group of channels) * w + b"sv;
  static constexpr std::array inputs{"x"sv, "w?"sv, "b?"sv};
  struct Attr {
    int64_t groups = 1;
    double eps = 1e-5;
    static constexpr auto fields() {
      return std::tuple(required("groups", &Attr::groups), field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct InstanceNorm {
  static constexpr auto name = "instance_norm"sv,
                        doc = "y = standardize(x over each channel of each sample) * w + b"sv;
  static constexpr std::array inputs{"x"sv, "w?"sv, "b?"sv};
  using Attr = EpsAttr;
  static void compose(ComposeCall&, const Attr&);
};

using NormalizationOperators = std::tuple<Softmax, LogSoftmax, Softmin, Standardize, LayerNorm,
                                          BatchNormTrain, BatchNormEval, GroupNorm, InstanceNorm>;

}  // namespace gradus::ops
