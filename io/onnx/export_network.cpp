// Products, convolutions, pools and norms as ONNX nodes.
#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

Wires matmul(ExportCall& c) {
  Wire b = c.x(1, c.y_type().dtype);
  if (c.flag("transpose_b") && c.rank(1) > 1) {
    Ints order = in_order(c.rank(1));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    b = c.to.node("Transpose", {b}, {{"perm", order}});
  }
  return {c.to.node("MatMul", {c.x(0, c.y_type().dtype), b})};
}
Wires linear(ExportCall& c) {
  if (c.rank(0) != 2 || c.rank(1) != 2) return {};
  return {c.to.node("Gemm", {c.x(0), c.x(1), c.optional(2)}, {{"transB", int64_t{1}}})};
}
Wires addmm(ExportCall& c) {
  double alpha = c.real("alpha"), beta = c.real("beta");
  if (beta == 0 || !c.exact(alpha) || !c.exact(beta) || !is_floating(c.y_type().dtype)) return {};
  return {c.to.node("Gemm", {c.x(1), c.x(2), c.x(0)},
                    {{"alpha", single(alpha)}, {"beta", single(beta)}})};
}

size_t spatial_of(ExportCall& c, size_t operand) {
  return static_cast<size_t>(c.rank(operand)) - 2;
}
// As much before as after.
Ints pads_of(ExportCall& c, size_t spatial) {
  Ints pads = c.integers("padding", spatial), after = pads;
  pads.insert(pads.end(), after.begin(), after.end());
  return pads;
}
std::vector<NodeAttribute> convolution_window(ExportCall& c) {
  const size_t spatial = spatial_of(c, 1);
  return {{"strides", c.integers("stride", spatial)},
          {"pads", pads_of(c, spatial)},
          {"dilations", c.integers("dilation", spatial)},
          {"group", c.integer("groups")}};
}

// Of samples in a batch; one alone is taken apart.
Wires convolution(ExportCall& c) {
  if (c.rank(0) != c.rank(1)) return {};
  return {c.to.node("Conv", {c.x(0), c.x(1), c.optional(2)}, convolution_window(c))};
}
Wires transposed_convolution(ExportCall& c) {
  if (c.rank(0) != c.rank(1)) return {};
  auto attributes = convolution_window(c);
  attributes.push_back({"output_padding", c.integers("output_padding", spatial_of(c, 1))});
  return {c.to.node("ConvTranspose", {c.x(0), c.x(1), c.optional(2)}, attributes)};
}
std::vector<NodeAttribute> pool_window(ExportCall& c) {
  const size_t spatial = spatial_of(c, 0);
  Ints kernel = c.integers("kernel", spatial);
  Ints stride = c.is_none("stride") ? kernel : c.integers("stride", spatial);
  return {{"kernel_shape", kernel},
          {"strides", stride},
          {"pads", pads_of(c, spatial)},
          {"ceil_mode", int64_t{c.flag("ceil_mode")}}};
}
Wires det(ExportCall& c) { return {c.to.node("Det", {c.x()})}; }

// Places are counted within [n, c] here, within the whole tensor there.
Wires max_pool(ExportCall& c) {
  if (c.rank() < 3) c.refuse("a pool of one sample without a batch");
  auto attributes = pool_window(c);
  attributes.push_back({"dilations", c.integers("dilation", spatial_of(c, 0))});
  std::vector<Wire> out = c.to.nodes("MaxPool", {c.x()}, attributes, 2);
  const Dims& dims = c.type().dims;
  Dim image = ir::numel(std::span(dims.begin() + 2, dims.end()));
  return {out[0], c.to.node("Mod", {out[1], c.to.scalar_size(image)})};
}
template <int rank>
Wires average_pool(ExportCall& c) {
  // A window that ceil_mode lets hang over is divided by other counts.
  if (c.rank() != rank || c.flag("ceil_mode") || !c.is_none("divisor_override")) return {};
  auto attributes = pool_window(c);
  attributes.push_back({"count_include_pad", int64_t{c.flag("count_include_pad")}});
  return {c.to.node("AveragePool", {c.x()}, attributes)};
}

Wires layer_norm(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(1) || !c.exact(eps)) return {};
  auto axis = static_cast<int64_t>(c.dims("normalized_shape").size());
  return {c.to.node("LayerNormalization", {c.x(0), c.x(1), c.optional(2)},
                    {{"axis", -axis}, {"epsilon", single(eps)}})};
}
Wires instance_norm(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(1) || !c.given(2) || c.rank() < 3 || !c.exact(eps)) return {};
  return {c.to.node("InstanceNormalization", {c.x(0), c.x(1), c.x(2)}, {{"epsilon", single(eps)}})};
}
Wires batch_norm_eval(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(3) || !c.given(4) || !c.exact(eps)) return {};
  return {c.to.node("BatchNormalization", {c.x(0), c.x(3), c.x(4), c.x(1), c.x(2)},
                    {{"epsilon", single(eps)}})};
}

constexpr ExportEntry network_export_table[] = {
    {"matmul", matmul},
    {"linear", linear},
    {"addmm", addmm},
    {"det", det},
    {"convolution", convolution},
    {"conv1d", convolution},
    {"conv2d", convolution},
    {"conv3d", convolution},
    {"conv_transpose1d", transposed_convolution},
    {"conv_transpose2d", transposed_convolution},
    {"conv_transpose3d", transposed_convolution},
    {"max_pool", max_pool},
    {"avg_pool1d", average_pool<3>},
    {"avg_pool2d", average_pool<4>},
    {"avg_pool3d", average_pool<5>},
    {"layer_norm", layer_norm},
    {"instance_norm", instance_norm},
    {"batch_norm_eval", batch_norm_eval},
};

}  // namespace

constinit const ExportRules network_exports = network_export_table;

}  // namespace gradus::onnx
