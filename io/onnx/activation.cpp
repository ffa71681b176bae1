// Activation functions.
#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

void leaky_relu(Call& c) {
  c.give(emit("leaky_relu", {c.x()}, {{"slope", c.attribute("alpha", 0.01)}}));
}

void with_alpha(Call& c) {
  c.give(emit(c.ours(), {c.x()}, {{"alpha", c.attribute("alpha", 1.0)}}));
}

// gamma (x > 0 ? x : alpha (e^x - 1)), as `elu` has it.
void selu(Call& c) {
  double alpha = c.attribute("alpha", 1.67326319217681884765625);
  double gamma = c.attribute("gamma", 1.05070102214813232421875);
  c.give(emit("elu", {c.x()}, {{"alpha", alpha}}) * gamma);
}

Value between_0_and_1(const Value& x) { return emit("clamp", {x}, {{"min", 0.0}, {"max", 1.0}}); }

void hard_sigmoid(Call& c) {
  double alpha = c.attribute("alpha", 0.2), beta = c.attribute("beta", 0.5);
  c.give(between_0_and_1(c.x() * alpha + beta));
}

void hard_swish(Call& c) {
  Value x = c.x();
  c.give(x * between_0_and_1(x / 6.0 + 0.5));
}

void thresholded_relu(Call& c) {
  c.give(emit("threshold", {c.x()}, {{"threshold", c.attribute("alpha", 1.0)}, {"value", 0.0}}));
}

void shrink(Call& c) {
  double bias = c.attribute("bias", 0.0), lambd = c.attribute("lambd", 0.5);
  Value x = c.x();
  Value below = cast(x + bias, x.dtype()), above = cast(x - bias, x.dtype());
  Value zero = zeros_like(x);
  Value upper = where(gt(x, num(lambd)), above, zero);
  c.give(where(lt(x, num(-lambd)), below, upper));
}

void gelu(Call& c) {
  std::string how = c.attribute("approximate", "none");
  if (how != "none" && how != "tanh") c.fail("there is no approximation '{}'", how);
  c.give(emit("gelu", {c.x()}, {{"approximate", how}}));
}

// x sigmoid(alpha x)
Value swish_of(const Value& x, double alpha) {
  return alpha == 1 ? unary("silu", x) : x * unary("sigmoid", x * alpha);
}
void swish(Call& c) { c.give(swish_of(c.x(), c.attribute("alpha", 1.0))); }
void swiglu(Call& c) {
  if (c.type(0).dims != c.type(1).dims) c.fail("its operands have different sizes");
  c.give(swish_of(c.x(), c.attribute("alpha", 1.0)) * c.x(1));
}

// The slope broadcasts to x; of old it is one for each channel.
void prelu(Call& c) {
  Value x = c.x(), slope = c.x(1);
  if (c.opset() < 7 && slope.rank() == 1) slope = under(slope, 1, x.rank());
  c.give(where(lt(x, num(0.0)), slope * x, x));
}

// Before version 13 all dimensions from `axis` on are one.
struct Rows {
  Value x;
  int axis;
};
Rows rows_of(Call& c) {
  Value x = c.x();
  if (c.opset() >= 13) return {x, c.axis("axis", -1)};
  int axis = c.axis("axis", 1);
  Dims lead(x.dims().begin(), x.dims().begin() + axis);
  Dims rest(x.dims().begin() + axis, x.dims().end());
  return {reshape(x, {ir::numel(lead), ir::numel(rest)}), 1};
}

void softmax(Call& c) {
  Rows r = rows_of(c);
  c.give(reshape(emit(c.ours(), {r.x}, {{"dim", r.axis}}), c.type().dims));
}

// 1 at the first greatest element, 0 elsewhere.
void hardmax(Call& c) {
  Rows r = rows_of(c);
  Value at = emit("argmax", {r.x}, {{"dim", r.axis}});
  const Dim& n = r.x.dims()[static_cast<size_t>(r.axis)];
  Value hot = emit("movedim", {emit("one_hot", {at}, {{"classes", n}})},
                   {{"source", -1}, {"destination", r.axis}});
  c.give(reshape(cast(hot, r.x.dtype()), c.type().dims));
}

constexpr RuleEntry activation_table[] = {
    {"Relu", 1, unary_rule, "relu"},
    {"Sigmoid", 1, unary_rule, "sigmoid"},
    {"Tanh", 1, unary_rule, "tanh"},
    {"Softplus", 1, unary_rule, "softplus"},
    {"Softsign", 1, unary_rule, "softsign"},
    {"Mish", 18, unary_rule, "mish"},
    {"Gelu", 20, gelu},
    {"Swish", 24, swish},
    {"SwiGLU", 28, swiglu},
    {"LeakyRelu", 1, leaky_relu},
    {"Elu", 1, with_alpha, "elu"},
    {"Celu", 12, with_alpha, "celu"},
    {"Selu", 1, selu},
    {"HardSigmoid", 1, hard_sigmoid},
    {"HardSwish", 14, hard_swish},
    {"ThresholdedRelu", 10, thresholded_relu},
    {"Shrink", 9, shrink},
    {"PRelu", 1, prelu},
    {"Softmax", 1, softmax, "softmax"},
    {"LogSoftmax", 1, softmax, "log_softmax"},
    {"Hardmax", 1, hardmax},
};

}  // namespace

constinit const Rules activation_rules = activation_table;

}  // namespace gradus::onnx
