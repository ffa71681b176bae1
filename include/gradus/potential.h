// Interatomic potentials: programs that compute the energy of each atom.
//
// Stage 0 of such a program has these inputs, by name, for N atoms and E edges. Inputs that are not
// marked as optional are required. Other inputs are weights.
//
//   positions  f[N, 3]
//   species    i64[N]     optional: the index of the atom's species, from 0
//   edges      i64[2, E]  an atom, and one of its neighbours
//   shifts     f[E, 3]    edge e is the vector positions[edges[1, e]] - positions[edges[0, e]]
//                         + shifts[e]
//   ghosts     bool[N]    optional: atoms whose energies are not in the sum
//   strain     f[3, 3]    optional: zeros
//
// The result `energies`, or the only result, is f[N]: the energy of each atom. The edges of an atom
// lead to all atoms within the cutoff, so each pair of atoms has two edges. A ghost may have no
// edges. Forces and virials are derivatives of the sum of the energies.
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

// Facts about a potential that its program does not state. Their sources are the metadata of a
// .safetensors file of weights, or the extra files of a .pt2: "cutoff", "species" (separated by
// spaces or commas), "units". A weight `cutoff` of one element is the cutoff, too.
struct PotentialFacts {
  double cutoff = 0;                 // the length of the longest edge, in the unit of positions
  std::vector<std::string> species;  // names by index; empty: any index is valid
  std::string units = "metal";       // LAMMPS' name of the units: "metal" is angstrom and eV
};

// Options of Potential::load.
struct PotentialOptions {
  // Replace the facts of the weights.
  std::optional<double> cutoff;
  std::vector<std::string> species;
  std::string units;
  // Whether to check the potential with a few random atoms when it is loaded, see check_potential.
  bool check = true;
  // Whether that check rejects a potential whose energies depend on more than the atom's own edges.
  // For simulators whose ghosts have no edges.
  bool own_edges = false;
  FusionMode fusion = FusionMode::first;  // a potential runs many times
};

// The atoms of one call. The tensors are borrowed during the call. Tensors of other dtypes are
// converted.
struct PotentialInput {
  Tensor positions;  // f64[N, 3]
  Tensor species;    // i64[N]; undefined: all are 0
  Tensor edges;      // i64[2, E]
  // f64[E, 3]; undefined: all are 0, as for ghosts at the positions of their images
  Tensor shifts;
  Tensor ghosts;  // bool[N]; undefined: no atom is a ghost
};

// The results of one call, in the units of the potential.
struct PotentialOutput {
  double energy = 0;  // the sum over the atoms that are no ghosts
  Tensor energies;    // f64[N]; the values of ghosts have no meaning
  Tensor forces;      // f64[N, 3]; also for ghosts
  // f64[E, 3]: the derivative of `energy` with respect to the vector of each edge.
  Tensor pulls;
};

// A symmetric 3 x 3 matrix in the order xx, yy, zz, yz, xz, xy.
using Voigt = std::array<double, 6>;

// A compiled potential with its weights. One object serves one thread at a time. Copies share the
// compiled program and the weights, and may run at the same time.
class Potential {
 public:
  // Loads a program of any supported format, and its weights (.safetensors or .npz; empty: no
  // weights, or the weights of the program's file). Throws Error for a program that is no
  // potential, with the input or result that is missing or has another type; for missing weights
  // (the message lists all); for an unknown cutoff; and if `options.check` finds a fault.
  static Potential load(const std::string& program, const std::string& weights = {},
                        const PotentialOptions& options = {},
                        std::shared_ptr<Context> context = Context::default_context());
  // Takes a program in memory and weights by name. Throws Error for a program that is no potential,
  // missing weights, and a cutoff that is not positive.
  Potential(const ir::Graph& program, const NamedTensors& weights, PotentialFacts facts,
            std::shared_ptr<Context> context = Context::default_context(),
            FusionMode fusion = FusionMode::first);
  Potential(const Potential&);
  Potential(Potential&&) noexcept;
  Potential& operator=(Potential&&) noexcept;
  ~Potential();

  const PotentialFacts& facts() const;
  // The compiled program of one stage: energies, their sum, and its derivatives with respect to
  // positions and shifts.
  const std::shared_ptr<const Code>& code() const;
  bool is_f64() const;  // whether the dtype of positions, in which it computes, is f64

  // Throws Error for shapes that do not fit, for unknown species, and as State::run does.
  PotentialOutput run(const PotentialInput& input);
  // The negative derivative of the forces with respect to the positions: f64[3N, 3N]. Throws Error
  // as `run` does.
  Tensor hessian(const PotentialInput& input);

 private:
  struct GRADUS_INTERNAL Impl;
  std::unique_ptr<Impl> impl_;
};

// The virial: the negative derivative of the energy with respect to a strain of all edges, that is,
// the sum over edges of -vector x pull, made symmetric. Its negative divided by the volume is the
// stress.
Voigt virial(const PotentialInput& input, const PotentialOutput& output);
// The virial of each atom, f64[N, 6]: half of an edge's contribution belongs to its first atom,
// half to its second.
Tensor atom_virials(const PotentialInput& input, const PotentialOutput& output);

// Returns positions and species with the edges between atoms nearer than `cutoff`. The rows of the
// cell are its vectors. The cell is repeated along its periodic vectors. The time is quadratic in
// the number of atoms: the function is for tests and for some hundreds of atoms. Throws Error for a
// cell without volume along a periodic vector.
struct Cell {
  std::array<std::array<double, 3>, 3> rows{};
  std::array<bool, 3> periodic{};
};
PotentialInput with_edges(const Tensor& positions, const Tensor& species, const Cell& cell,
                          double cutoff);

// The result of one check of a potential.
struct PotentialCheck {
  std::string name;    // "forces", "rotation", …
  std::string what;    // a description of what was compared
  double error = 0;    // relative to the largest force or energy
  double allowed = 0;  // depends on the dtype
  // If false, a failure is no fault: a potential whose energies depend on more than the atom's own
  // edges is correct, but cannot run if ghosts have no edges.
  bool needed = true;
  bool passed() const { return error <= allowed; }
};

// Options of check_potential.
struct PotentialCheckOptions {
  uint64_t seed = 0;
  double spacing = 0;  // distance between neighbours; 0: 0.4 of the cutoff
  // Only the checks that take one or two runs.
  bool brief = false;
};

// Checks a potential on random atoms: forces against differences, the sum of the forces, rotation,
// permutation, translation, edges as long as the cutoff, two distant copies, the virial against
// differences, and whether the energies depend only on the atoms' own edges.
std::vector<PotentialCheck> check_potential(Potential& potential,
                                            const PotentialCheckOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
