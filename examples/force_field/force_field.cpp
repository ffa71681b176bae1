// A neural force field of argon: trained on energies and forces, judged on trajectories that it has
// not seen, then used to move the cluster. README.md says what comes out.
#include "examples/command_line.h"
#include "examples/force_field/model.h"
#include "examples/plot.h"

using namespace gradus;
using clusters::Set;
using clusters::Vector;

namespace {

struct Curve {
  Vector x, y;
};

// Root mean square of the differences.
double difference(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

Curve train(ForceField& model, const Set& set, int steps, Random& random) {
  Curve out;
  Stopwatch watch;
  Progress progress("training", steps);
  double loss = 0;
  constexpr int average = 20;
  for (int step = 0; step < steps; ++step) {
    // The rate falls to nearly nothing, by a cosine.
    const double rate = 0.5e-2 * (1.02 + std::cos(std::numbers::pi * step / steps));
    loss += model.train_step(set, random, rate) / average;
    progress.step(step);
    if (step % average != average - 1) continue;
    out.x.push_back(step + 1);
    out.y.push_back(loss);
    loss = 0;
  }
  std::printf("%d training steps of 16 geometries, %.2f ms each\n", steps,
              1e3 * watch.seconds() / steps);
  return out;
}

// The total energy's way from where it began, without a thermostat.
Curve drift(const clusters::Potential& potential, const char* what, int steps) {
  constexpr double dt = 0.005;
  Random random(4);
  const Vector r = clusters::icosahedron();
  clusters::Dynamics now(potential, r, clusters::velocities(r.size(), 45, random));
  Curve out;
  Progress progress(what, steps);
  const double first = now.labels().energy[0] + now.kinetic();
  for (int step = 0; step <= steps; ++step) {
    if (step % 10 == 0) {
      out.x.push_back(step * dt);
      out.y.push_back(now.labels().energy[0] + now.kinetic() - first);
    }
    now.step(dt);
    progress.step(step);
  }
  return out;
}

double largest(const Vector& values) {
  double out = 0;
  for (double v : values) out = std::max(out, std::abs(v));
  return out;
}

Vector every_fourth(const Vector& values) {
  Vector out;
  for (size_t k = 0; k < values.size(); k += 4) out.push_back(values[k]);
  return out;
}

// The mean of the last tenth from that of the first, so that what swings is not called drift.
double net(const Curve& c) {
  const size_t part = std::max<size_t>(c.y.size() / 10, 1);
  double sum = 0;
  for (size_t k = 0; k < part; ++k) sum += c.y[c.y.size() - 1 - k] - c.y[k];
  return std::abs(sum) / static_cast<double>(part);
}

bool run(const CommandLine& line) {
  Random random(1);
  const clusters::Potential truth = lennard_jones();
  const int snapshots = 16;
  const size_t trajectories = line.small ? 12 : 80, held_out = line.small ? 2 : 8;
  const Set train_set = clusters::sample(truth, trajectories - held_out, snapshots, random);
  const Set test_set = clusters::sample(truth, held_out, snapshots, random);
  std::printf("%zu geometries to learn from, %zu held out\n", train_set.size(), test_set.size());

  ForceField model(train_set, random);
  const Curve loss = train(model, train_set, line.steps.value_or(line.small ? 250 : 4000), random);

  const clusters::Labels said = model.potential()(test_set.r);
  const double error = difference(said.force, test_set.labels.force);
  const double size = difference(test_set.labels.force, Vector(test_set.labels.force.size()));
  const double energy_error =
      difference(said.energy, test_set.labels.energy) / static_cast<double>(clusters::atoms);
  std::printf("held-out forces are %.3f meV/angstrom in size\n", size);
  bool right = holds("force error on held-out trajectories, of the size", error / size, 0,
                     line.small ? 0.2 : 0.06);
  right &= holds("energy error on them, meV an atom", energy_error, 0, line.small ? 0.5 : 0.1);

  const int steps = line.small ? 400 : 4000;
  const Curve classical = drift(truth, "classical dynamics", steps);
  const Curve learned = drift(model.potential(), "learned dynamics", steps);
  std::printf("%.0f ps of dynamics from 45 K; energies in meV, of %.0f\n", steps * 0.005,
              std::abs(truth(clusters::icosahedron()).energy[0]));
  holds("total energy swings by, under the classical potential", largest(classical.y), 0, 1);
  right &= holds("total energy swings by, under the learned one", largest(learned.y), 0, 1);
  right &= holds("and drifts by", net(learned), 0, 0.25);

  if (!line.plot.empty()) {
    const double end = largest(test_set.labels.force);
    plot::write_svg(
        line.plot,
        std::vector<plot::Panel>{
            {"Training", "step", "loss", {{"", loss.x, loss.y}}, true},
            {"Forces on held-out trajectories",
             "Lennard-Jones, meV/Å",
             "network, meV/Å",
             {{"components", every_fourth(test_set.labels.force), every_fourth(said.force),
               plot::Mark::points},
              {"equal", {-end, end}, {-end, end}, plot::Mark::dashes}}},
            {"Total energy without a thermostat",
             "time, ps",
             "from the beginning, meV",
             {{"network", learned.x, learned.y}, {"Lennard-Jones", classical.x, classical.y}}}});
    std::printf("wrote %s\n", line.plot.c_str());
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
