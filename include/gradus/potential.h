// Interatomic potentials: programs that give atoms their energies.
//
// Stage 0 of such a program has these inputs, by name, of N atoms and E edges. All of them are
// there but those marked optional; other inputs are weights.
//
//   positions  f[N, 3]
//   species    i64[N]     optional: which of the species an atom is, counted from 0
//   edges      i64[2, E]  an atom, and one of its neighbours
//   shifts     f[E, 3]    edge e is the vector positions[edges[1, e]] - positions[edges[0, e]]
//                         + shifts[e]
//   ghosts     bool[N]    optional: atoms whose energies are not asked for
//   strain     f[3, 3]    optional: zeros
//
// Its result `energies`, or its only one, is f[N]: the energy of each atom. An atom's edges lead to
// all atoms within the cutoff, so every pair of atoms is there twice; a ghost may have none. What
// simulators ask for beside, forces and virials, are derivatives of their sum.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/import.h"
#include "gradus/internal.h"
#include "gradus/state.h"

#pragma GCC visibility push(default)

namespace gradus {

// What is known of a potential beside its program. The metadata of a .safetensors file of weights
// say it, or the extra files of a .pt2: "cutoff", "species" (with spaces between), "units". So does
// a weight `cutoff` of one element.
struct PotentialFacts {
  double cutoff = 0;                 // the longest edge, in the unit of positions
  std::vector<std::string> species;  // in the order of their numbers; empty: any one
  std::string units = "metal";       // as LAMMPS names them: "metal" is angstrom and eV
};

struct PotentialOptions {
  // In place of what the weights say.
  std::optional<double> cutoff;
  std::vector<std::string> species;
  std::string units;
  // Whether a few atoms at random are tried when it is loaded, see check_potential.
  bool check = true;
  // Whether one is refused then whose energies reach further than an atom's own edges: for
  // simulators whose ghosts have none.
  bool own_edges = false;
  FusionMode fusion = FusionMode::first;  // it runs again and again
};

// Borrowed for a call. Tensors of other dtypes are converted.
struct PotentialInput {
  Tensor positions;  // f64[N, 3]
  Tensor species;    // i64[N]; undefined: all are 0
  Tensor edges;      // i64[2, E]
  Tensor shifts;     // f64[E, 3]; undefined: all are 0, as where ghosts are where they are seen
  Tensor ghosts;     // bool[N]; undefined: no atom is one
};

struct PotentialOutput {
  double energy = 0;  // of the atoms that are no ghosts
  Tensor energies;    // f64[N]; what a ghost has there means nothing
  Tensor forces;      // f64[N, 3], on ghosts too
  Tensor pulls;       // f64[E, 3]: the derivative of `energy` by each edge's vector
};

// A symmetric 3 x 3 matrix: xx, yy, zz, yz, xz, xy.
using Voigt = std::array<double, 6>;

// A potential that is ready to run, on one thread at a time. Copies share the compiled program and
// the weights, and may run beside each other.
class Potential {
 public:
  // From a file of any format that Gradus reads, and its weights (.safetensors or .npz; empty: the
  // program has none, or brings its own). Throws Error for a program that is no potential, with the
  // input or result that is missing or has another type; for weights that are missing (all are
  // listed); where no cutoff is known; and where `options.check` finds a fault.
  static Potential load(const std::string& program, const std::string& weights = {},
                        const PotentialOptions& options = {},
                        std::shared_ptr<Context> context = Context::default_context());
  // From a program in memory and weights by name.
  Potential(const ir::Graph& program, const NamedTensors& weights, PotentialFacts facts,
            std::shared_ptr<Context> context = Context::default_context(),
            FusionMode fusion = FusionMode::first);
  Potential(const Potential&);
  Potential(Potential&&) noexcept;
  Potential& operator=(Potential&&) noexcept;
  ~Potential();

  const PotentialFacts& facts() const;
  // One stage: energies, their sum, and its derivatives by positions and by shifts.
  const std::shared_ptr<const Code>& code() const;
  bool is_f64() const;  // else it computes in the dtype of its positions

  // Throws Error for sizes that do not fit, species and atoms that are not there, and as State::run
  // does.
  PotentialOutput run(const PotentialInput& input);
  // The derivative of the forces by the positions, negated: f64[3N, 3N].
  Tensor hessian(const PotentialInput& input);

 private:
  struct GRADUS_INTERNAL Impl;
  std::unique_ptr<Impl> impl_;
};

// Minus the derivative of the energy by a strain of all edges: the sum over edges of
// -vector x pull, made symmetric. Divided by the volume, and negated, it is the stress.
Voigt virial(const PotentialInput& input, const PotentialOutput& output);
// The same by atom, f64[N, 6]: half of an edge's share is its first atom's, half its second's.
Tensor atom_virials(const PotentialInput& input, const PotentialOutput& output);

// The edges between atoms nearer than `cutoff`, in a cell whose rows are its vectors, repeated
// along those of them that are periodic. It looks at all pairs: for tests, and for some hundreds of
// atoms. Throws Error for a cell without volume along a periodic vector.
struct Cell {
  std::array<std::array<double, 3>, 3> rows{};
  std::array<bool, 3> periodic{};
};
PotentialInput with_edges(const Tensor& positions, const Tensor& species, const Cell& cell,
                          double cutoff);

// One property of a potential, tried on atoms at random.
struct PotentialCheck {
  std::string name;    // "forces", "rotation", …
  std::string what;    // what was compared, in words
  double error = 0;    // relative to the largest force or energy
  double allowed = 0;  // by the dtype
  // Not counted as a fault: a potential whose energies reach further than one edge is right, but
  // cannot run where ghosts have no edges.
  bool needed = true;
  bool passed() const { return error <= allowed; }
};

struct PotentialCheckOptions {
  uint64_t seed = 0;
  double spacing = 0;  // between neighbours; 0: 0.4 of the cutoff
  bool brief = false;  // those alone that cost a run or two
};

// Forces against differences, their sum, rotation, permutation, translation, edges as long as the
// cutoff, two copies far apart, the virial against differences, and whether energies are of the
// atoms' own edges.
std::vector<PotentialCheck> check_potential(Potential& potential,
                                            const PotentialCheckOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
