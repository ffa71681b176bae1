// A program from its text: compiled once, run for two sizes.
#include <cmath>
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

constexpr const char* text = R"(
graph softplus {
  stage 0 (%x: f64[N]) {
    %e = exp(%x)
    %y = log1p(%e)
    %total = sum(%y)
    return %y, %total
  }
}
)";

int run() {
  ir::Module module = ir::parse(text, "softplus.ir");
  std::shared_ptr<const Code> code = Code::compile(module.program());
  double worst = 0;
  for (const std::vector<double>& x : {std::vector<double>{0, 1}, {-2, 0.5, 3}}) {
    State state(code);  // a run of its own; the code is shared
    const Sizes shape{static_cast<int64_t>(x.size())};
    std::vector<Tensor> out = state.run(std::array{Tensor::from(DType::f64, shape, x)});
    std::printf("%s, total %.6f\n", describe(out[0]).c_str(), out[1].item());
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(
          worst, std::fabs(out[0].item(static_cast<int64_t>(i)) - std::log1p(std::exp(x[i]))));
  }
  // What is wrong is an error with a place and what to do.
  try {
    ir::parse("graph g { stage 0 (%x: f64[]) { %y = sinn(%x) return %y } }", "wrong.ir");
    return 1;
  } catch (const Error& e) {
    std::printf("%s\n", e.what());
  }
  return worst < 1e-14 ? 0 : 1;
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
