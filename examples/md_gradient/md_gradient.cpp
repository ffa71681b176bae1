// The gradient of a molecular dynamics trajectory, in little memory. README.md says what comes out.
#include <fstream>
#include <iterator>

#include "examples/command_line.h"
#include "examples/force_field/clusters.h"
#include "examples/plot.h"

using namespace gradus;
using clusters::Vector;

namespace {

constexpr double eps = 10.3236, sigma = 3.405;  // argon's, in meV and angstrom
constexpr int64_t pairs = clusters::atoms * (clusters::atoms - 1) / 2;

// The programs for so many steps. `kept` is what the loops say of what derivatives keep of them.
ir::Module programs(int64_t steps, const std::string& kept = "") {
  const std::string path = EXAMPLE_FOLDER "/md_gradient.ir";
  std::ifstream file(path);
  if (!file) throw Error("cannot read '{}'", path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  auto replace = [&](const std::string& old, const std::string& now) {
    for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += now.size())
      text.replace(at, old.size(), now);
  };
  replace("length = 1000", fmt::format("length = {}{}", steps, kept));
  replace("div(%sum, 1000)", fmt::format("div(%sum, {})", steps));
  return ir::parse(std::move(text), path);
}

std::string every(int64_t k) { return fmt::format(", checkpoint = {}", k); }
std::string two_levels(int64_t outer, int64_t inner) {
  return fmt::format(", checkpoint = [{}, {}]", outer, inner);
}

// Positions, velocities and pairs: a cold cluster, so that its atoms swing about their places and
// two trajectories that begin side by side stay side by side.
std::vector<Tensor> cluster() {
  Random random(3);
  const Sizes shape{clusters::atoms, 3};
  const Vector x = clusters::icosahedron(), v = clusters::velocities(x.size(), 10, random);
  Vector i, j;
  for (int64_t a = 0; a < clusters::atoms; ++a)
    for (int64_t b = 0; b < a; ++b) {
      i.push_back(static_cast<double>(a));
      j.push_back(static_cast<double>(b));
    }
  return {Tensor::from(DType::f64, shape, x), Tensor::from(DType::f64, shape, v),
          Tensor::from(DType::i64, Sizes{pairs}, i), Tensor::from(DType::i64, Sizes{pairs}, j)};
}

std::vector<Tensor> with_potential(std::vector<Tensor> cluster, double e, double s) {
  cluster.push_back(Tensor::scalar(DType::f64, e));
  cluster.push_back(Tensor::scalar(DType::f64, s));
  return cluster;
}

// The cluster's mean size on its way, and the size's slopes by eps and sigma: stages 0 and 1.
class Trajectory {
 public:
  Trajectory(int64_t steps, const std::string& kept)
      : state_(Code::compile(ir::differentiate(*graph(programs(steps, kept), "trajectory"),
                                               {.order = 1, .wrt = {{"eps", "sigma"}}})),
               Context::default_context(), {.fusion = FusionMode::first}),
        memory_(state_.prepare({})) {}

  double size(double e, double s) {
    state_.restart();
    return state_.run(with_potential(cluster_, e, s))[0].item();
  }
  Vector gradient() {
    size(eps, sigma);
    const auto slopes = state_.run(std::array{Tensor::scalar(DType::f64, 1)});
    return {slopes[0].item(), slopes[1].item()};
  }
  // What stage 0 leaves for stage 1, and the memory that stages work in.
  double bytes() const {
    return static_cast<double>(memory_[0].held + std::max(memory_[0].buffer, memory_[1].buffer));
  }

