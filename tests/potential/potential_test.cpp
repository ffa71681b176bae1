// Potentials: what they give, what is checked of them, and what is refused.
// SPEC S5
#include "gradus/potential.h"

#include <cmath>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using test::error_of;

const std::string argon = std::string(GRADUS_SOURCE_DIR) + "/examples/potentials/argon";

struct LennardJones {
  double eps = 0.0103236, sigma = 3.405, onset = 7, cutoff = 8.5;

  // u(d) w(d), and its slope.
  std::pair<double, double> pair(double d) const {
    const double s6 = std::pow(sigma / d, 6), u = 4 * eps * (s6 * s6 - s6),
                 du = 4 * eps * (-12 * s6 * s6 + 6 * s6) / d;
    const double c = cutoff * cutoff, o = onset * onset, x = d * d;
    if (x <= o) return {u, du};
    if (x >= c) return {0, 0};
    const double w = (c - x) * (c - x) * (c + 2 * x - 3 * o) / std::pow(c - o, 3),
                 dw = 2 * d * 6 * (c - x) * (o - x) / std::pow(c - o, 3);
    return {u * w, du * w + u * dw};
  }
};

Tensor points(const std::vector<double>& x) {
  return Tensor::from(DType::f64, Sizes{static_cast<int64_t>(x.size() / 3), 3}, x);
}

// In a box of 11 by 12 by 13 whose second side leans.
const std::vector<double> atoms = {0.1, 0.3, -0.2, 3.6, 0.4, 0.1, 0.2, 4.1, 3.7,
                                   4.0, 3.4, 7.9,  7.7, 8.1, 3.2, -1,  9,   5};
const Cell cell{{{{11, 0, 0}, {2, 12, 0}, {0, 0, 13}}}, {true, true, false}};

PotentialInput plain_input(const std::vector<double>& x = atoms, double cutoff = 8.5) {
  return with_edges(points(x), {}, cell, cutoff);
}

// Every pair within the cutoff, by images far enough away.
template <class F>
void for_each_pair(const std::vector<double>& x, double cutoff, F f) {
  for (size_t i = 0; i < x.size(); i += 3)
    for (size_t j = 0; j < x.size(); j += 3)
      for (int a = -3; a <= 3; ++a)
        for (int b = -3; b <= 3; ++b) {
          const double r[3] = {x[j] - x[i] + 11 * a + 2 * b, x[j + 1] - x[i + 1] + 12 * b,
                               x[j + 2] - x[i + 2]};
          const double d = std::sqrt(r[0] * r[0] + r[1] * r[1] + r[2] * r[2]);
          if ((i != j || a || b) && d < cutoff) f(i / 3, j / 3, r, d);
        }
}

TEST(Potential, GivesEnergiesForcesAndVirials) {
  Potential potential = Potential::load(argon + ".ir", argon + ".safetensors");
  EXPECT_EQ(potential.facts().cutoff, 8.5);
  EXPECT_EQ(potential.facts().species, std::vector<std::string>{"Ar"});
  EXPECT_EQ(potential.facts().units, "metal");
  const PotentialInput in = plain_input();
  const LennardJones lj;
  std::vector<double> energies(6), forces(18), virials(36);
  for_each_pair(atoms, 8.5, [&](size_t i, size_t j, const double* r, double d) {
    const auto [u, du] = lj.pair(d);
    energies[i] += 0.5 * u;
    const int voigt[6][2] = {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}};
    for (int a = 0; a < 3; ++a) forces[3 * i + static_cast<size_t>(a)] += du * r[a] / d;
    for (size_t k = 0; k < 6; ++k)
      for (size_t atom : {i, j})
        virials[6 * atom + k] -= 0.25 * du * r[voigt[k][0]] * r[voigt[k][1]] / d;
  });
  for (int run = 0; run < 3; ++run) {
    const PotentialOutput out = potential.run(in);
    double sum = 0;
    const Voigt whole = virial(in, out);
    const std::vector<double> by_atom = atom_virials(in, out).to_doubles();
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(out.energies.to_doubles()[i], energies[i], 1e-14);
      sum += energies[i];
      double of_atoms = 0;
      for (size_t atom = 0; atom < 6; ++atom) of_atoms += virials[6 * atom + i];
      EXPECT_NEAR(whole[i], of_atoms, 1e-13);
    }
    EXPECT_NEAR(out.energy, sum, 1e-13);
    for (size_t i = 0; i < 18; ++i) EXPECT_NEAR(out.forces.to_doubles()[i], forces[i], 1e-14);
    for (size_t i = 0; i < 36; ++i) EXPECT_NEAR(by_atom[i], virials[i], 1e-14);
  }
}

