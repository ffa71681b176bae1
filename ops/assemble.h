// Tensors put together from others: joined, repeated, padded, turned, written into.
#pragma once

#include "ops/shape.h"

namespace gradus::ops {

struct Cat {  // operands of type [0] go with every rank, as in ATen
  static constexpr std::string_view name = "cat",
                                    doc = "y = the operands one after the other along `dim`";
  static constexpr std::array inputs{"x..."sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(field("dim", &Attr::dim)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
  static bool edge(EdgeCall&);
};

struct Stack {
  static constexpr std::string_view name = "stack", doc = "y = the operands along a new `dim`";
  static constexpr std::array inputs{"x..."sv};
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(field("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&);
};

struct Repeat {
  static constexpr std::string_view name = "repeat",
                                    doc = "y = x, repeats[k] times along dimension k";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    Dims repeats;
    static constexpr auto fields() { return std::tuple(required("repeats", &Attr::repeats)); }
  };
  static void compose(ComposeCall&);
};

struct Tile {
  static constexpr std::string_view name = "tile",
                                    doc = "y = x, dims[k] times; missing leading counts are 1";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    Dims dims;
    static constexpr auto fields() { return std::tuple(required("dims", &Attr::dims)); }
  };
  static void compose(ComposeCall&);
};

struct RepeatInterleave {
  static constexpr std::string_view
      name = "repeat_interleave",
      doc = "y[.., i, ..] = x[.., i // repeats, ..]; flat without `dim`";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    Dim repeats = 1;
    std::optional<int64_t> dim;
    static constexpr auto fields() {
      return std::tuple(required("repeats", &Attr::repeats), field("dim", &Attr::dim));
    }
  };
  static void compose(ComposeCall&);
};

struct Meshgrid {
  static constexpr std::string_view name = "meshgrid", doc = "y_k[i_0, i_1, ..] = x_k[i_k]";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static void compose(ComposeCall&);
};

struct Flip {
  static constexpr std::string_view name = "flip",
                                    doc = "y[.., i, ..] = x[.., n - 1 - i, ..] for `dims`";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    Ints dims;
    static constexpr auto fields() { return std::tuple(required("dims", &Attr::dims)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Roll {
  static constexpr std::string_view
      name = "roll",
      doc = "y[.., (i + shift) mod n, ..] = x[.., i, ..]; flat without `dims`";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto no_batch_rule = "not written: without `dims` it rolls the flat tensor";
  struct Attr {
    Ints shifts, dims;
    static constexpr auto fields() {
      return std::tuple(required("shifts", &Attr::shifts), field("dims", &Attr::dims));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct TriangleAttr {
  int64_t diagonal = 0;
  static constexpr auto fields() { return std::tuple(field("diagonal", &TriangleAttr::diagonal)); }
};

struct Tril {
  static constexpr std::string_view name = "tril",
                                    doc = "y[.., i, j] = x[.., i, j] if j <= i + diagonal else 0";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_last_dimensions;
  using Attr = TriangleAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Triu {
  static constexpr std::string_view name = "triu",
                                    doc = "y[.., i, j] = x[.., i, j] if j >= i + diagonal else 0";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_last_dimensions;
  using Attr = TriangleAttr;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Pad {  // amounts as in ATen: (before, after) of the last dimension first
  static constexpr std::string_view
      name = "pad",
      doc = "y = x with borders: constant, reflect, replicate, circular";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    Dims pad;
    std::string mode = "constant";
    double value = 0;
    static constexpr auto fields() {
      return std::tuple(required("pad", &Attr::pad), field("mode", &Attr::mode),
                        field("value", &Attr::value));
    }
  };
  static void compose(ComposeCall&);
};

struct ConstantPadNd {  // negative amounts take away
  static constexpr std::string_view
      name = "constant_pad_nd",
      doc = "y[.., i, ..] = x[.., i - before, ..], `value` outside of x";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    Dims pad;
    double value = 0;
    static constexpr auto fields() {
      return std::tuple(required("pad", &Attr::pad), field("value", &Attr::value));
    }
    // Before and after of dimension d of a tensor of this rank.
    std::pair<Dim, Dim> amounts(int d, int rank) const;
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
  static bool edge(EdgeCall&);
};

struct SliceScatter {
  static constexpr std::string_view name = "slice_scatter",
                                    doc = "y = x, but y[.., start:end:step, ..] = src";
  static constexpr std::array inputs{"x"sv, "src"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto no_batch_rule = "not written: `dim` would move on, as slice's does";
  struct Attr {
    int64_t dim = 0;
    std::optional<Dim> start, end;
    int64_t step = 1;
    static constexpr auto fields() {
      return std::tuple(field("dim", &Attr::dim), field("start", &Attr::start),
                        field("end", &Attr::end), field("step", &Attr::step));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct SelectScatter {
  static constexpr std::string_view name = "select_scatter",
                                    doc = "y = x, but y[.., index, ..] = src";
  static constexpr std::array inputs{"x"sv, "src"sv};
  struct Attr {
    int64_t dim = 0;
    Dim index = 0;
    static constexpr auto fields() {
      return std::tuple(required("dim", &Attr::dim), required("index", &Attr::index));
    }
  };
  static void compose(ComposeCall&);
};

struct DiagEmbed {
  static constexpr std::string_view name = "diag_embed",
                                    doc = "y = zeros; y[.., i, .., i + offset, ..] = x[.., i]";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t offset = 0, dim1 = -2, dim2 = -1;
    static constexpr auto fields() {
      return std::tuple(field("offset", &Attr::offset), field("dim1", &Attr::dim1),
                        field("dim2", &Attr::dim2));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

using AssembleOperators =
    std::tuple<Cat, Stack, Repeat, Tile, RepeatInterleave, Meshgrid, Flip, Roll, Tril, Triu, Pad,
               ConstantPadNd, SliceScatter, SelectScatter, DiagEmbed>;

}  // namespace gradus::ops
