// Lengths and angles between vectors, and what is made of them.
#pragma once

#include "ops/losses.h"

namespace gradus::ops {

struct Normalize {
  static constexpr auto name = "normalize"sv, doc = "y = x / max(norm(x over dim), eps)"sv;
  struct Attr {
    double p = 2;
    int64_t dim = 1;
    double eps = 1e-12;
    static constexpr auto fields() {
      return std::tuple(field("p", &Attr::p), dimension("dim", &Attr::dim),
                        field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct CosineSimilarity {
  static constexpr auto name = "cosine_similarity"sv;
  static constexpr auto doc =
      "s = sum of x y over dim / (|x| |y|), lengths over dim, each at least eps"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static constexpr std::array results{"s"sv};
  struct Attr {
    int64_t dim = 1;
    double eps = 1e-8;
    static constexpr auto fields() {
      return std::tuple(field("dim", &Attr::dim), field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct PairwiseDistance {
  static constexpr auto name = "pairwise_distance"sv,
                        doc = "d = norm(x - y + eps) over the last dimension"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static constexpr std::array results{"d"sv};
  struct Attr {
    double p = 2, eps = 1e-6;
    static constexpr auto fields() {
      return std::tuple(field("p", &Attr::p), field("eps", &Attr::eps));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Of every row of x with every row of y, over the last dimension; dimensions before the rows
// broadcast. Derivatives are norm's: 0 where the distance, or a difference that p < 2 raises, is 0.
struct Cdist {
  static constexpr auto name = "cdist"sv, doc = "d[.., i, j] = norm(x[.., i, :] - y[.., j, :])"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static constexpr std::array results{"d"sv};
  struct Attr {
    double p = 2;
    static constexpr auto fields() { return std::tuple(field("p", &Attr::p)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct TripletMarginLoss {
  static constexpr auto name = "triplet_margin_loss"sv;
  static constexpr auto doc =
      "y = reduce(max(distance(a, p) - distance(a, n) + margin, 0)), by pairwise_distance"sv;
  static constexpr std::array inputs{"a"sv, "p"sv, "n"sv};
  struct Attr {
    double margin = 1, p = 2;
    Reduction reduction = Reduction::mean;
    static constexpr auto fields() {
      return std::tuple(field("margin", &Attr::margin), field("p", &Attr::p),
                        field("reduction", &Attr::reduction));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using DistanceOperators =
    std::tuple<Normalize, CosineSimilarity, PairwiseDistance, Cdist, TripletMarginLoss>;

}  // namespace gradus::ops
