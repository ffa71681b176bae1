// Losses. `reduction` is "mean", "sum" or "none" (a loss per element).
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

enum class Reduction : uint8_t { none, mean, sum };
bool read_literal(const Literal&, Reduction&, std::string& what);
Literal write_literal(const Reduction&);
// One loss of many, or themselves.
Value reduced(const Value& losses, Reduction r);
// x, but at least `bound`; its derivative is 1 on the bound.
Value at_least(const Value& x, double bound);

struct LossAttr {
  Reduction reduction = Reduction::mean;
  static constexpr auto fields() { return std::tuple(field("reduction", &LossAttr::reduction)); }
};

struct MseLoss {
  static constexpr auto name = "mse_loss"sv, doc = "y = reduce((x - target)^2)"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  using Attr = LossAttr;
  static void compose(ComposeCall&, const Attr&);
};

// logp [N, C, ..] or [C], target of the same shape without C, weight [C]. The mean is over the
// weights of the targets that count; a target that does not count gives 0.
struct NllLoss {
  static constexpr auto name = "nll_loss"sv,
                        doc = "y = reduce(-weight[target] * logp[target]); the mean by weight"sv;
  static constexpr std::array inputs{"logp"sv, "target"sv, "weight?"sv};
  struct Attr {
    Reduction reduction = Reduction::mean;
    int64_t ignore_index = -100;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction),
                        field("ignore_index", &Attr::ignore_index));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

// target: classes as in nll_loss, or probabilities of x's shape. With smoothing s, a target is
// taken to be (1 - s) itself and s / C every class.
struct CrossEntropy {
  static constexpr auto name = "cross_entropy"sv,
                        doc = "y = nll_loss(log_softmax(x), target), or with probabilities"sv;
  static constexpr std::array inputs{"x"sv, "target"sv, "weight?"sv};
  struct Attr {
    Reduction reduction = Reduction::mean;
    int64_t ignore_index = -100;
    double label_smoothing = 0;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction),
                        field("ignore_index", &Attr::ignore_index),
                        field("label_smoothing", &Attr::label_smoothing));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct BceWithLogits {
  static constexpr auto name = "bce_with_logits"sv;
  static constexpr auto doc =
      "y = reduce(-weight * (pos_weight * target * log s(x) + (1 - target) * log(1 - s(x)))), s = "
      "sigmoid"sv;
  static constexpr std::array inputs{"x"sv, "target"sv, "weight?"sv, "pos_weight?"sv};
  using Attr = LossAttr;
  static void compose(ComposeCall&, const Attr&);
};

using LossOperators = std::tuple<MseLoss, NllLoss, CrossEntropy, BceWithLogits>;

}  // namespace gradus::ops