TEST(Potential, TheHessianIsTheSlopeOfTheForces) {
  Potential potential = Potential::load(argon + ".ir", argon + ".safetensors");
  const PotentialInput in = plain_input();
  const Tensor h = potential.hessian(in);
  ASSERT_EQ(Sizes(h.shape().begin(), h.shape().end()), (Sizes{18, 18}));
  constexpr double step = 1e-5;
  for (int64_t i = 0; i < 18; ++i) {
    auto forces = [&](double by) {
      PotentialInput moved = in;
      std::vector<double> x = atoms;
      x[static_cast<size_t>(i)] += by;
      moved.positions = points(x);
      return potential.run(moved).forces.to_doubles();
    };
    const std::vector<double> more = forces(step), less = forces(-step);
    for (int64_t j = 0; j < 18; ++j) {
      const auto k = static_cast<size_t>(j);
      EXPECT_NEAR(h.item(18 * i + j), -(more[k] - less[k]) / (2 * step), 1e-8);
    }
  }
}

TEST(Potential, GhostsHaveForcesAndNoEnergy) {
  Potential potential = Potential::load(argon + ".ir", argon + ".safetensors");
  PotentialInput in = plain_input();
  const PotentialOutput all = potential.run(in);
  in.ghosts = Tensor::from(DType::boolean, Sizes{6}, std::vector<double>{0, 1, 0, 0, 1, 0});
  const PotentialOutput own = potential.run(in);
  const std::vector<double> e = all.energies.to_doubles();
  EXPECT_NEAR(own.energy, e[0] + e[2] + e[3] + e[5], 1e-14);
  double on_ghost = 0;
  for (size_t a = 3; a < 6; ++a) on_ghost += std::fabs(own.forces.to_doubles()[a]);
  EXPECT_GT(on_ghost, 1e-5);
}

TEST(Potential, WithoutShiftsAllAreZero) {
  Potential potential = Potential::load(argon + ".ir", argon + ".safetensors");
  PotentialInput in = with_edges(points(atoms), {}, Cell{}, 8.5);
  for (const double s : in.shifts.to_doubles()) ASSERT_EQ(s, 0);
  const PotentialOutput given = potential.run(in);
  const Voigt virial_given = virial(in, given);
  for (int round = 0; round < 2; ++round) {
    in.shifts = {};
    const PotentialOutput out = potential.run(in);
    EXPECT_EQ(out.energy, given.energy);
    EXPECT_EQ(out.forces.to_doubles(), given.forces.to_doubles());
    EXPECT_EQ(out.pulls.to_doubles(), given.pulls.to_doubles());
    EXPECT_EQ(virial(in, out), virial_given);
  }
}

