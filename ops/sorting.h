// Putting elements in order. NaN is greater than all others; equal elements keep their order.
// Derivatives go to where the elements came from.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct SortAttr {
  int64_t dim = -1;
  bool descending = false;
  static constexpr auto fields() {
    return std::tuple(dimension("dim", &SortAttr::dim), field("descending", &SortAttr::descending));
  }
};

struct Sort {
  static constexpr auto name = "sort"sv,
                        doc = "values = x in order along dim, indices = where they were"sv;
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto batch = batch_named_dimensions;
  using Attr = SortAttr;
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Topk {
  static constexpr auto name = "topk"sv;
  static constexpr auto doc =
      "values = the k greatest (or least) of x along dim, the best first, indices = where they "
      "were"sv;
  static constexpr std::array results{"values"sv, "indices"sv};
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    Dim k = 1;
    int64_t dim = -1;
    bool largest = true;
    static constexpr auto fields() {
      return std::tuple(required("k", &Attr::k), dimension("dim", &Attr::dim),
                        field("largest", &Attr::largest));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Argsort {
  static constexpr auto name = "argsort"sv, doc = "y = sort(x)'s indices"sv;
  static constexpr bool zero_gradient = true;
  using Attr = SortAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct Kthvalue {
  static constexpr auto name = "kthvalue"sv,
                        doc = "value = the k-th least of x along dim, index = where it was"sv;
  static constexpr std::array results{"value"sv, "index"sv};
  struct Attr {
    Dim k = 1;
    int64_t dim = -1;
    static constexpr auto fields() {
      return std::tuple(required("k", &Attr::k), dimension("dim", &Attr::dim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Of an even number of elements the lesser of the two in the middle; the first NaN where there is
// one.
struct MedianDim {
  static constexpr auto name = "median_dim"sv,
                        doc = "value = the middle one of x in order along dim, index = its place"sv;
  static constexpr std::array results{"value"sv, "index"sv};
  struct Attr {
    int64_t dim = -1;
    bool keepdim = false;
    static constexpr auto fields() {
      return std::tuple(dimension("dim", &Attr::dim), field("keepdim", &Attr::keepdim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

using SortingOperators = std::tuple<Sort, Topk, Argsort, Kthvalue, MedianDim>;

}  // namespace gradus::ops
