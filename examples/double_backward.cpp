// A second derivative through a C++ function that Gradus knows nothing of: the stages of
// double_backward.ir ask the autograd engine for its derivatives, by `eval`.
#include <cmath>
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;
using autograd::Variable;
using autograd::Variables;

namespace {

// x sigmoid(x). Its derivatives, of any order, come from the operators that it calls.
class Swish final : public autograd::CppFunction {
 public:
  std::string name() const override { return "swish"; }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    if (operands.size() != 1 || !operands[0].is_floating())
      throw Error("it takes one floating operand");
    return {operands[0]};
  }
  Variables call(std::span<const Variable> x) const override {
    return autograd::apply("mul", {x[0], autograd::apply("sigmoid", {x[0]})[0]});
  }
};

int run(const char* file) {
  ops::register_function(std::make_shared<Swish>());
  auto code = Code::compile(ir::parse_file(file).module.program());
  auto vector = [](double a, double b) {
    return Tensor::from(DType::f64, Sizes{2}, std::vector<double>{a, b});
  };
  State state(code);
  const Tensor y = state.run(std::array{vector(1, 2), vector(3, -1)})[0];
  State before = state.clone();  // to run stage 1 again, with another cotangent
  std::vector<Tensor> d1 = state.run(std::array{Tensor::scalar(DType::f64, 1)});
  std::vector<Tensor> d2 = state.run(std::array{vector(1, 0), vector(0, 0)});
  std::vector<Tensor> twice = before.run(std::array{Tensor::scalar(DType::f64, 2)});
  std::printf("y = %.12f\ndy/dx = %.12f, %.12f\nd2y/dx0dx0 = %.12f\n", y.item(), d1[0].item(0),
              d1[0].item(1), d2[0].item(0));

  // By hand: swish' = s + h s (1 - s), swish'' = s (1 - s) (2 + h (1 - 2 s)), at h = x w = 3.
  const double h = 3, w = 3, s = 1 / (1 + std::exp(-h));
  const double first = w * (s + h * s * (1 - s));
  const double second = w * w * s * (1 - s) * (2 + h * (1 - 2 * s));
  const bool right = std::fabs(d1[0].item(0) - first) < 1e-12 &&
                     std::fabs(d2[0].item(0) - second) < 1e-12 &&
                     std::fabs(twice[0].item(0) - 2 * first) < 1e-12;
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "examples/double_backward.ir");
  } catch (const Exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
