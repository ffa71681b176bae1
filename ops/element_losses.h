// Losses that are worked out element by element, then reduced. `reduction` as in ops/losses.h.
#pragma once

#include "ops/losses.h"

namespace gradus::ops {

struct L1Loss {
  static constexpr auto name = "l1_loss"sv, doc = "y = reduce(|x - target|)"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  using Attr = LossAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct SmoothL1Loss {
  static constexpr auto name = "smooth_l1_loss"sv;
  static constexpr auto doc =
      "y = reduce(z < beta ? z^2 / (2 beta) : z - beta / 2), z = |x - target|"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  struct Attr {
    Reduction reduction = Reduction::mean;
    double beta = 1;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction), field("beta", &Attr::beta));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct HuberLoss {
  static constexpr auto name = "huber_loss"sv;
  static constexpr auto doc =
      "y = reduce(z <= delta ? z^2 / 2 : delta (z - delta / 2)), z = |x - target|"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  struct Attr {
    Reduction reduction = Reduction::mean;
    double delta = 1;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction), field("delta", &Attr::delta));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct SoftMarginLoss {
  static constexpr auto name = "soft_margin_loss"sv, doc = "y = reduce(log(1 + e^(-target x)))"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  using Attr = LossAttr;
  static void compose(ComposeCall&, const Attr&);
};

// Logarithms are at least -100; the slope by p has p (1 - p) at least 1e-12 below it.
struct Bce {
  static constexpr auto name = "bce"sv;
  static constexpr auto doc =
      "y = reduce(-weight * (target * log p + (1 - target) * log(1 - p)))"sv;
  static constexpr std::array inputs{"p"sv, "target"sv, "weight?"sv};
  using Attr = LossAttr;
  static BatchedResults batch(const BatchedCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static void vjp(VjpCall&);
};

// `batchmean` divides the sum by the first size of logq, and by nothing where logq is 0-d.
enum class DivergenceReduction : uint8_t { none, mean, sum, batchmean };
bool read_literal(const Literal&, DivergenceReduction&, std::string& what);
Literal write_literal(const DivergenceReduction&);

struct KlDiv {
  static constexpr auto name = "kl_div"sv;
  static constexpr auto doc =
      "y = reduce(p (log p - logq)); with log_target, p is given by its logarithm"sv;
  static constexpr std::array inputs{"logq"sv, "p"sv};
  struct Attr {
    DivergenceReduction reduction = DivergenceReduction::mean;
    bool log_target = false;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction),
                        field("log_target", &Attr::log_target));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct PoissonNllLoss {
  static constexpr auto name = "poisson_nll_loss"sv;
  static constexpr auto doc =
      "y = reduce(e^x - target x), or of x - target log(x + eps); full adds log(target!), by "
      "Stirling"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  struct Attr {
    bool log_input = true, full = false;
    double eps = 1e-8;
    Reduction reduction = Reduction::mean;
    static constexpr auto fields() {
      return std::tuple(field("log_input", &Attr::log_input), field("full", &Attr::full),
                        field("eps", &Attr::eps), field("reduction", &Attr::reduction));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct GaussianNllLoss {  // the derivative by var is that of what it is raised to
  static constexpr auto name = "gaussian_nll_loss"sv,
                        doc = "y = reduce((log v + (x - target)^2 / v) / 2), v = max(var, eps)"sv;
  static constexpr std::array inputs{"x"sv, "target"sv, "var"sv};
  struct Attr {
    Reduction reduction = Reduction::mean;
    double eps = 1e-6;
    static constexpr auto fields() {
      return std::tuple(field("reduction", &Attr::reduction), field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct HingeEmbeddingLoss {
  static constexpr auto name = "hinge_embedding_loss"sv,
                        doc = "y = reduce(target = 1 ? x : max(margin - x, 0)), target 1 or -1"sv;
  static constexpr std::array inputs{"x"sv, "target"sv};
  struct Attr {
    double margin = 1;
    Reduction reduction = Reduction::mean;
    static constexpr auto fields() {
      return std::tuple(field("margin", &Attr::margin), field("reduction", &Attr::reduction));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using ElementLossOperators = std::tuple<L1Loss, SmoothL1Loss, HuberLoss, SoftMarginLoss, Bce, KlDiv,
                                        PoissonNllLoss, GaussianNllLoss, HingeEmbeddingLoss>;

}  // namespace gradus::ops
