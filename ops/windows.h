// Reads that may overlap, and their adjoints: strided views and sliding windows.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct AsStrided : View {  // strides count over x in row-major order, however it lies
  static constexpr std::string_view name = "as_strided",
                                    doc = "y[i, j, ..] = x_flat[offset + i*stride0 + j*stride1 ..]";
  struct Attr {
    Dims size, stride;
    Dim offset = 0;
    static constexpr auto fields() {
      return std::tuple(required("size", &Attr::size), required("stride", &Attr::stride),
                        field("offset", &Attr::offset));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct AsStridedSum {  // the adjoint of as_strided: overlapping reads add up, in index order
  static constexpr std::string_view name = "as_strided_sum";
  static constexpr std::string_view doc =
      "y = zeros(shape); y_flat[offset + i*stride0 ..] += x[i, ..]";
  static constexpr auto recompute_cost = ir::again::moves;
  struct Attr {
    Dims shape, stride;
    Dim offset = 0;
    static constexpr auto fields() {
      return std::tuple(required("shape", &Attr::shape), required("stride", &Attr::stride),
                        field("offset", &Attr::offset));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct Unfold : View {  // of a 0-d x: one window of at most one element, y[j] = x
  static constexpr std::string_view name = "unfold",
                                    doc = "y[.., i, .., j] = x[.., i*step + j, ..], j < size";
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim = 0;
    Dim size = 1;
    int64_t step = 1;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim", &Attr::dim), required("size", &Attr::size),
                        required("step", &Attr::step));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct UnfoldSum {  // the adjoint of unfold
  static constexpr std::string_view name = "unfold_sum",
                                    doc = "y = zeros; y[.., i*step + j, ..] += x[.., i, .., j]";
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr int least_rank = 2, more_dimensions = -1;
  struct Attr {
    Dim length = 0;  // y's size along `dim`
    int64_t dim = 0, step = 1;
    static constexpr auto fields() {
      return std::tuple(required("length", &Attr::length), required_dimension("dim", &Attr::dim),
                        required("step", &Attr::step));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using WindowOperators = std::tuple<AsStrided, AsStridedSum, Unfold, UnfoldSum>;

}  // namespace gradus::ops