TEST(Potential, EdgesAreThoseOfALattice) {
  const Cell cube{{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}, {true, true, true}};
  auto count = [](const PotentialInput& in) { return in.edges.shape()[1]; };
  EXPECT_EQ(count(with_edges(points({0.2, 0.1, 0.7}), {}, cube, 1.1)), 6);
  EXPECT_EQ(count(with_edges(points({0.2, 0.1, 0.7}), {}, cube, 1.5)), 18);
  EXPECT_EQ(count(with_edges(points({9.2, -8.9, 0.7}), {}, cube, 2.1)), 32);
  Cell slab = cube;
  slab.periodic[2] = false;
  EXPECT_EQ(count(with_edges(points({0.2, 0.1, 0.7}), {}, slab, 1.5)), 8);
  EXPECT_EQ(count(with_edges(points({0, 0, 0, 0, 0, 9.5}), {}, {}, 9.6)), 2);
  // Atoms that lie outside of the cell, on either side.
  Cell wide{{{{4, 0, 0}, {1, 4, 0}, {0, 0, 4}}}, {true, true, true}};
  const std::vector<double> inside = {0, 0, 0, 2, 1, 3},
                            outside = {8, 0, 0, 2 - 4 - 1, 1 - 4, 3 + 8};
  EXPECT_EQ(count(with_edges(points(inside), {}, wide, 3.9)),
            count(with_edges(points(outside), {}, wide, 3.9)));
  const Cell flat{{{{1, 0, 0}, {2, 0, 0}, {0, 0, 1}}}, {true, true, true}};
  EXPECT_NE(error_of([&] {
              with_edges(points({0, 0, 0}), {}, flat, 1);
            }).find("no volume"),
            std::string::npos);
}

// Programs that are wrong in one way each, of energies that are 1/2 sum of v over an atom's edges.
std::string program(const std::string& edge_energies, const std::string& more = {}) {
  return R"(
graph g {
  stage 0 (%positions: f64[N, 3], %species: i64[N], %edges: i64[2, E], %shifts: f64[E, 3]) {
    %from = select(%edges) {dim = 0, index = 0}
    %to = select(%edges) {dim = 0, index = 1}
    %ri = index_select(%positions, %from) {dim = 0}
    %rj = index_select(%positions, %to) {dim = 0}
    %straight = sub(%rj, %ri)
    %d = add(%straight, %shifts)
    %dd = square(%d)
    %d2 = sum(%dd) {dim = [1]}
    %inside = minimum(%d2, 4.0)
    %left = sub(4.0, %inside)
    %w = square(%left)
    %zeros = full() {shape = [N], value = 0.0, dtype = f64}
)" + edge_energies +
         R"(
    %sums = index_add(%zeros, %from, %v) {dim = 0}
)" + (more.empty() ? "    %energies = mul(%sums, 0.5)\n" : more) +
         "    return energies = %energies\n  }\n}\n";
}