 private:
  const std::vector<Tensor> cluster_ = cluster();
  State state_;
  std::vector<StageMemory> memory_;
};

// Slopes by differences of whole trajectories.
Vector differences(Trajectory& trajectory) {
  const double h = 1e-5;
  auto between = [&](double e, double s) {
    return trajectory.size(eps * (1 + e), sigma * (1 + s)) -
           trajectory.size(eps * (1 - e), sigma * (1 - s));
  };
  return {between(h, 0) / (2 * h * eps), between(0, h) / (2 * h * sigma)};
}

// The same gradient with more and less in memory.
bool compare(int64_t steps) {
  const auto root = static_cast<int64_t>(std::round(std::sqrt(static_cast<double>(steps))));
  const auto third = static_cast<int64_t>(std::round(std::cbrt(static_cast<double>(steps))));
  const int64_t budget = 128 << 10;
  const std::vector<std::pair<std::string, std::string>> ways{
      {"every step", ""},
      {fmt::format("the carries before every {}th step", root), every(root)},
      {fmt::format("segments of {}, in segments of {}", third, third * third),
       two_levels(third * third, third)},
      {fmt::format("a budget of {} KiB", budget >> 10), fmt::format(", memory = {}", budget)}};
  Vector first;
  bool right = true;
  int other_bits = 0;
  std::printf("%-42s %10s %10s\n", "what the gradient keeps", "KiB", "ms");
  for (const auto& [what, kept] : ways) {
    Trajectory trajectory(steps, kept);
    const Vector g = trajectory.gradient();
    double fastest = 1e9;
    for (int round = 0; round < 5; ++round) {
      Stopwatch watch;
      other_bits += trajectory.gradient() != g;
      fastest = std::min(fastest, watch.seconds());
    }
    std::printf("%-42s %10.1f %10.2f\n", what.c_str(), trajectory.bytes() / 1024, 1e3 * fastest);
    if (!kept.empty()) {
      other_bits += g != first;
      continue;
    }
    first = g;
    const double size = trajectory.size(eps, sigma);
    std::printf("%lld steps: a size of %.4f angstrom, d/d eps %.6f, d/d sigma %.6f\n",
                static_cast<long long>(steps), size, g[0], g[1]);
    const Vector d = differences(trajectory);
    right &=
        holds("d/d eps off central differences, of its size", std::abs(g[0] / d[0] - 1), 0, 1e-6);
    right &=
        holds("d/d sigma off central differences, of its size", std::abs(g[1] / d[1] - 1), 0, 1e-6);
  }
  return right & holds("gradients with other bits", other_bits, 0, 0);
}

// Bytes over numbers of steps that are sixth powers, so that both roots are whole.
struct Growth {
  Vector steps, all, segments, levels;
  static double power(const Vector& x, const Vector& y) {
    const size_t n = x.size();
    return std::log(y[n - 1] / y[n - 2]) / std::log(x[n - 1] / x[n - 2]);
  }
};
Growth grow(int64_t most) {
  Growth out;
  Progress progress("planning", static_cast<int>(most));
  for (int64_t n = 2; n <= most; ++n) {
    const int64_t third = n * n, root = third * n, steps = root * root;
    out.steps.push_back(static_cast<double>(steps));
    out.all.push_back(Trajectory(steps, "").bytes());
    out.segments.push_back(Trajectory(steps, every(root)).bytes());
    out.levels.push_back(Trajectory(steps, two_levels(third * third, third)).bytes());
    progress.step(static_cast<int>(n));
  }
  return out;
}

bool run(const CommandLine& line) {
  const int64_t steps = line.steps.value_or(line.small ? 200 : 1000);
  bool right = compare(steps);

  const Growth growth = grow(line.small ? 4 : 6);
  right &= holds("everything kept grows as this power of the steps",
                 Growth::power(growth.steps, growth.all), 0.95, 1.05);
  right &=
      holds("segments grow as this power", Growth::power(growth.steps, growth.segments), 0.4, 0.55);
  right &= holds("segments in segments grow as this power",
                 Growth::power(growth.steps, growth.levels), 0.2, 0.38);

  Runner dynamics(*graph(programs(steps), "energies"));
  const Vector energies = dynamics.run(with_potential(cluster(), eps, sigma))[0].to_doubles();
  Vector time, off;
  double worst = 0;
  for (double e : energies) {
    time.push_back(0.005 * static_cast<double>(time.size() + 1));
    off.push_back(e - energies[0]);
    worst = std::max(worst, std::abs(off.back()));
  }
  std::printf("total energy %.3f meV\n", energies[0]);
  right &= holds("total energy swings by, meV", worst, 0, 0.05);

  if (!line.plot.empty()) {
    auto kib = [](Vector bytes) {
      for (double& b : bytes) b /= 1024;
      return bytes;
    };
    plot::write_svg(
        line.plot, std::vector<plot::Panel>{
                       {.title = "Memory of the gradient",
                        .x_label = "steps T",
                        .y_label = "KiB",
                        .series = {{"every step", growth.steps, kib(growth.all)},
                                   {"segments of √T", growth.steps, kib(growth.segments)},
                                   {"two levels", growth.steps, kib(growth.levels)}},
                        .log_y = true,
                        .log_x = true},
                       {"Total energy", "time, ps", "from the beginning, meV", {{"", time, off}}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
