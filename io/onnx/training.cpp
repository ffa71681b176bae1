// Steps of optimisers, and Gradient, of the preview operators for training.
#include <onnx/onnx_pb.h>

#include "gradus/messages.h"
#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Inputs are the rate, the step's number, then of n tensors the values, the gradients, and one or
// two states each.
size_t tensors(Call& c, size_t states) {
  size_t kinds = 2 + states, n = c.inputs() < 2 ? 0 : (c.inputs() - 2) / kinds;
  if (n == 0 || c.inputs() != 2 + n * kinds) c.fail("it has a wrong number of inputs");
  return n;
}

// r / (1 + decay t)
Value decayed(Call& c) {
  return c.x(0) / (cast(c.x(1), c.dtype(0)) * c.attribute("decay_factor", 0.0) + 1.0);
}

void adagrad(Call& c) {
  size_t n = tensors(c, 1);
  double norm = c.attribute("norm_coefficient", 0.0), epsilon = c.attribute("epsilon", 0.0);
  Value rate = decayed(c);
  std::vector<Value> states;
  for (size_t i = 0; i < n; ++i) {
    Value x = c.x(2 + i), g = x * norm + c.x(2 + n + i);
    Value h = c.x(2 + 2 * n + i) + g * g;
    c.give(x - rate * g / (unary("sqrt", h) + epsilon));
    states.push_back(h);
  }
  for (const Value& h : states) c.give(h);
}

void adam(Call& c) {
  size_t n = tensors(c, 2);
  double alpha = c.attribute("alpha", 0.9), beta = c.attribute("beta", 0.999);
  double norm = c.attribute("norm_coefficient", 0.0),
         after = c.attribute("norm_coefficient_post", 0.0);
  double epsilon = c.attribute("epsilon", 0.0);
  Value rate = c.x(0), step = cast(c.x(1), c.dtype(0));
  // The moments of the first steps are too small by 1 - alpha^t and 1 - beta^t; before them, there
  // is nothing to mend (nor to divide by).
  Value begun = gt(step, num(0.0));
  Value t = where(begun, step, num(1.0));
  Value up = unary("sqrt", 1.0 - binary("pow", num(beta), t));
  Value mended = rate * up / (1.0 - binary("pow", num(alpha), t));
  rate = where(begun, mended, rate);
  std::vector<Value> first, second;
  for (size_t i = 0; i < n; ++i) {
    Value x = c.x(2 + i), g = x * norm + c.x(2 + n + i);
    Value v = c.x(2 + 2 * n + i) * alpha + g * (1 - alpha);
    Value h = c.x(2 + 3 * n + i) * beta + g * g * (1 - beta);
    c.give((x - rate * v / (unary("sqrt", h) + epsilon)) * (1 - after));
    first.push_back(v);
    second.push_back(h);
  }
  for (const Value& v : first) c.give(v);
  for (const Value& h : second) c.give(h);
}

void momentum(Call& c) {
  size_t n = tensors(c, 1);
  double alpha = c.attribute("alpha", 0.0), beta = c.attribute("beta", 0.0);
  double norm = c.attribute("norm_coefficient", 0.0);
  bool nesterov = c.attribute("mode", "standard") == "nesterov";
  Value rate = c.x(0);
  // In the first step the gradient counts in full.
  Value step = where(gt(c.x(1), num(int64_t{0})), num(beta), num(1.0));
  step = cast(step, c.dtype(0));
  std::vector<Value> states;
  for (size_t i = 0; i < n; ++i) {
    Value x = c.x(2 + i), g = x * norm + c.x(2 + n + i);
    Value v = c.x(2 + 2 * n + i) * alpha + g * step;
    c.give(nesterov ? x - rate * (g + v * alpha) : x - rate * v);
    states.push_back(v);
  }
  for (const Value& v : states) c.give(v);
}

// dy / dx of values that the graph has, where its inputs stand for the x: summed over y's elements.
void gradient(Call& c) {
  std::vector<std::string> xs = c.texts("xs");
  if (!c.texts("zs").empty()) c.unsupported("Gradient with zs");
  ItemPtr y = c.importer().find(c.attribute("y", ""));
  if (!y) c.fail("there is no value '{}'", printable(c.attribute("y", "")));
  std::vector<Value> operands{c.importer().in_program(*y)};
  if (operands[0].rank() > 0) operands[0] = sum_all(operands[0]);
  for (const std::string& name : xs) {
    ItemPtr x = c.importer().find(name);
    if (!x) c.fail("there is no value '{}'", printable(name));
    operands.push_back(c.importer().in_program(*x));
  }
  for (Value& dx : emit_all(c.world(), "grad", operands)) c.give(dx);
}

constexpr RuleEntry training_table[] = {
    {"ai.onnx.preview.training.Adagrad", 1, adagrad},
    {"ai.onnx.preview.training.Adam", 1, adam},
    {"ai.onnx.preview.training.Momentum", 1, momentum},
    {"ai.onnx.preview.training.Gradient", 1, gradient, {}, false},
};

}  // namespace

constinit const Rules training_rules = training_table;

}  // namespace gradus::onnx
