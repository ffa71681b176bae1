// Convolutions in one, two and three dimensions. Three bilinear operators are closed under
// derivatives: the convolution and its gradients by image and by kernel. A list attribute of one
// number holds for every dimension.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct ConvAttr {
  Ints stride{1}, padding{0}, dilation{1};
  Dim groups = 1;
  static constexpr auto fields() {
    return std::tuple(field("stride", &ConvAttr::stride), field("padding", &ConvAttr::padding),
                      field("dilation", &ConvAttr::dilation), field("groups", &ConvAttr::groups));
  }
};

// x [N, C, spatial..], w [O, C / groups, kernel..]; what is read outside of x is 0.
struct Convolution {
  static constexpr auto name = "convolution"sv;
  static constexpr auto doc =
      "y[n, o, i] = sum over c, k of w[o, c, k] * x[n, c, i*stride - padding + k*dilation]"sv;
  static constexpr std::array inputs{"x"sv, "w"sv};
  static constexpr auto recompute_cost = ir::again::multiplies;
  using Attr = ConvAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

// x's spatial sizes are `size`; dy may have fewer windows than fit into them.
struct ConvolutionInput {
  static constexpr auto name = "convolution_input"sv,
                        doc = "dx of y = convolution(x, w), for x of spatial sizes `size`"sv;
  static constexpr std::array inputs{"dy"sv, "w"sv};
  static constexpr auto recompute_cost = ir::again::multiplies;
  struct Attr : ConvAttr {
    Dims size;
    static constexpr auto fields() {
      return std::tuple_cat(std::tuple(required("size", &Attr::size)), ConvAttr::fields());
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

struct ConvolutionWeight {
  static constexpr auto name = "convolution_weight"sv,
                        doc = "dw of y = convolution(x, w), for w of spatial sizes `kernel`"sv;
  static constexpr std::array inputs{"x"sv, "dy"sv};
  static constexpr auto recompute_cost = ir::again::multiplies;
  struct Attr : ConvAttr {
    Dims kernel;
    static constexpr auto fields() {
      return std::tuple_cat(std::tuple(required("kernel", &Attr::kernel)), ConvAttr::fields());
    }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
  static BatchedResults batch(const BatchedCall&, const Attr&);
};

// A sample may come alone, [C, spatial..].
template <int spatial>
struct Conv {
  static constexpr std::array<std::string_view, 3> names{"conv1d", "conv2d", "conv3d"};
  static constexpr std::string_view name = names[spatial - 1],
                                    doc = "y = convolution(x, w) + b, one b per channel";
  static constexpr std::array inputs{"x"sv, "w"sv, "b?"sv};
  using Attr = ConvAttr;
  static void compose(ComposeCall&, const Attr&);
};

struct ConvTransposeAttr : ConvAttr {
  Ints output_padding{0};
  static constexpr auto fields() {
    return std::tuple(field("stride", &ConvTransposeAttr::stride),
                      field("padding", &ConvTransposeAttr::padding),
                      field("output_padding", &ConvTransposeAttr::output_padding),
                      field("groups", &ConvTransposeAttr::groups),
                      field("dilation", &ConvTransposeAttr::dilation));
  }
};

// x [N, in, spatial..], w [in, out / groups, kernel..]
template <int spatial>
struct ConvTranspose {
  static constexpr std::array<std::string_view, 3> names{"conv_transpose1d", "conv_transpose2d",
                                                         "conv_transpose3d"};
  static constexpr std::string_view name = names[spatial - 1];
  static constexpr std::string_view doc =
      "y = convolution_input(x, w) + b, of (size - 1)*stride - 2*padding + dilation*(kernel - 1) + "
      "output_padding + 1";
  static constexpr std::array inputs{"x"sv, "w"sv, "b?"sv};
  using Attr = ConvTransposeAttr;
  static void compose(ComposeCall&, const Attr&);
};

using ConvolutionOperators =
    std::tuple<Convolution, ConvolutionInput, ConvolutionWeight, Conv<1>, Conv<2>, Conv<3>,
               ConvTranspose<1>, ConvTranspose<2>, ConvTranspose<3>>;

}  // namespace gradus::ops
