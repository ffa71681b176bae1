// Shape operators: other views of the same elements. A view copies nothing where the strides allow
// it; only `reshape` and `as_strided` sometimes have to.
#pragma once

#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

// A dimension of a composition's operand, made non-negative; 0-d counts as rank 1.
int dimension_of(const ComposeCall& call, int64_t dim, int rank);

struct Reshape {
  static constexpr std::string_view name = "reshape",
                                    doc =
                                        "y: the elements of x in row-major order; one size may "
                                        "be -1";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_reshape;
  struct Attr {
    Dims shape;
    static constexpr auto fields() { return std::tuple(required("shape", &Attr::shape)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Flatten {  // the dimensions start_dim .. end_dim become one
  static constexpr std::string_view name = "flatten", doc = "y = x, start_dim .. end_dim as one";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    int64_t start_dim = 0, end_dim = -1;
    static constexpr auto fields() {
      return std::tuple(field("start_dim", &Attr::start_dim), field("end_dim", &Attr::end_dim));
    }
  };
  static void compose(ComposeCall&);
};

struct Squeeze {  // a symbolic size never counts as 1: types decide
  static constexpr std::string_view name = "squeeze",
                                    doc = "y = x without `dim` if its size is 1; without any such";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_reshape;
  struct Attr {
    std::optional<int64_t> dim;
    static constexpr auto fields() { return std::tuple(field("dim", &Attr::dim)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Unsqueeze {
  static constexpr std::string_view name = "unsqueeze", doc = "y = x with a size 1 before `dim`";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_reshape;
  struct Attr {
    int64_t dim = 0;
    static constexpr auto fields() { return std::tuple(required("dim", &Attr::dim)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Transpose {
  static constexpr std::string_view name = "transpose",
                                    doc = "y[.., j, .., i, ..] = x[.., i, .., j, ..]";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  static constexpr auto batch = batch_named_dimensions;
  struct Attr {
    int64_t dim0 = 0, dim1 = 0;
    static constexpr auto fields() {
      return std::tuple(required("dim0", &Attr::dim0), required("dim1", &Attr::dim1));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
};

struct Permute {
  static constexpr std::string_view name = "permute", doc = "dimension k of y is dims[k] of x";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  struct Attr {
    Ints dims;
    static constexpr auto fields() { return std::tuple(required("dims", &Attr::dims)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
  static BatchedResults batch(const BatchedCall&);
};

struct Movedim {
  static constexpr std::string_view name = "movedim",
                                    doc = "y = x with dimensions `source` at `destination`";
  static constexpr std::array inputs{"x"sv};
  struct Attr {
    Ints source, destination;
    static constexpr auto fields() {
      return std::tuple(required("source", &Attr::source),
                        required("destination", &Attr::destination));
    }
  };
  static void compose(ComposeCall&);
};

struct Expand {
  static constexpr std::string_view name = "expand",
                                    doc =
                                        "y[.., i, ..] = x[.., 0, ..] where x has size 1; -1 keeps";
  static constexpr std::array inputs{"x"sv};
  static constexpr auto recompute_cost = ir::again::moves;
  static constexpr bool may_be_view = true;
  struct Attr {
    Dims shape;
    static constexpr auto fields() { return std::tuple(required("shape", &Attr::shape)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);
  static BatchedResults batch(const BatchedCall&);
};

using ShapeOperators =
    std::tuple<Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Permute, Movedim, Expand>;

}  // namespace gradus::ops
