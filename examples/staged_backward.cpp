// Newton's method in one dimension for each of many: the function, its gradient and the gradient of
// that are three stages of one program.
#include <cmath>
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

// The least of cosh(x - a) + (x - a)^2 / 2 is at x = a.
constexpr const char* text = R"(
graph valley {
  stage 0 (%x: f64[N], %a: f64[N]) {
    %d = sub(%x, %a)
    %c = cosh(%d)
    %q = square(%d)
    %h = div(%q, 2)
    %f = add(%c, %h)
    %y = sum(%f)
    return %y
  }
}
)";

int run() {
  ir::Module module = ir::parse(text, "valley.ir");
  auto code = Code::compile(
      ir::differentiate(module.program(), {.order = 2, .wrt = std::vector<std::string>{"x"}}));
  for (size_t s = 0; s < code->stages(); ++s) {
    std::printf("stage %zu takes", s);
    for (size_t i = 0; i < code->inputs(s); ++i) std::printf(" %s", code->input_name(s, i).c_str());
    std::printf(" and gives");
    for (const ir::Result& r : code->results(s)) std::printf(" %s", r.name.c_str());
    std::printf("\n");
  }

  const std::vector<double> a{-1, 0.25, 3};
  std::vector<double> x{2, 2, 2};
  const Tensor centre = Tensor::from(DType::f64, Sizes{3}, a);
  const Tensor one = Tensor::scalar(DType::f64, 1);
  const Tensor ones = Tensor::from(DType::f64, Sizes{3}, std::vector<double>(3, 1));
  State state(code);
  for (int step = 0; step < 8; ++step) {
    state.restart();
    double y = state.run(std::array{Tensor::from(DType::f64, Sizes{3}, x), centre})[0].item();
    std::vector<double> slope = state.run(std::array{one})[0].to_doubles();
    // The Hessian is diagonal, so that its product with ones is the diagonal.
    std::vector<double> bend = state.run(std::array{ones})[0].to_doubles();
    for (size_t i = 0; i < x.size(); ++i) x[i] -= slope[i] / bend[i];
    std::printf("step %d: y = %.12f\n", step, y);
  }
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(x[i] - a[i]));
  return worst < 1e-12 ? 0 : 1;
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
