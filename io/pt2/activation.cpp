// Activation functions, softmax, dropout.
#include <cmath>

#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

void activation_rule(Call& c) { c.give(unary(c.ours(), in_result_dtype(c))); }

void relu_rule(Call& c) { c.give(positive_part(c.x())); }

void gelu_rule(Call& c) {
  c.give(emit("gelu", {c.x()}, {{"approximate", c.text("approximate", "none")}}));
}

// scale (x > 0 ? x : alpha (e^(input_scale x) - 1))
void elu_rule(Call& c) {
  const double alpha = c.number("alpha", 1), scale = c.number("scale", 1);
  const double input_scale = c.number("input_scale", 1);
  Value x = c.x();
  if (input_scale == 1) return c.give(emit("elu", {x}, {{"alpha", alpha}}) * scale);
  Value above = gt(x, num(0.0));
  Value below = unary("expm1", where(above, num(0.0), x) * input_scale) * (alpha * scale);
  c.give(where(above, x * scale, below));
}

void celu_rule(Call& c) { c.give(emit("celu", {c.x()}, {{"alpha", c.number("alpha", 1)}})); }

void leaky_relu_rule(Call& c) {
  c.give(emit("leaky_relu", {c.x()}, {{"slope", c.number("negative_slope", 0.01)}}));
}

// Its slope is random in training, else the middle one.
void rrelu_rule(Call& c) {
  if (c.flag("training", false))
    c.fail("train-mode rrelu draws random numbers, which it cannot; export the model in eval mode");
  const double lower = c.number("lower", 1.0 / 8), upper = c.number("upper", 1.0 / 3);
  c.give(emit("leaky_relu", {c.x()}, {{"slope", (lower + upper) / 2}}));
}

void prelu_rule(Call& c) { c.give(binary("prelu", c.x(), c.x("weight"))); }

// The weight has the shape that it broadcasts from.
void prelu_kernel_rule(Call& c) {
  Value x = c.x();
  c.give(where(gt(x, num(0.0)), x, x * c.x("weight")));
}

Value six_steps(const Value& x) { return unary("relu6", x + 3.0) / 6.0; }
void hardsigmoid_rule(Call& c) { c.give(six_steps(c.x())); }
void hardswish_rule(Call& c) {
  Value x = c.x();
  c.give(x * six_steps(x));
}

ir::Literal number_or(Call& c, std::string_view name, int64_t absent) {
  return c.given(name) ? number_attribute(c, name) : ir::Literal(absent);
}
void hardtanh_rule(Call& c) {
  c.give(emit("hardtanh", {c.x()},
              {{"min", number_or(c, "min_val", -1)}, {"max", number_or(c, "max_val", 1)}}));
}

void shrink_rule(Call& c) { c.give(emit(c.ours(), {c.x()}, {{"lambd", c.number("lambd", 0.5)}})); }

void softplus_rule(Call& c) {
  c.give(emit("softplus", {c.x()},
              {{"beta", c.number("beta", 1)}, {"threshold", c.number("threshold", 20)}}));
}

void threshold_rule(Call& c) {
  c.give(emit(
      "threshold", {c.x()},
      {{"threshold", number_attribute(c, "threshold")}, {"value", number_attribute(c, "value")}}));
}

void glu_rule(Call& c) {
  Value x = c.x();
  c.give(emit("glu", {x}, {{"dim", c.dim("dim", -1, x.rank())}}));
}

void log_sigmoid_rule(Call& c) {
  c.give(unary("logsigmoid", c.x()));
  if (c.results() > 1) c.give_nothing();  // a buffer of its derivative
}

// Softmax

Value along_rows(std::string_view op, const Value& x, int64_t dim) {
  Value y = emit(op, {as_row(x)}, {{"dim", dim}});
  return x.rank() == 0 ? squeeze(y, 0) : y;
}

void softmax_rule(Call& c) {
  Value x = in_result_dtype(c);
  c.give(along_rows(c.ours(), x, c.dim("dim", x.rank())));
}

// Rows of -inf alone give zeros.
void safe_softmax_rule(Call& c) {
  Value x = in_result_dtype(c);
  const int64_t dim = c.dim("dim", x.rank());
  Value left = ne(as_row(x), num(-INFINITY));
  Value empty = logical_not(emit("any", {left}, {{"dim", dim}, {"keepdim", true}}));
  Value y = emit("softmax", {where(empty, num(0.0), as_row(x))}, {{"dim", dim}});
  y = where(empty, num(0.0), y);
  c.give(x.rank() == 0 ? squeeze(y, 0) : y);
}

// Dropout in eval mode is nothing.

bool drops(Call& c) {
  // native_dropout's flag may be None, which is train mode.
  const bool train = c.given("train") ? c.flag("train", true) : c.op() == "native_dropout.default";
  if (!train || c.number("p", 0.5) == 0) return false;
  c.fail("train-mode dropout draws random numbers, which it cannot; export the model in eval mode");
}

void dropout_rule(Call& c) {
  if (!drops(c)) c.give_same(c.given("input") ? "input" : "self");  // dropout_ calls it self
}

void native_dropout_rule(Call& c) {
  if (drops(c)) return;
  Value x = c.x("input");
  c.give(x);
  if (!c.wants(1)) return c.give_nothing();
  c.give(full(c.world(), x.dims(), 1, DType::boolean));
}

constexpr RuleEntry activation_table[] = {
    {"relu", relu_rule},
    {"relu6", activation_rule},
    {"silu", activation_rule},
    {"mish", activation_rule},
    {"selu", activation_rule},
    {"log_sigmoid", log_sigmoid_rule},
    {"log_sigmoid_forward", log_sigmoid_rule},
    {"gelu", gelu_rule},
    {"elu", elu_rule},
    {"celu", celu_rule},
    {"leaky_relu", leaky_relu_rule},
    {"rrelu", rrelu_rule},
    {"prelu", prelu_rule},
    {"_prelu_kernel", prelu_kernel_rule},
    {"hardsigmoid", hardsigmoid_rule},
    {"hardswish", hardswish_rule},
    {"hardtanh", hardtanh_rule},
    {"hardshrink", shrink_rule},
    {"softshrink", shrink_rule},
    {"softplus", softplus_rule},
    {"threshold", threshold_rule},
    {"glu", glu_rule},
    {"softmax", softmax_rule},
    {"log_softmax", softmax_rule},
    {"_softmax", softmax_rule, "softmax"},
    {"_log_softmax", softmax_rule, "log_softmax"},
    {"special_softmax", softmax_rule, "softmax"},
    {"special_log_softmax", softmax_rule, "log_softmax"},
    {"_safe_softmax", safe_softmax_rule},
    {"dropout", dropout_rule},
    {"feature_dropout", dropout_rule},
    {"alpha_dropout", dropout_rule},
    {"feature_alpha_dropout", dropout_rule},
    {"native_dropout", native_dropout_rule},
};

}  // namespace

constinit const Rules activation_rules = activation_table;

}  // namespace gradus::pt2
