// Products, convolutions, pools and norms as ONNX nodes.
#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

// Attributes are single: whether f64 arithmetic would see a difference.
bool exact(const ExportCall& c, double value) {
  return c.y_type().dtype != DType::f64 || static_cast<double>(single(value)) == value;
}

bool matmul(ExportCall& c) {
  Wire b = c.x(1, c.y_type().dtype);
  if (c.flag("transpose_b") && c.rank(1) > 1) {
    Ints order;
    for (int k = 0; k < c.rank(1); ++k) order.push_back(k);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    b = c.to.node("Transpose", {b}, {{"perm", order}});
  }
  c.give(c.to.node("MatMul", {c.x(0, c.y_type().dtype), b}));
  return true;
}
bool linear(ExportCall& c) {
  if (c.rank(0) != 2 || c.rank(1) != 2) return false;
  c.give(c.to.node("Gemm", {c.x(0), c.x(1), c.optional(2)}, {{"transB", int64_t{1}}}));
  return true;
}
bool addmm(ExportCall& c) {
  double alpha = c.real("alpha"), beta = c.real("beta");
  if (beta == 0 || !exact(c, alpha) || !exact(c, beta) || !is_floating(c.y_type().dtype))
    return false;
  c.give(c.to.node("Gemm", {c.x(1), c.x(2), c.x(0)},
                   {{"alpha", single(alpha)}, {"beta", single(beta)}}));
  return true;
}
bool det(ExportCall& c) {
  c.give(c.to.node("Det", {c.x()}));
  return true;
}

// A list of one number holds for every spatial dimension.
Ints spread(ExportCall& c, const char* name, size_t spatial) {
  Ints list = c.integers(name);
  if (list.size() == 1) list.assign(spatial, list[0]);
  return list;
}
std::vector<NodeAttribute> window(ExportCall& c, size_t spatial) {
  Ints before = spread(c, "padding", spatial), pads = before;
  pads.insert(pads.end(), before.begin(), before.end());
  std::vector<NodeAttribute> a{{"strides", spread(c, "stride", spatial)}, {"pads", pads}};
  return a;
}
std::vector<NodeAttribute> convolution_window(ExportCall& c, size_t spatial) {
  std::vector<NodeAttribute> a = window(c, spatial);
  a.push_back({"dilations", spread(c, "dilation", spatial)});
  a.push_back({"group", c.integer("groups")});
  return a;
}
size_t spatial_of(ExportCall& c, size_t operand) {
  return static_cast<size_t>(c.rank(operand)) - 2;
}

// Of samples in a batch; one alone is taken apart.
bool convolution(ExportCall& c) {
  if (c.rank(0) != c.rank(1)) return false;
  c.give(
      c.to.node("Conv", {c.x(0), c.x(1), c.optional(2)}, convolution_window(c, spatial_of(c, 1))));
  return true;
}
bool transposed_convolution(ExportCall& c) {
  if (c.rank(0) != c.rank(1)) return false;
  auto attributes = convolution_window(c, spatial_of(c, 1));
  attributes.push_back({"output_padding", spread(c, "output_padding", spatial_of(c, 1))});
  c.give(c.to.node("ConvTranspose", {c.x(0), c.x(1), c.optional(2)}, attributes));
  return true;
}
std::vector<NodeAttribute> pool_window(ExportCall& c, size_t spatial) {
  Ints kernel = spread(c, "kernel", spatial), before = spread(c, "padding", spatial), pads = before;
  pads.insert(pads.end(), before.begin(), before.end());
  Ints stride = c.is_none("stride") ? kernel : spread(c, "stride", spatial);
  return {{"kernel_shape", kernel},
          {"strides", stride},
          {"pads", pads},
          {"ceil_mode", int64_t{c.flag("ceil_mode")}}};
}
// Places are counted within [n, c] here, within the whole tensor there.
bool max_pool(ExportCall& c) {
  if (c.rank() < 3) c.refuse("a pool of one sample without a batch");
  size_t spatial = spatial_of(c, 0);
  auto attributes = pool_window(c, spatial);
  attributes.push_back({"dilations", spread(c, "dilation", spatial)});
  std::vector<Wire> out = c.to.nodes("MaxPool", {c.x()}, attributes, 2);
  c.give(out[0]);
  const Dims& dims = c.type().dims;
  Dim image = ir::numel(std::span(dims.begin() + 2, dims.end()));
  c.give(c.to.node("Mod", {out[1], c.to.scalar_size(image)}));
  return true;
}
bool average_pool(ExportCall& c, int rank) {
  // A window that ceil_mode lets hang over is divided by other counts.
  if (c.rank() != rank || c.flag("ceil_mode")) return false;
  auto attributes = pool_window(c, spatial_of(c, 0));
  attributes.push_back({"count_include_pad", int64_t{c.flag("count_include_pad")}});
  c.give(c.to.node("AveragePool", {c.x()}, attributes));
  return true;
}
bool average_pool1d(ExportCall& c) { return average_pool(c, 3); }
bool average_pool2d(ExportCall& c) { return average_pool(c, 4); }
bool average_pool3d(ExportCall& c) { return average_pool(c, 5); }

bool layer_norm(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(1) || !exact(c, eps)) return false;
  auto axis = static_cast<int64_t>(c.dims("normalized_shape").size());
  c.give(c.to.node("LayerNormalization", {c.x(0), c.x(1), c.optional(2)},
                   {{"axis", -axis}, {"epsilon", single(eps)}}));
  return true;
}
bool instance_norm(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(1) || !c.given(2) || c.rank() < 3 || !exact(c, eps)) return false;
  c.give(c.to.node("InstanceNormalization", {c.x(0), c.x(1), c.x(2)}, {{"epsilon", single(eps)}}));
  return true;
}
bool batch_norm_eval(ExportCall& c) {
  double eps = c.real("eps");
  if (!c.given(3) || !c.given(4) || !exact(c, eps)) return false;
  c.give(c.to.node("BatchNormalization", {c.x(0), c.x(3), c.x(4), c.x(1), c.x(2)},
                   {{"epsilon", single(eps)}}));
  return true;
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
    {"avg_pool1d", average_pool1d},
    {"avg_pool2d", average_pool2d},
    {"avg_pool3d", average_pool3d},
    {"layer_norm", layer_norm},
    {"instance_norm", instance_norm},
    {"batch_norm_eval", batch_norm_eval},
};

}  // namespace

std::span<const ExportEntry> network_exports() { return network_export_table; }

}  // namespace gradus::onnx
