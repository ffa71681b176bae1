// Reading and writing at places that index tensors name. Index tensors are i64 or i32. Sums at one
// place are added in index order, so that they do not depend on threads; 16-bit floats add in f32.
#pragma once

#include "ops/edge.h"
#include "ops/number_literal.h"
#include "ops/scatter_reduce.h"
#include "ops/selection.h"
#include "ops/shape.h"

namespace gradus::ops {

struct Gather {
  static constexpr std::string_view name = "gather",
                                    doc = "y[i, j, ..] = x[i, index[i, j, ..], ..] along `dim`";
  static constexpr std::array inputs{"x"sv, "index"sv};
  static constexpr auto batch = batch_named_dimensions;
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static bool edge(EdgeCall&, const Attr&);
};

struct Scatter {  // of several writes to one place the last one stays
  static constexpr std::string_view name = "scatter",
                                    doc = "y = x, but y[i, index[i, j, ..], ..] = src[i, j, ..]";
  static constexpr std::array inputs{"x"sv, "index"sv, "src"sv};
  static constexpr auto batch = batch_named_dimensions;
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct ScatterAdd {
  static constexpr std::string_view name = "scatter_add",
                                    doc = "y = x; y[i, index[i, j, ..], ..] += src[i, j, ..]";
  static constexpr std::array inputs{"x"sv, "index"sv, "src"sv};
  static constexpr auto batch = batch_named_dimensions;
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

struct IndexSelect {
  static constexpr std::string_view name = "index_select",
                                    doc = "y[.., i, ..] = x[.., index[i], ..]";
  static constexpr std::array inputs{"x"sv, "index"sv};
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
  static bool edge(EdgeCall&, const Attr&);
};

struct IndexAdd {
  static constexpr std::string_view name = "index_add",
                                    doc = "y = x; y[.., index[i], ..] += alpha * src[.., i, ..]";
  static constexpr std::array inputs{"x"sv, "index"sv, "src"sv};
  struct Attr {
    int64_t dim = 0;
    NumberLiteral alpha = 1;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), field("alpha", &Attr::alpha));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct IndexCopy {
  static constexpr std::string_view name = "index_copy",
                                    doc = "y = x, but y[.., index[i], ..] = src[.., i, ..]";
  static constexpr std::array inputs{"x"sv, "index"sv, "src"sv};
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct IndexFill {
  static constexpr std::string_view name = "index_fill",
                                    doc = "y = x, but y[.., index[i], ..] = value";
  static constexpr std::array inputs{"x"sv, "index"sv};
  struct Attr {
    int64_t dim = 0;
    NumberLiteral value;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), required("value", &Attr::value));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

// The index tensors broadcast to one shape, which stands where they do, or in front if others lie
// between them. Negative ones count from the end. Masks are refused: their result has a size that
// the types do not know.
struct Index {
  static constexpr std::string_view name = "index",
                                    doc = "y = x[idx_0, idx_1, ..], where `none` takes all";
  static constexpr std::array inputs{"x"sv, "idx...?"sv};
  using Attr = CountAttr;  // of masks; with one it is a composition
  static bool data_sized(std::span<const ir::OperandType> x) { return has_mask(x, 1); }
  static int64_t count(std::span<const Tensor* const> x) { return count_masked(x, 1); }
  static bool vjp_holds(const ir::Attributes& a) { return !attributes_as<Attr>(a).count; }
  static void compose(ComposeCall&, const Attr&);
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
  static BatchedResults batch(const BatchedCall&);
};

struct IndexPut {
  static constexpr std::string_view name = "index_put",
                                    doc = "y = x, but y[idx_0, idx_1, ..] = values (or += )";
  static constexpr std::array inputs{"x"sv, "values"sv, "idx...?"sv};
  struct Attr {
    bool accumulate = false;
    std::optional<Dim> count;  // of masks; with one it is a composition
    static constexpr auto fields() {
      return std::tuple(field("accumulate", &Attr::accumulate), field("count", &Attr::count));
    }
  };
  static bool data_sized(std::span<const ir::OperandType> x) { return has_mask(x, 2); }
  static int64_t count(std::span<const Tensor* const> x) { return count_masked(x, 2); }
  static bool vjp_holds(const ir::Attributes& a) { return !attributes_as<Attr>(a).count; }
  static void compose(ComposeCall&, const Attr&);
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&);
};

struct Take {
  static constexpr std::string_view name = "take", doc = "y[..] = x_flat[index[..]]";
  static constexpr std::array inputs{"x"sv, "index"sv};
  static void compose(ComposeCall&);
};

// src must have an element for every place of the mask, and at least one (unless x is empty).
struct MaskedScatter {
  static constexpr std::string_view name = "masked_scatter",
                                    doc = "y = mask ? the next element of src : x";
  static constexpr std::array inputs{"x"sv, "mask"sv, "src"sv};
  static void compose(ComposeCall&);
};

using IndexingOperators =
    std::tuple<Gather, Scatter, ScatterAdd, IndexSelect, IndexAdd, IndexCopy, IndexFill, Index,
               IndexPut, Take, MaskedScatter, ScatterReduce>;

}  // namespace gradus::ops
