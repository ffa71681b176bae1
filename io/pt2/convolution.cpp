// Convolutions; and the table of what reads windows of images.
#include "io/pt2/images.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

size_t spatial_of(Call& c) {
  const int n = c.rank("weight") - 2;
  if (n < 1 || n > 3) c.fail("a kernel of {} dimensions is not supported", n + 2);
  return static_cast<size_t>(n);
}

std::vector<Value> image_kernel_bias(Call& c, Value image) {
  std::vector<Value> operands{std::move(image), c.x("weight")};
  if (c.given("bias")) operands.push_back(c.x("bias"));
  return operands;
}

LiteralList window_attributes(Call& c, const Ints& padding) {
  return {{"stride", Literal::list(c.integers("stride", {1}))},
          {"padding", Literal::list(padding)},
          {"dilation", Literal::list(c.integers("dilation", {1}))},
          {"groups", c.integer("groups", 1)}};
}

void give_convolution(Call& c, const Value& image, const Ints& padding) {
  const std::string op = fmt::format("conv{}d", spatial_of(c));
  Value y = emit_all(c.world(), op, image_kernel_bias(c, image), window_attributes(c, padding))[0];
  c.give(with_sizes(y, c.result().sizes));
}

void convolution(Call& c) { give_convolution(c, c.x("input"), c.integers("padding", {0})); }

// "same": as many windows as pixels; an odd border is one larger at the end.
void convolution_padded_by_name(Call& c) {
  const std::string padding = c.text("padding", "valid");
  Value image = c.x("input");
  if (padding == "valid") return give_convolution(c, image, {0});
  if (padding != "same") c.fail("there is no padding '{}'", padding);
  const size_t n = spatial_of(c);
  const Dims kernel = c.x("weight").dims();
  const Ints dilation = c.integers("dilation", {1});
  if (dilation.size() != 1 && dilation.size() != n)
    c.fail("its argument 'dilation' has {} numbers", dilation.size());
  Ints own;
  Dims extra;
  for (size_t d = n; d-- > 0;) {
    const Dim& k = kernel[d + 2];
    if (!k.is_constant()) c.fail("a kernel whose size has a name is not supported");
    const int64_t step = dilation[dilation.size() == 1 ? 0 : d];
    int64_t total = 0;
    if (step < 1 || __builtin_mul_overflow(k.value() - 1, step, &total))
      c.fail("a dilation of {} is out of range", step);
    own.insert(own.begin(), total / 2);
    extra.push_back(0);
    extra.push_back(total % 2);
  }
  for (const Dim& e : extra)
    if (!(e == Dim(0))) {
      image = emit("constant_pad_nd", {image}, {{"pad", Literal::list(extra)}});
      break;
    }
  give_convolution(c, image, own);
}

void transposed_convolution(Call& c) {
  LiteralList attributes = window_attributes(c, c.integers("padding", {0}));
  attributes.push_back({"output_padding", Literal::list(c.integers("output_padding", {0}))});
  const std::string op = fmt::format("conv_transpose{}d", spatial_of(c));
  Value y = emit_all(c.world(), op, image_kernel_bias(c, c.x("input")), attributes)[0];
  c.give(with_sizes(y, c.result().sizes));
}

void either_convolution(Call& c) {
  c.flag("transposed", false) ? transposed_convolution(c) : convolution(c);
}

constexpr RuleEntry convolution_table[] = {
    {"conv1d", convolution},
    {"conv2d", convolution},
    {"conv3d", convolution},
    {"conv1d.padding", convolution_padded_by_name},
    {"conv2d.padding", convolution_padded_by_name},
    {"conv3d.padding", convolution_padded_by_name},
    {"conv_transpose1d", transposed_convolution},
    {"conv_transpose2d", transposed_convolution},
    {"conv_transpose3d", transposed_convolution},
    {"convolution", either_convolution},
    {"_convolution", either_convolution},
    {"max_pool1d", max_pool},
    {"max_pool2d", max_pool},
    {"max_pool3d", max_pool},
    {"max_pool1d_with_indices", max_pool},
    {"max_pool2d_with_indices", max_pool},
    {"max_pool3d_with_indices", max_pool},
    {"avg_pool1d", average_pool},
    {"avg_pool2d", average_pool},
    {"avg_pool3d", average_pool},
    {"adaptive_avg_pool1d", adaptive_average_pool},
    {"adaptive_avg_pool2d", adaptive_average_pool},
    {"adaptive_avg_pool3d", adaptive_average_pool},
    {"_adaptive_avg_pool2d", adaptive_average_pool},
    {"_adaptive_avg_pool3d", adaptive_average_pool},
    {"adaptive_max_pool1d", adaptive_max_pool},
    {"adaptive_max_pool2d", adaptive_max_pool},
    {"adaptive_max_pool3d", adaptive_max_pool},
    {"max_unpool2d", max_unpool},
    {"max_unpool3d", max_unpool},
    {"im2col", windows_as_columns},
    {"col2im", columns_as_image},
    {"upsample_nearest1d", upsample_nearest},
    {"upsample_nearest2d", upsample_nearest},
    {"upsample_nearest3d", upsample_nearest},
    {"_upsample_nearest_exact1d", upsample_nearest_exact},
    {"_upsample_nearest_exact2d", upsample_nearest_exact},
    {"_upsample_nearest_exact3d", upsample_nearest_exact},
    {"upsample_linear1d", upsample_linear},
    {"upsample_bilinear2d", upsample_linear},
    {"upsample_trilinear3d", upsample_linear},
    {"upsample_bicubic2d", upsample_cubic},
    {"_upsample_bilinear2d_aa", upsample_linear_antialiased},
    {"_upsample_bicubic2d_aa", upsample_cubic_antialiased},
    {"_upsample_lanczos2d_aa", upsample_lanczos_antialiased},
    {"grid_sampler", grid_sampler},
    {"grid_sampler_2d", grid_sampler},
    {"grid_sampler_3d", grid_sampler},
    {"affine_grid_generator", affine_grid},
};

}  // namespace

constinit const Rules convolution_rules = convolution_table;

}  // namespace gradus::pt2