std::vector<std::string> failing(const std::string& text) {
  Potential potential(ir::parse(text).program(), {}, {.cutoff = 2, .species = {"A", "B"}});
  std::vector<std::string> names;
  for (const PotentialCheck& c : check_potential(potential))
    if (!c.passed()) names.push_back(c.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(PotentialChecks, PassWhatIsRight) {
  EXPECT_EQ(failing(program("    %v = mul(%w, %d2)\n")), Names());
}

TEST(PotentialChecks, FindForcesThatAreNoSlope) {
  const Names found = failing(program("    %still = detach(%d2)\n    %v = mul(%w, %still)\n"));
  EXPECT_NE(std::ranges::find(found, "forces"), found.end());
  EXPECT_NE(std::ranges::find(found, "virial"), found.end());
}

TEST(PotentialChecks, FindADirection) {
  const Names found =
      failing(program("    %x = select(%dd) {dim = 1, index = 0}\n    %v = mul(%w, %x)\n"));
  EXPECT_EQ(found, Names{"rotation"});
}

TEST(PotentialChecks, FindAPlace) {
  const Names found = failing(program(
      "    %x = select(%ri) {dim = 1, index = 0}\n    %x2 = square(%x)\n    %v = mul(%w, %x2)\n"));
  for (const char* name : {"sum", "translation", "extensivity", "virial"})
    EXPECT_NE(std::ranges::find(found, name), found.end()) << name;
}

TEST(PotentialChecks, FindAnOrder) {
  const Names found = failing(
      program("    %n = cast(%from) {dtype = f64}\n    %m = add(%n, 1.0)\n    %v = mul(%w, %m)\n"));
  EXPECT_NE(std::ranges::find(found, "permutation"), found.end());
}

TEST(PotentialChecks, FindACutoffThatIsNone) {
  const Names found = failing(program("    %e = mul(%d2, -0.1)\n    %v = exp(%e)\n"));
  EXPECT_EQ(found, (Names{"cutoff", "smooth"}));
}

TEST(PotentialChecks, FindAJump) {
  const Names found = failing(program(
      "    %near = lt(%d2, 4.0)\n    %none = mul(%d2, 0.0)\n    %v = where(%near, %d2, %none)\n"));
  EXPECT_EQ(found, Names{"smooth"});
}

TEST(PotentialChecks, FindEnergiesOfTheWhole) {
  const Names found = failing(program("    %v = mul(%w, %d2)\n",
                                      "    %all = sum(%sums)\n    %energies = mul(%sums, %all)\n"));
  for (const char* name : {"extensivity", "periodic"})
    EXPECT_NE(std::ranges::find(found, name), found.end()) << name;
}

// Right, but not where ghosts have no edges.
TEST(PotentialChecks, TellHowFarEnergiesReach) {
  const std::string text =
      program("    %v = mul(%w, %d2)\n",
              "    %theirs = index_select(%sums, %to) {dim = 0}\n    %passed = mul(%theirs, %w)\n"
              "    %energies = index_add(%zeros, %from, %passed) {dim = 0}\n");
  EXPECT_EQ(failing(text), Names{"ghosts"});
  Potential potential(ir::parse(text).program(), {}, {.cutoff = 2});
  for (const PotentialCheck& c : check_potential(potential)) EXPECT_EQ(c.needed, c.passed());
  const std::string path = testing::TempDir() + "/far.ir";
  std::ofstream(path) << "gradus 1\n" << text;
  PotentialOptions options;
  options.cutoff = 2;
  EXPECT_EQ(Potential::load(path, {}, options).facts().cutoff, 2);
  options.own_edges = true;
  const std::string message = error_of([&] { Potential::load(path, {}, options); });
  EXPECT_NE(
      message.find("fails the check 'ghosts' (an atom's energy depends on its own edges only"),
      std::string::npos)
      << message;
}

TEST(PotentialChecks, AreTriedWhenOneIsLoaded) {
  const std::string path = testing::TempDir() + "/directed.ir";
  std::ofstream(path) << "gradus 1\n"
                      << program(
                             "    %x = select(%dd) {dim = 1, index = 0}\n"
                             "    %v = mul(%w, %x)\n");
  const std::string message =
      error_of([&] { Potential::load(path, {}, {.cutoff = 2, .species = {}, .units = {}}); });
  EXPECT_NE(message.find("directed.ir: "), std::string::npos) << message;
  EXPECT_NE(message.find("fails the check 'rotation' (rotated atoms have the same energies"),
            std::string::npos)
      << message;
  PotentialOptions unchecked;
  unchecked.cutoff = 2;
  unchecked.check = false;
  EXPECT_EQ(Potential::load(path, {}, unchecked).facts().cutoff, 2);
}

TEST(Potential, KeepsItsDtype) {
  ir::Graph narrow =
      ir::retype_floating(ir::parse(program("    %v = mul(%w, %d2)\n")).program(), DType::f32);
  Potential potential(narrow, {}, {.cutoff = 2});
  EXPECT_FALSE(potential.is_f64());
  for (const PotentialCheck& c : check_potential(potential))
    EXPECT_TRUE(c.passed()) << c.name << ' ' << c.error;
}

TEST(Potential, CopiesRunBesideEachOther) {
  const Potential first = Potential::load(argon + ".ir", argon + ".safetensors");
  const PotentialInput in = plain_input();
  std::vector<double> energies(4);
  std::vector<std::thread> threads;
  for (double& e : energies)
    threads.emplace_back([&, copy = Potential(first)]() mutable {
      for (int n = 0; n < 20; ++n) e = copy.run(in).energy;
    });
  for (std::thread& t : threads) t.join();
  for (double e : energies) EXPECT_EQ(e, energies[0]);
  EXPECT_NE(energies[0], 0);
}

TEST(Potential, RefusesWhatIsNone) {
  auto message = [](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    return error_of([&] { Potential(ir::parse(text).program(), {}, {.cutoff = 2}); });
  };
  const std::string right = program("    %v = mul(%w, %d2)\n");
  auto lacks = [&](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  std::string unnamed = right;
  for (size_t at; (at = unnamed.find("%shifts")) != std::string::npos;)
    unnamed.replace(at, 7, "%offsets");
  lacks(message(unnamed, "graph g", "graph g"),
        "stage 0 has no input 'shifts'; add %shifts: f64[E, 3]");
  lacks(message(right, "return energies = %energies", "return a = %sums, b = %v"),
        "it has 2 results, and none is called 'energies'");
  lacks(message(right, "return energies = %energies", "return energies = %d"),
        "'energies' is f64[E, 3], and has to be the energy of each atom, f64[N]");
  lacks(message(right, "return energies = %energies", "return energies = %zeros"),
        "its energies do not depend on 'positions'");
  lacks(message(right, "%species: i64[N]", "%species: f64[N]"),
        "its input 'species' is f64[N], and has to be as i64[N]");
  lacks(message(right, "%species: i64[N]", "%scale: f64[2], %bias: f64[]"),
        "no weights are found for: scale f64[2], bias f64[]");
  std::string still = right;
  for (const std::string from : {"%d = add(%straight, %shifts)"})
    still.replace(still.find(from), from.size(), "%d = mul(%straight, 1.0)");
  lacks(error_of([&] { Potential(ir::parse(still).program(), {}, {.cutoff = 2}); }),
        "its energies do not depend on 'shifts'");
  lacks(error_of([&] { Potential(ir::parse(right).program(), {}, {}); }),
        "the cutoff of a potential is greater than 0");
  const std::string examples = std::string(GRADUS_SOURCE_DIR) + "/examples/";
  lacks(error_of([&] { Potential::load(examples + "argon.ir"); }), "is no potential");
  lacks(error_of([&] { Potential::load(examples + "potentials/argon.ir"); }), "no cutoff is known");
}

TEST(Potential, RefusesAtomsThatDoNotFit) {
  Potential potential(ir::parse(program("    %v = mul(%w, %d2)\n")).program(), {},
                      {.cutoff = 2, .species = {"A", "B"}});
  auto refused = [&](auto change, std::string_view part) {
    PotentialInput in = plain_input(atoms, 2);
    change(in);
    const std::string message = error_of([&] { potential.run(in); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused(
      [](PotentialInput& in) {
        in.species = Tensor::from(DType::i64, Sizes{6}, std::vector<double>{0, 1, 2, 0, 0, 0});
      },
      "atom 2 is of species 2, and the potential has 2: A, B");
  refused([](PotentialInput& in) { in.species = Tensor::zeros(DType::i64, Sizes{5}); },
          "'species' is i64[5], and has to be [6]");
  refused([](PotentialInput& in) { in.positions = {}; }, "'positions' is undefined");
  refused(
      [](PotentialInput& in) {
        in.shifts = Tensor::zeros(DType::f64, Sizes{1, 3});
      },
      "'shifts' is f64[1, 3]");
  refused(
      [](PotentialInput& in) {
        in.edges = Tensor::from(DType::i64, Sizes{2, 1}, std::vector<double>{0, 6});
        in.shifts = Tensor::zeros(DType::f64, Sizes{1, 3});
      },
      "6");
}

}  // namespace
}  // namespace gradus
