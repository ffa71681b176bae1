// A physics-informed network for Burgers' equation beside the exact solution. README.md says what
// comes out.
#include "examples/command_line.h"
#include "examples/plot.h"
#include "examples/training.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr double nu = 0.05, x_first = -1, x_last = 1.5;  // t from 0 to 1

// A front between 1 and 0 that moves at the speed 1/2 and keeps its shape.
double exact(double x, double t) { return 0.5 - 0.5 * std::tanh((x - t / 2) / (4 * nu)); }

Tensor column(const Vector& v) { return matrix(static_cast<int64_t>(v.size()), 1, v); }

// Points of a step: inside, then on the three sides that carry given values.
std::vector<Tensor> draw(Random& random) {
  Vector x, t, x_border, t_border, u_border;
  for (int n = 0; n < 200; ++n) {
    x.push_back(random.uniform(x_first, x_last));
    t.push_back(random.uniform());
  }
  for (int n = 0; n < 90; ++n) {
    const bool start = n % 3 == 0;
    x_border.push_back(start ? random.uniform(x_first, x_last) : n % 3 == 1 ? x_first : x_last);
    t_border.push_back(start ? 0 : random.uniform());
    u_border.push_back(exact(x_border.back(), t_border.back()));
  }
  return {column(x), column(t), column(x_border), column(t_border), column(u_border)};
}

// The network's u at the times, along x.
Vector profile(Runner& network, const std::vector<Tensor>& weights, const Vector& x, double t) {
  const std::vector<Tensor> at{column(x), column(Vector(x.size(), t))};
  return network.run(with(at, weights))[0].to_doubles();
}

bool run(const CommandLine& line) {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/burgers.ir").module;
  TrainingStep training(module.program(), "w1");
  Random random(2);
  Adam adam(layers({2, 24, 24, 1}, random));

  const int steps = line.steps.value_or(line.small ? 1000 : 8000);
  Vector at, losses;
  Stopwatch watch;
  Progress progress("training", steps);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const double rate = 0.5e-2 * (1.01 + std::cos(std::numbers::pi * step / steps));
    loss += training.run(with(draw(random), adam.parameters())) / 50;
    adam.step(training.gradients(), rate);
    progress.step(step);
    if (step % 50 != 49) continue;
    at.push_back(step + 1);
    losses.push_back(loss);
    loss = 0;
  }
  std::printf("%d training steps, %.2f ms each\n", steps, 1e3 * watch.seconds() / steps);

  Runner network(*graph(module, "network"));
  plot::Panel profiles{"Burgers' equation, nu = 0.05", "x", "u", {}};
  plot::Panel errors{"Error", "x", "network - exact", {}};
  Vector x;
  for (int k = 0; k <= 250; ++k) x.push_back(x_first + (x_last - x_first) * k / 250);
  double worst = 0;
  for (int k = 0; k <= 20; ++k) {
    const double t = k / 20.0;
    const Vector u = profile(network, adam.parameters(), x, t);
    Vector truth, error;
    for (size_t i = 0; i < x.size(); ++i) {
      truth.push_back(exact(x[i], t));
      error.push_back(u[i] - truth.back());
      worst = std::max(worst, std::abs(error.back()));
    }
    if (k % 10 != 0) continue;
    const std::string when = fmt::format("t = {}", t);
    errors.series.push_back({when, x, error, plot::Mark::line, k / 10});
    profiles.series.push_back({"network, " + when, x, u, plot::Mark::line, k / 10});
    profiles.series.push_back({k == 20 ? "exact" : "", x, truth, plot::Mark::dashes, 5});
  }
  const bool right =
      holds("largest error against the exact solution", worst, 0, line.small ? 0.05 : 0.003);
  if (!line.plot.empty()) {
    plot::write_svg(line.plot,
                    std::vector<plot::Panel>{
                        {"Training", "step", "loss", {{"", at, losses}}, true}, profiles, errors});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
