// A Wasserstein GAN with a gradient penalty on a mixture of eight in the plane. README.md says what
// comes out.
#include "examples/command_line.h"
#include "examples/plot.h"
#include "examples/training.h"

using namespace gradus;
using Vector = std::vector<double>;

namespace {

constexpr int modes = 8, critic_steps = 5;
constexpr int64_t batch = 128, noise = 4, width = 64;
constexpr double ring = 2, spread = 0.1;

struct Point {
  double x, y;
};
Point centre(int mode) {
  const double angle = 2 * std::numbers::pi * mode / modes;
  return {ring * std::cos(angle), ring * std::sin(angle)};
}

Tensor real_points(int64_t n, Random& random) {
  Vector values;
  for (int64_t i = 0; i < n; ++i) {
    const Point c = centre(static_cast<int>(random.below(modes)));
    values.push_back(c.x + spread * random.normal());
    values.push_back(c.y + spread * random.normal());
  }
  return matrix(n, 2, values);
}

Tensor mix(Random& random) {
  Vector values(batch);
  for (double& v : values) v = random.uniform();
  return matrix(batch, 1, values);
}

// How samples lie among the modes.
struct Cover {
  double near = 0;    // share of those within four spreads of a centre
  double rarest = 1;  // the smallest mode's share of those, by what it should be
};
Cover cover(const Tensor& samples) {
  std::array<double, modes> counts{};
  const int64_t n = samples.shape()[0];
  for (int64_t i = 0; i < n; ++i)
    for (int m = 0; m < modes; ++m) {
      const Point c = centre(m);
      const double dx = samples.item(2 * i) - c.x, dy = samples.item(2 * i + 1) - c.y;
      if (std::hypot(dx, dy) < 4 * spread) ++counts[static_cast<size_t>(m)];
    }
  Cover out;
  for (double c : counts) out.near += c / static_cast<double>(n);
  out.rarest = *std::min_element(counts.begin(), counts.end()) * modes / static_cast<double>(n);
  return out;
}

class Gan {
 public:
  Gan(const ir::Module& module, Random& random)
      : critic_step_(*graph(module, "critic_loss"), "c1"),
        generator_step_(*graph(module, "generator_loss"), "g1"),
        generate_(*graph(module, "generator")),
        generator_(layers({noise, width, width, 2}, random), 0.5, 0.9),
        critic_(layers({2, width, width, 1}, random), 0.5, 0.9) {}

  // Returns what the critic says of the distance between real points and made ones.
  double step(Random& random, double rate) {
    for (int k = 0; k < critic_steps; ++k) {
      std::vector<Tensor> in{real_points(batch, random), random.normals({batch, noise}, 1),
                             mix(random)};
      critic_step_.run(with(with(in, generator_.parameters()), critic_.parameters()));
      critic_.step(critic_step_.gradients(), rate);
    }
    std::vector<Tensor> in{random.normals({batch, noise}, 1)};
    generator_step_.run(with(with(in, critic_.parameters()), generator_.parameters()));
    generator_.step(generator_step_.gradients(), rate);
    return critic_step_.results()[1].item();
  }
  Tensor samples(int64_t n, Random& random) {
    std::vector<Tensor> in{random.normals({n, noise}, 1)};
    return generate_.run(with(in, generator_.parameters()))[0];
  }

 private:
  TrainingStep critic_step_, generator_step_;
  Runner generate_;
  Adam generator_, critic_;
};

plot::Series cloud(const char* label, const Tensor& points) {
  plot::Series out{label, {}, {}, plot::Mark::points};
  for (int64_t i = 0; i < points.shape()[0]; ++i) {
    out.x.push_back(points.item(2 * i));
    out.y.push_back(points.item(2 * i + 1));
  }
  return out;
}

bool run(const CommandLine& line) {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/wgan_gp.ir").module;
  Random random(3);
  Gan gan(module, random);
  const int steps = line.steps.value_or(line.small ? 400 : 3000);
  Vector at, distances;
  Stopwatch watch;
  Progress progress("training", steps);
  double distance = 0;
  for (int step = 0; step < steps; ++step) {
    const double rate = 2e-3 * (1.02 + std::cos(std::numbers::pi * step / steps));
    distance += gan.step(random, rate) / 20;
    progress.step(step);
    if (step % 20 != 19) continue;
    at.push_back(step + 1);
    distances.push_back(distance);
    distance = 0;
  }
  std::printf("%d steps of the generator, %d of the critic for each: %.2f ms together\n", steps,
              critic_steps, 1e3 * watch.seconds() / steps);

  const Tensor samples = gan.samples(2000, random);
  const Cover c = cover(samples), ideal = cover(real_points(2000, random));
  std::printf("of real points %.3f lie within four spreads of a mode, the rarest has %.2f\n",
              ideal.near, ideal.rarest);
  bool right = holds("of samples so many lie there", c.near, line.small ? 0.45 : 0.88, 1);
  right &= holds("the rarest mode has, of what it should", c.rarest, line.small ? 0.25 : 0.6, 2);
  if (!line.plot.empty()) {
    plot::write_svg(
        line.plot,
        std::vector<plot::Panel>{
            {"Training", "step", "distance, as the critic sees it", {{"", at, distances}}},
            {"A mixture of eight",
             "x",
             "y",
             {cloud("real", real_points(1000, random)),
              cloud("made", gan.samples(1000, random))}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
