// A function with a backward of one's own, and a gradient penalty that differentiates through it.
#include <cmath>
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;
using namespace gradus::autograd;

namespace {

// log(1 + exp(x)), computed so that it neither overflows nor loses small values.
class Softplus final : public CustomFunction {
 public:
  std::string name() const override { return "Softplus"; }
  std::vector<Tensor> forward(FunctionContext& context,
                              std::span<const Variable> inputs) const override {
    context.save({inputs[0]});
    std::vector<double> y = inputs[0].data().to_doubles();
    for (double& v : y) v = std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v)));
    return {Tensor::from(DType::f64, inputs[0].shape(), y)};
  }
  // With operators on variables, so that it can be differentiated again.
  Variables backward(FunctionContext& context, const Variables& cotangents) const override {
    Variable slope = autograd::apply("sigmoid", {context.saved()[0]})[0];
    return autograd::apply("mul", {cotangents[0], slope});
  }
};

int run() {
  Variable x(Tensor::from(DType::f64, Sizes{3}, std::vector<double>{-800, 0.5, 800}), true);
  Variable y = CustomFunction::apply(std::make_shared<Softplus>(), std::array{x})[0];
  std::vector<double> values = y.data().to_doubles();
  std::printf("softplus: %g %g %g\n", values[0], values[1], values[2]);

  // The sum of the squared slopes, and its gradient: 2 s s (1 - s), s = sigmoid(x).
  Variable total = apply("sum", {y})[0];
  Variable slope = grad(std::array{total}, std::array{x}, {}, {.create_graph = true})[0];
  Variable penalty = apply("sum", {apply("square", {slope})[0]})[0];
  penalty.backward();
  std::vector<double> d = x.grad().data().to_doubles();
  std::printf("penalty %.12f, its gradient %g %.12f %g\n", penalty.data().item(), d[0], d[1], d[2]);

  const double s = 1 / (1 + std::exp(-0.5));
  const bool right = values[0] == 0 && values[2] == 800 &&
                     std::fabs(penalty.data().item() - (s * s + 1)) < 1e-12 && d[0] == 0 &&
                     std::fabs(d[1] - 2 * s * s * (1 - s)) < 1e-12 && d[2] == 0;
  return right ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const Exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
