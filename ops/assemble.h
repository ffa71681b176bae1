// Tensors put together from others: joined, repeated, padded, turned, written into.
#pragma once

#include "ops/edge.h"
#include "ops/slicing.h"

namespace gradus::ops {

struct Cat : View {  // operands of type [0] go with every rank, as in ATen
  static constexpr std::string_view name = "cat",
                                    doc = "y = the operands one after the other along `dim`";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr std::array inputs{"x..."sv};
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
  static bool edge(EdgeCall&, const Attr&);
};

struct Stack {
  static constexpr std::string_view name = "stack", doc = "y = the operands along a new `dim`";
  static constexpr std::array inputs{"x..."sv};
  static constexpr int more_dimensions = 1;
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Repeat {
  static constexpr std::string_view name = "repeat",
                                    doc = "y = x, repeats[k] times along dimension k";
  struct Attr {
    Dims repeats;
    static constexpr auto fields() { return std::tuple(required("repeats", &Attr::repeats)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Tile {
  static constexpr std::string_view name = "tile",
                                    doc = "y = x, dims[k] times; missing leading counts are 1";
  struct Attr {
    Dims dims;
    static constexpr auto fields() { return std::tuple(required("dims", &Attr::dims)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct RepeatInterleave {
  static constexpr std::string_view name = "repeat_interleave";
  static constexpr std::string_view doc =
      "y[.., i, ..] = x[.., i // repeats, ..]; flat without `dim`";
  struct Attr {
    Dim repeats = 1;
    std::optional<int64_t> dim;
    static constexpr auto fields() {
      return std::tuple(required("repeats", &Attr::repeats), dimension("dim", &Attr::dim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Meshgrid {
  static constexpr std::string_view name = "meshgrid", doc = "y_k[i_0, i_1, ..] = x_k[i_k]";
  static constexpr std::array inputs{"x..."sv};
  static constexpr std::array results{"y..."sv};
  static void compose(ComposeCall&);
};

struct Flip : View {
  static constexpr std::string_view name = "flip",
                                    doc = "y[.., i, ..] = x[.., n - 1 - i, ..] for `dims`";
  static constexpr auto batch = batch_named_dimensions;
  static constexpr auto dx = emit_again;
  using Attr = Permute::Attr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

struct Roll : View {
  static constexpr std::string_view name = "roll";
  static constexpr std::string_view doc =
      "y[.., (i + shift) mod n, ..] = x[.., i, ..]; flat without `dims`";
  struct Attr {
    Ints shifts, dims;
    static constexpr auto fields() {
      return std::tuple(required("shifts", &Attr::shifts), dimension("dims", &Attr::dims));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

// What tril and triu share.
struct TrianglePart {
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_last_dimensions;
  static constexpr auto dx = emit_again;
  struct Attr {
    int64_t diagonal = 0;
    static constexpr auto fields() { return std::tuple(field("diagonal", &Attr::diagonal)); }
  };
  static void infer(InferCall&);
};

struct Tril : TrianglePart {
  static constexpr std::string_view name = "tril",
                                    doc = "y[.., i, j] = x[.., i, j] if j <= i + diagonal else 0";
  static void bind(BindCall&, const Attr&);
};

struct Triu : TrianglePart {
  static constexpr std::string_view name = "triu",
                                    doc = "y[.., i, j] = x[.., i, j] if j >= i + diagonal else 0";
  static void bind(BindCall&, const Attr&);
};

struct Pad {  // amounts as in ATen: (before, after) of the last dimension first
  static constexpr std::string_view name = "pad";
  static constexpr std::string_view doc =
      "y = x with borders: constant, reflect, replicate, circular";
  struct Attr {
    Dims pad;
    std::string mode = "constant";
    double value = 0;
    static constexpr auto fields() {
      return std::tuple(required("pad", &Attr::pad), field("mode", &Attr::mode),
                        field("value", &Attr::value));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct ConstantPadNd : View {  // negative amounts take away
  static constexpr std::string_view name = "constant_pad_nd";
  static constexpr std::string_view doc =
      "y[.., i, ..] = x[.., i - before, ..], `value` outside of x";
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
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static bool edge(EdgeCall&, const Attr&);
};

struct SliceScatter {
  static constexpr std::string_view name = "slice_scatter",
                                    doc = "y = x, but y[.., start:end:step, ..] = src";
  static constexpr std::array inputs{"x"sv, "src"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1;
  using Attr = Slice::Attr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct SelectScatter {
  static constexpr std::string_view name = "select_scatter",
                                    doc = "y = x, but y[.., index, ..] = src";
  static constexpr std::array inputs{"x"sv, "src"sv};
  using Attr = Select::Attr;
  static void compose(ComposeCall&, const Attr&);
};

struct DiagonalScatter {
  static constexpr std::string_view name = "diagonal_scatter",
                                    doc = "y = x, but y[.., i, .., i + offset, ..] = src[.., i]";
  static constexpr std::array inputs{"x"sv, "src"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 2;
  using Attr = Diagonal::Attr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct DiagEmbed {
  static constexpr std::string_view name = "diag_embed",
                                    doc = "y = zeros; y[.., i, .., i + offset, ..] = x[.., i]";
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 1, more_dimensions = 1;
  struct Attr {
    int64_t offset = 0, dim1 = -2, dim2 = -1;
    static constexpr auto fields() {
      return std::tuple(field("offset", &Attr::offset), dimension("dim1", &Attr::dim1),
                        dimension("dim2", &Attr::dim2));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using AssembleOperators =
    std::tuple<Cat, Stack, Repeat, Tile, RepeatInterleave, Meshgrid, Flip, Roll, Tril, Triu, Pad,
               ConstantPadNd, SliceScatter, SelectScatter, DiagonalScatter, DiagEmbed>;

}  // namespace gradus::ops
