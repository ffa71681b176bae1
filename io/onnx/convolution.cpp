// Products of matrices, and convolutions.
#include "io/onnx/windows.h"

namespace gradus::onnx {

using namespace ops;

namespace {

Value with_bias(Call& c, const Value& y) {
  if (!c.given(2)) return y;
  Value b = c.x(2);
  if (b.rank() != 1) c.fail("its bias is a list");
  return y + under(b, 1, y.rank());
}

LiteralList attributes_of(const Window& w, const Ints& padding, int64_t groups) {
  return {{"stride", Literal::list(w.stride)},
          {"padding", Literal::list(padding)},
          {"dilation", Literal::list(w.dilation)},
          {"groups", groups}};
}

void conv(Call& c) {
  Value x = c.x();
  Window w = kernel_window_of(c, x.dims(), c.type(1).dims);
  int64_t groups = c.attribute("group", int64_t{1});
  auto pads = w.symmetric_pads();
  for (int64_t p : pads.value_or(Ints{}))
    if (p < 0) pads.reset();
  if (!pads) x = padded(x, w, 0);
  size_t spatial = w.kernel.size();
  Ints padding = pads.value_or(Ints(spatial, 0));
  std::vector<Value> operands{x, c.x(1)};
  if (c.given(2)) operands.push_back(c.x(2));
  c.give(emit_all(c.world(), fmt::format("conv{}d", spatial), operands,
                  attributes_of(w, padding, groups))[0]);
}

// How much of the whole result is cut off before and after, along dimension d.
struct Cut {
  Dim before, after;
};
Cut cut_of(Call& c, const Window& w, size_t d, const Dim& in, const Dim& whole, int64_t extra) {
  auto shape = c.integers("output_shape");
  std::string automatic = c.attribute("auto_pad", "NOTSET");
  bool same = automatic.starts_with("SAME");
  if (!shape && !same) return {w.before[d], w.after[d]};
  // The pads follow from the result's size: as many elements as asked for, or as there are strides.
  size_t n = w.kernel.size();
  if (shape && shape->size() != n && shape->size() != n + 2)
    c.fail("attribute 'output_shape' has {} numbers, {} are wanted", shape->size(), n);
  Dim out = shape ? Dim((*shape)[shape->size() - n + d]) : in * Dim(w.stride[d]);
  Dim total = whole + Dim(extra) - out, half = floor_div(total, 2);
  bool upper = automatic == "SAME_UPPER";
  Dim before = upper ? half : total - half;
  return {before, total - before};
}

// Pads take away from the result: all of it is made, and cut.
void conv_transpose(Call& c) {
  Value x = c.x();
  Window w = kernel_window_of(c, x.dims(), c.type(1).dims);
  size_t n = w.kernel.size();
  Ints extra = c.integers("output_padding").value_or(Ints(n, 0));
  if (extra.size() != n) c.fail("attribute 'output_padding' has not {} numbers", n);
  Dims full, amounts(2 * n, 0);
  for (size_t d = 0; d < n; ++d) {
    const Dim& in = x.dims()[d + 2];
    full.push_back((in - Dim(1)) * Dim(w.stride[d]) + Dim(w.reach(d)));
    Cut cut = cut_of(c, w, d, in, full[d], extra[d]);
    size_t at = 2 * (n - 1 - d);
    amounts[at] = Dim(0) - cut.before;
    amounts[at + 1] = Dim(extra[d]) - cut.after;
  }
  LiteralList attributes = attributes_of(w, Ints(n, 0), c.attribute("group", int64_t{1}));
  attributes.push_back({"size", Literal::list(full)});
  Value y = emit("convolution_input", {x, c.x(1)}, attributes);
  y = emit("constant_pad_nd", {y}, {{"pad", Literal::list(amounts)}});
  c.give(with_bias(c, y));
}

void product(Call& c) { c.give(matmul(c.x(), c.x(1))); }

// alpha a' b' + beta c
void gemm(Call& c) {
  Value a = c.x(), b = c.x(1);
  if (a.rank() != 2 || b.rank() != 2) c.fail("it wants two matrices");
  if (c.flag("transA")) a = swap_last(a);
  if (c.flag("transB")) b = swap_last(b);
  Value y = mm(a, b) * c.attribute("alpha", 1.0);
  double beta = c.attribute("beta", 1.0);
  if (c.given(2)) y = y + c.x(2) * beta;
  c.give(cast(y, a.dtype()));
}

void einsum(Call& c) {
  std::vector<Value> operands;
  for (size_t i = 0; i < c.inputs(); ++i) operands.push_back(c.x(i));
  c.give(emit_all(c.world(), "einsum", operands, {{"equation", c.attribute("equation", "")}})[0]);
}

constexpr RuleEntry convolution_table[] = {
    {"Conv", 1, conv},      {"ConvTranspose", 1, conv_transpose},
    {"MatMul", 1, product}, {"Gemm", 1, gemm},
    {"Einsum", 12, einsum}, {"Det", 11, unary_rule, "det"},
};

}  // namespace

constinit const Rules convolution_rules = convolution_table;

}  // namespace gradus::onnx
