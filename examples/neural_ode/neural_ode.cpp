// A pendulum's motion learned through an ODE solver. README.md says what comes out.
#include "examples/command_line.h"
#include "examples/plot.h"
#include "examples/training.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr double dt = 0.05, noise = 0.01;
constexpr int64_t measured = 200, future = 400;  // states, dt apart: what is learned, and all
constexpr int64_t pieces = 24, length = 30;      // of a training step

struct Pendulum {
  double angle, speed;
};
// angle'' = -4 sin(angle) - 0.25 angle'
Pendulum slope(Pendulum p) { return {p.speed, -4 * std::sin(p.angle) - 0.25 * p.speed}; }

// States dt apart, by a hundred small steps of the midpoint rule between two.
std::vector<Pendulum> truth() {
  std::vector<Pendulum> out{{2.4, 0}};
  while (out.size() <= future) {
    Pendulum p = out.back();
    const double h = dt / 100;
    for (int k = 0; k < 100; ++k) {
      const Pendulum s = slope(p),
                     m = slope({p.angle + h / 2 * s.angle, p.speed + h / 2 * s.speed});
      p = {p.angle + h * m.angle, p.speed + h * m.speed};
    }
    out.push_back(p);
  }
  return out;
}

// Pieces of the measured trajectory: their first states, and those that follow.
std::vector<Tensor> draw(const std::vector<Pendulum>& data, Random& random) {
  Vector first, then(2 * static_cast<size_t>(length * pieces));
  for (size_t b = 0; b < pieces; ++b) {
    const size_t at = random.below(static_cast<size_t>(measured - length));
    first.insert(first.end(), {data[at].angle, data[at].speed});
    for (size_t t = 0; t < length; ++t) {
      then[2 * (t * pieces + b)] = data[at + t + 1].angle;
      then[2 * (t * pieces + b) + 1] = data[at + t + 1].speed;
    }
  }
  return {matrix(pieces, 2, first), Tensor::from(DType::f64, Sizes{length, pieces, 2}, then),
          Tensor::scalar(DType::f64, dt)};
}

// The network's way from the first state to the end, without another look at the data.
std::vector<Pendulum> predict(const ir::Graph& program, const std::vector<Tensor>& weights,
                              Pendulum first) {
  Runner solver(program);
  const std::vector<Tensor> inputs{matrix(1, 2, Vector{first.angle, first.speed}),
                                   Tensor::zeros(DType::f64, Sizes{future, 1, 2}),
                                   Tensor::scalar(DType::f64, dt)};
  const Vector path = solver.run(with(inputs, weights))[1].to_doubles();
  std::vector<Pendulum> out{first};
  for (size_t t = 0; t < path.size(); t += 2) out.push_back({path[t], path[t + 1]});
  return out;
}

// Root mean square of the angle's error.
double error(const std::vector<Pendulum>& a, const std::vector<Pendulum>& b, size_t from,
             size_t to) {
  double sum = 0;
  for (size_t k = from; k < to; ++k) sum += (a[k].angle - b[k].angle) * (a[k].angle - b[k].angle);
  return std::sqrt(sum / static_cast<double>(to - from));
}

Vector times() {
  Vector out;
  for (int64_t k = 0; k <= future; ++k) out.push_back(dt * static_cast<double>(k));
  return out;
}
Vector angles(const std::vector<Pendulum>& path) {
  Vector out;
  for (Pendulum p : path) out.push_back(p.angle);
  return out;
}
Vector speeds(const std::vector<Pendulum>& path) {
  Vector out;
  for (Pendulum p : path) out.push_back(p.speed);
  return out;
}

bool run(const CommandLine& line) {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/neural_ode.ir").module;
  TrainingStep training(module.program(), "w1");
  Random random(7);
  const std::vector<Pendulum> real = truth();
  std::vector<Pendulum> data(real.begin(), real.begin() + measured);
  for (Pendulum& p : data) {
    p.angle += noise * random.normal();
    p.speed += noise * random.normal();
  }

  Adam adam(layers({2, 32, 2}, random));
  const int steps = line.steps.value_or(line.small ? 1000 : 6000);
  Vector at, losses;
  Stopwatch watch;
  Progress progress("training", steps);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const double rate = 0.5e-2 * (1.01 + std::cos(std::numbers::pi * step / steps));
    loss += training.run(with(draw(data, random), adam.parameters())) / 20;
    adam.step(training.gradients(), rate);
    progress.step(step);
    if (step % 20 != 19) continue;
    at.push_back(step + 1);
    losses.push_back(loss);
    loss = 0;
  }
  std::printf("%d training steps of %d pieces, %.2f ms each\n", steps, int{pieces},
              1e3 * watch.seconds() / steps);

  const std::vector<Pendulum> said = predict(module.program(), adam.parameters(), real[0]);
  bool right = holds("angle's error on the measured part, rad", error(said, real, 0, measured), 0,
                     line.small ? 0.3 : 0.05);
  right &= holds("angle's error on the part after it, rad",
                 error(said, real, measured, real.size()), 0, line.small ? 0.3 : 0.05);

  if (!line.plot.empty()) {
    const double end = dt * measured;
    plot::write_svg(line.plot,
                    std::vector<plot::Panel>{
                        {"Training", "step", "loss", {{"", at, losses}}, true},
                        {"Angle from the first state",
                         "time, s",
                         "rad",
                         {{"measured", times(), angles(data), plot::Mark::points, 1},
                          {"network", times(), angles(said), plot::Mark::line, 0},
                          {"pendulum", times(), angles(real), plot::Mark::dashes, 5},
                          {"", {end, end}, {-2.4, 2.4}, plot::Mark::dashes, 2}}},
                        {"Angle and its speed",
                         "rad",
                         "rad/s",
                         {{"network", angles(said), speeds(said), plot::Mark::line, 0},
                          {"pendulum", angles(real), speeds(real), plot::Mark::dashes, 5}}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
