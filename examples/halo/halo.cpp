// A crystal that ranks share out in slabs: energy of all, forces by the derivative of the exchange
// between neighbours, and training through the forces. README.md says what comes out.
#include "examples/ranks.h"
#include "examples/training.h"

using namespace gradus;

namespace {

constexpr double cell = 5.26, cutoff = 7.5;   // angstrom
constexpr int long_cells = 12, cells = 2;     // along x, and along y and z, which are periodic, too
constexpr double eps = 10.32, sigma = 3.405;  // meV, angstrom

using Point = std::array<double, 3>;

// Four atoms a cell, moved a little, in order of their x: the same on every rank.
std::vector<Point> crystal() {
  Random random(7);
  const Point corners[] = {{0, 0, 0}, {0, 0.5, 0.5}, {0.5, 0, 0.5}, {0.5, 0.5, 0}};
  std::vector<Point> atoms;
  for (int x = 0; x < long_cells; ++x)
    for (int y = 0; y < cells; ++y)
      for (int z = 0; z < cells; ++z)
        for (const Point& c : corners) {
          const double place[] = {x + c[0], y + c[1], z + c[2]};
          Point& atom = atoms.emplace_back();
          for (size_t k = 0; k < 3; ++k) atom[k] = cell * place[k] + 0.1 * random.normal();
        }
  return atoms;
}

Tensor tensor_of(const std::vector<Point>& points) {
  std::vector<double> flat;
  for (const Point& p : points) flat.insert(flat.end(), p.begin(), p.end());
  return Tensor::from(DType::f64, Sizes{static_cast<int64_t>(points.size()), 3}, flat);
}

// What one rank begins with.
struct Slab {
  std::vector<Point> atoms;
  Tensor edges, shifts;
};

Slab slab_of(int rank, int ranks) {
  const std::vector<Point> all = crystal();
  const size_t n = all.size() / static_cast<size_t>(ranks);
  auto atoms_of = [&](int r) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(r) * n);
    return std::vector<Point>(first, first + static_cast<ptrdiff_t>(n));
  };
  Slab slab{atoms_of(rank), {}, {}};
  // Own atoms and ghosts, and by how much x of those is off where they come from the other end.
  struct Part {
    std::vector<Point> atoms;
    double x;
  };
  const Part parts[] = {{slab.atoms, 0},
                        {atoms_of((rank + ranks - 1) % ranks), rank == 0 ? -long_cells * cell : 0},
                        {atoms_of((rank + 1) % ranks), rank == ranks - 1 ? long_cells * cell : 0}};
  std::vector<double> from, to;
  std::vector<Point> shifts;
  for (size_t i = 0; i < n; ++i)
    for (size_t p = 0; p < 3; ++p)
      for (size_t j = 0; j < n; ++j)
        for (int y = -1; y <= 1; ++y)
          for (int z = -1; z <= 1; ++z) {
            if (p == 0 && i == j && y == 0 && z == 0) continue;
            const Point shift{parts[p].x, y * cells * cell, z * cells * cell};
            double d2 = 0;
            for (size_t k = 0; k < 3; ++k) {
              const double d = parts[p].atoms[j][k] + shift[k] - slab.atoms[i][k];
              d2 += d * d;
            }
            if (d2 >= cutoff * cutoff) continue;
            from.push_back(static_cast<double>(i));
            to.push_back(static_cast<double>(p * n + j));
            shifts.push_back(shift);
          }
  const auto count = static_cast<int64_t>(from.size());
  from.insert(from.end(), to.begin(), to.end());
  slab.edges = Tensor::from(DType::i64, Sizes{2, count}, from);
  slab.shifts = tensor_of(shifts);
  return slab;
}

struct Found {
  double energy = 0;
  std::vector<double> losses, force;  // those of the rank's atoms
  double eps = 0, sigma = 0;
};

// Forces of the true parameters are what is to be learned, from wrong ones.
Found train(const ir::Graph& program, const Ranks& ranks, int steps) {
  const Slab slab = slab_of(ranks->rank(), ranks->size());
  const auto context = context_of("line", ranks);
  auto number = [](double x) { return Tensor::scalar(DType::f64, x); };
  auto inputs = [&](const Tensor& reference, const std::vector<Tensor>& parameters) {
    return with({tensor_of(slab.atoms), slab.edges, slab.shifts, reference, number(cutoff)},
                parameters);
  };
  TrainingStep step(program, "eps", context);
  const Tensor none = tensor_of(std::vector<Point>(slab.atoms.size(), Point{}));
  step.run(inputs(none, {number(eps), number(sigma)}));
  const Tensor reference = step.results()[2];
  Found found{.energy = step.results()[1].item(), .losses = {}, .force = reference.to_doubles()};
  Adam parameters({number(9.0), number(3.3)});
  for (int n = 0; n < steps; ++n) {
    found.losses.push_back(step.run(inputs(reference, parameters.parameters())));
    parameters.step(step.gradients(), n < 2 * steps / 3 ? 0.05 : 0.01);
  }
  found.eps = parameters.parameters()[0].item();
  found.sigma = parameters.parameters()[1].item();
  return found;
}

bool run(const CommandLine& line) {
  const ir::Module module = ir::parse_file(EXAMPLE_FOLDER "/halo.ir").module;
  const int steps = line.steps.value_or(line.small ? 120 : 600);
  bool right = true;
  on_ranks(line, [&](const Ranks& ranks) {
    if (long_cells % ranks->size() != 0 || long_cells / ranks->size() * cell < cutoff + 1)
      throw Error("{} ranks cannot share {} layers of cells, each at least {} angstrom",
                  ranks->size(), long_cells, cutoff + 1);
    const Found ours = train(module.program(), ranks, steps);
    const Found alone = train(module.program(), single_rank(), steps);
    double force = 0, loss = 0;
    const size_t first = static_cast<size_t>(ranks->rank()) * ours.force.size();
    for (size_t k = 0; k < ours.force.size(); ++k)
      force = std::max(force, std::abs(ours.force[k] - alone.force[first + k]));
    for (size_t k = 0; k < ours.losses.size(); ++k)
      loss = std::max(loss,
                      std::abs(ours.losses[k] / ranks->size() - alone.losses[k]) / alone.losses[0]);
    if (force > 1e-10) throw Error("rank {}: a force is off by {}", ranks->rank(), force);
    if (ranks->rank() > 0) return;
    std::printf("%d ranks, %zu atoms each\n", ranks->size(), ours.force.size() / 3);
    right &= holds("forces differ from those of one rank by, meV/angstrom", force, 0, 1e-10);
    right &= holds("the energy, relatively", std::abs(ours.energy / alone.energy - 1), 0, 1e-12);
    right &= holds("losses, of the first", loss, 0, 1e-9);
    // eps and sigma trade against each other: the forces are right long before both are.
    right &= holds("the loss falls to, of the first", ours.losses.back() / ours.losses[0], 0, 0.02);
    std::printf("eps is %.3f of %.3f meV, sigma %.3f of %.3f angstrom\n", ours.eps, eps, ours.sigma,
                sigma);
  });
  return right;
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
