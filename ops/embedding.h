// Rows of a table that indices name, and their sums.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Embedding {  // `padding_idx` only zeroes the gradient of that row
  static constexpr std::string_view name = "embedding", doc = "y[.., k] = weight[index[..], k]";
  static constexpr std::array inputs{"weight"sv, "index"sv};
  struct Attr {
    std::optional<int64_t> padding_idx;
    static constexpr auto fields() { return std::tuple(field("padding_idx", &Attr::padding_idx)); }
  };
  static BatchedResults batch(const BatchedCall&, const Attr&);
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static bool vjp_holds(const ir::Attributes& a) {
    return attributes_as<Attr>(a).padding_idx.has_value();
  }
};

// Each row of `index` is a bag. Of equal elements `max` takes the first. An empty bag gives zeros.
struct EmbeddingBag {
  static constexpr std::string_view name = "embedding_bag",
                                    doc = "y[b] = the mean, sum or max of weight[index[b, ..]]";
  static constexpr std::array inputs{"weight"sv, "index"sv};
  struct Attr {
    std::string mode = "mean";
    static constexpr auto fields() { return std::tuple(field("mode", &Attr::mode)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

using EmbeddingOperators = std::tuple<Embedding, EmbeddingBag>;

}  // namespace gradus::ops
