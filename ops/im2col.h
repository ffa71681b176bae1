// Windows of images as columns of a matrix, and columns added up to images. Attributes of one
// number hold for both dimensions; what is read outside of an image is 0.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Im2colAttr {
  Ints kernel, dilation{1}, padding{0}, stride{1};
  static constexpr auto fields() {
    return std::tuple(required("kernel", &Im2colAttr::kernel),
                      field("dilation", &Im2colAttr::dilation),
                      field("padding", &Im2colAttr::padding), field("stride", &Im2colAttr::stride));
  }
};

// [N, C, H, W] -> [N, C * kernel elements, windows]; N may be missing.
struct UnfoldIm2col {
  static constexpr auto name = "unfold_im2col"sv;
  static constexpr auto doc =
      "y[n, (c, p, q), (i, j)] = x[n, c, i*stride - padding + p*dilation, ..]"sv;
  static constexpr auto batch = batch_samples;
  using Attr = Im2colAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

struct FoldCol2im {  // the adjoint of unfold_im2col, for images of `output_size`
  static constexpr auto name = "fold_col2im"sv;
  static constexpr auto doc =
      "y = zeros; y[n, c, i*stride - padding + p*dilation, ..] += x[n, (c, p, q), (i, j)]"sv;
  static constexpr auto batch = batch_samples;
  struct Attr : Im2colAttr {
    Dims output_size;
    static constexpr auto fields() {
      return std::tuple_cat(std::tuple(required("output_size", &Attr::output_size)),
                            Im2colAttr::fields());
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

using Im2colOperators = std::tuple<UnfoldIm2col, FoldCol2im>;

}  // namespace gradus::ops
