// Shape operators: other views of the same elements. A view copies nothing where the strides allow
// it; only `reshape` and `as_strided` sometimes have to.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct ShapeAttr {
  Dims shape;
  static constexpr auto fields() { return std::tuple(required("shape", &ShapeAttr::shape)); }
};

struct Reshape : View {
  static constexpr std::string_view name = "reshape";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr std::string_view doc =
      "y: the elements of x in row-major order; one size may be -1";
  static constexpr auto batch = batch_reshape;
  using Attr = ShapeAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
};

struct Flatten {  // the dimensions start_dim .. end_dim become one
  static constexpr std::string_view name = "flatten", doc = "y = x, start_dim .. end_dim as one";
  struct Attr {
    int64_t start_dim = 0, end_dim = -1;
    static constexpr auto fields() {
      return std::tuple(dimension("start_dim", &Attr::start_dim),
                        dimension("end_dim", &Attr::end_dim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Squeeze : View {  // a symbolic size never counts as 1: types decide
  static constexpr std::string_view name = "squeeze",
                                    doc = "y = x without `dim` if its size is 1; without any such";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr auto batch = batch_reshape;
  struct Attr {
    std::optional<int64_t> dim;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
  static Value dx(VjpCall&, const Attr&);
};

struct Unsqueeze : View {
  static constexpr std::string_view name = "unsqueeze", doc = "y = x with a size 1 before `dim`";
  static constexpr auto batch = batch_reshape;
  static constexpr int more_dimensions = 1;
  using Attr = DimAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct Transpose : View {
  static constexpr std::string_view name = "transpose",
                                    doc = "y[.., j, .., i, ..] = x[.., i, .., j, ..]";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr auto batch = batch_named_dimensions;
  static constexpr auto dx = emit_again;
  struct Attr {
    int64_t dim0 = 0, dim1 = 0;
    static constexpr auto fields() {
      return std::tuple(required_dimension("dim0", &Attr::dim0),
                        required_dimension("dim1", &Attr::dim1));
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
};

struct Permute : View {
  static constexpr std::string_view name = "permute", doc = "dimension k of y is dims[k] of x";
  static constexpr auto linear = ir::Linear::jointly;
  struct Attr {
    Ints dims;
    static constexpr auto fields() { return std::tuple(required_dimension("dims", &Attr::dims)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct Movedim {
  static constexpr std::string_view name = "movedim",
                                    doc = "y = x with dimensions `source` at `destination`";
  struct Attr {
    Ints source, destination;
    static constexpr auto fields() {
      return std::tuple(required_dimension("source", &Attr::source),
                        required_dimension("destination", &Attr::destination));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Expand : View {
  static constexpr std::string_view name = "expand";
  static constexpr auto linear = ir::Linear::jointly;
  static constexpr std::string_view doc =
      "y[.., i, ..] = x[.., 0, ..] where x has size 1; -1 keeps";
  using Attr = ShapeAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
  static BatchedResults batch(const BatchedCall&);
};

using ShapeOperators =
    std::tuple<Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Permute, Movedim, Expand>;

}  // namespace gradus::ops
