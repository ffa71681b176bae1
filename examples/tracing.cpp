// A C++ function over variables, recorded as a program: forward, then its backward stages while the
// backwards run. The program runs in the function's place, and can be printed and kept.
#include <cstdio>

#include "gradus/gradus.h"

using namespace gradus;
using namespace gradus::autograd;

namespace {

Variable op(const char* name, std::initializer_list<VariableOperand> operands) {
  return autograd::apply(name, operands)[0];
}

// Two steps of a recurrence; the loop is unrolled by recording it.
Variables recurrence(std::span<const Variable> inputs) {
  Variable h = op("tanh", {inputs[0]});
  for (int step = 0; step < 2; ++step)
    h = op("tanh", {op("add", {op("mul", {h, inputs[1]}), inputs[0]})});
  return {op("sum", {h})};
}

Variable vector(double a, double b) {
  return Variable(Tensor::from(DType::f64, Sizes{2}, std::vector<double>{a, b}), true);
}

int run() {
  Variable x = vector(0.5, -1), w = vector(0.25, 2);
  auto [program, y] =
      trace(recurrence, std::array{x, w}, {.order = 2, .name = "recurrence", .inputs = {"x", "w"}});
  // Whoever runs a backward of what came out has it recorded.
  Variables d = grad(y, std::array{x, w}, {}, {.create_graph = true});
  std::printf("recorded %zu stages\n", program.graph().stages.size());
  op("sum", {d[0]}).backward();
  std::printf("recorded %zu stages\n%s", program.graph().stages.size(),
              ir::print(program.graph()).c_str());

  // The same bits as the function, at every order, on inputs that were not recorded.
  verify(program, recurrence, std::array{vector(1.5, 0.125), vector(-2, 0.75)});

  // In the function's place, as one node of a graph.
  Variable u = vector(0.1, 0.2), v = vector(0.3, 0.4);
  program(std::array{u, v})[0].backward();
  Variable u2 = vector(0.1, 0.2), v2 = vector(0.3, 0.4);
  recurrence(std::array{u2, v2})[0].backward();
  return bitwise_equal(u.grad().data(), u2.grad().data()) && program.complete() ? 0 : 1;
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
