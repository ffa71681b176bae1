// Potential in Python.
#include "gradus/potential.h"

#include <nanobind/stl/array.h>

#include "python/bindings.h"
#include "python/context.h"

namespace gradus::python {

namespace {

using nb::literals::operator""_a;

Tensor tensor_of(nb::handle object, const char* what) {
  return object.is_none() ? Tensor() : variable_from(object, what).data();
}

PotentialInput input_from(nb::handle positions, nb::handle species, nb::handle edges,
                          nb::handle shifts, nb::handle ghosts) {
  return {tensor_of(positions, "positions"), tensor_of(species, "species"),
          tensor_of(edges, "edges"), tensor_of(shifts, "shifts"), tensor_of(ghosts, "ghosts")};
}

// What a run gave, and what follows from it and from inputs that their owner may write to later.
struct Ran {
  PotentialOutput output;
  Voigt virial;
  Tensor atom_virials;  // undefined: not asked for
};

Ran run_on(Potential& potential, const PotentialInput& input, bool atom_virials) {
  Ran ran{potential.run(input), {}, {}};
  ran.virial = virial(input, ran.output);
  if (atom_virials) ran.atom_virials = gradus::atom_virials(input, ran.output);
  return ran;
}

Potential load_potential(const std::string& program, const std::string& weights, nb::handle cutoff,
                         const std::vector<std::string>& species, const std::string& units,
                         bool check, nb::handle context) {
  PotentialOptions options;
  if (!cutoff.is_none()) options.cutoff = nb::cast<double>(cutoff);
  options.species = species;
  options.units = units;
  options.check = check;
  auto in = context_from(context);
  return unlocked([&] { return Potential::load(program, weights, options, in); });
}

void bind_result(nb::module_& m) {
  nb::class_<Ran>(m, "PotentialResult", "What a potential gives atoms.")
      .def_prop_ro(
          "energy", [](const Ran& r) { return r.output.energy; },
          "The sum of the energies of atoms that are no ghosts.")
      .def_prop_ro(
          "energies", [](const Ran& r) { return to_python(Variable(r.output.energies)); },
          "f64[N], by atom.")
      .def_prop_ro(
          "forces", [](const Ran& r) { return to_python(Variable(r.output.forces)); },
          "f64[N, 3], on ghosts too.")
      .def_prop_ro(
          "pulls", [](const Ran& r) { return to_python(Variable(r.output.pulls)); },
          "f64[E, 3], the derivative of the energy by each edge's vector.")
      .def_ro("virial", &Ran::virial,
              "xx, yy, zz, yz, xz, xy of minus the derivative of the energy by a strain.")
      .def_prop_ro(
          "atom_virials",
          [](const Ran& r) {
            return r.atom_virials ? to_python(Variable(r.atom_virials)) : nb::none();
          },
          "f64[N, 6], the virial by atom: an edge's share is halved between its atoms. None where "
          "`run` was not asked for it.");
}

}  // namespace

void bind_potential(nb::module_& m) {
  bind_result(m);
  nb::class_<PotentialCheck>(m, "PotentialCheck", "One property of a potential, tried on atoms.")
      .def_ro("name", &PotentialCheck::name)
      .def_ro("what", &PotentialCheck::what, "What was compared.")
      .def_ro("error", &PotentialCheck::error, "Relative to the largest force or energy.")
      .def_ro("allowed", &PotentialCheck::allowed)
      .def_ro("needed", &PotentialCheck::needed, "Whether failing is a fault.")
      .def_prop_ro("passed", &PotentialCheck::passed)
      .def("__repr__", [](const PotentialCheck& c) {
        return fmt::format("<{}: {}, {:.2g} of {:.0e}>", c.name, c.passed() ? "passed" : "failed",
                           c.error, c.allowed);
      });
  nb::class_<Potential>(
      m, "Potential",
      "An interatomic potential: a program whose stage 0 has the inputs positions f[N, 3], edges "
      "i64[2, E] and shifts f[E, 3], perhaps species i64[N] and ghosts bool[N], and weights; and "
      "the result energies f[N]. For one thread at a time; copy.copy shares the compiled program.")
      .def(
          "__init__",
          [](Potential* self, const std::string& program, const std::string& weights,
             nb::handle cutoff, const std::vector<std::string>& species, const std::string& units,
             bool check, nb::handle context) {
            new (self)
                Potential(load_potential(program, weights, cutoff, species, units, check, context));
          },
          "program"_a, "weights"_a = "", "cutoff"_a = nb::none(),
          "species"_a = std::vector<std::string>(), "units"_a = "", "check"_a = true,
          "context"_a = nb::none(),
          nb::sig("def __init__(self, program: str, weights: str = \"\", cutoff: float | None = "
                  "None, species: collections.abc.Sequence[str] = (), units: str = \"\", check: "
                  "bool = True, context: Context | None = None) -> None"))
      .def("__copy__", [](const Potential& p) { return Potential(p); })
      .def_prop_ro(
          "cutoff", [](const Potential& p) { return p.facts().cutoff; }, "The longest edge.")
      .def_prop_ro(
          "species", [](const Potential& p) { return p.facts().species; },
          "Names, in the order of their numbers; empty: any one.")
      .def_prop_ro(
          "units", [](const Potential& p) { return p.facts().units; },
          "As LAMMPS names them: 'metal' is angstrom and eV.")
      .def(
          "run",
          [](Potential& p, nb::handle positions, nb::handle edges, nb::handle shifts,
             nb::handle species, nb::handle ghosts, bool atom_virials) {
            const PotentialInput in = input_from(positions, species, edges, shifts, ghosts);
            return unlocked([&] { return run_on(p, in, atom_virials); });
          },
          "positions"_a, "edges"_a, "shifts"_a, "species"_a = nb::none(), "ghosts"_a = nb::none(),
          "atom_virials"_a = false,
          nb::sig("def run(self, positions: ArrayLike, edges: ArrayLike, shifts: ArrayLike, "
                  "species: ArrayLike | None = None, ghosts: ArrayLike | None = None, "
                  "atom_virials: bool = False) -> PotentialResult"),
          "Energies, forces and what virials are made of.")
      .def(
          "hessian",
          [](Potential& p, nb::handle positions, nb::handle edges, nb::handle shifts,
             nb::handle species, nb::handle ghosts) {
            const PotentialInput in = input_from(positions, species, edges, shifts, ghosts);
            return to_python(Variable(unlocked([&] { return p.hessian(in); })));
          },
          "positions"_a, "edges"_a, "shifts"_a, "species"_a = nb::none(), "ghosts"_a = nb::none(),
          nb::sig("def hessian(self, positions: ArrayLike, edges: ArrayLike, shifts: ArrayLike, "
                  "species: ArrayLike | None = None, ghosts: ArrayLike | None = None) -> Tensor"),
          "The second derivative of the energy by the positions: f64[3N, 3N].")
      .def(
          "check",
          [](Potential& p, uint64_t seed, double spacing) {
            return unlocked([&] { return check_potential(p, {.seed = seed, .spacing = spacing}); });
          },
          "seed"_a = 0, "spacing"_a = 0.0,
          "Tries it on atoms at random, `spacing` apart (0: 0.4 of the cutoff): forces against "
          "differences, symmetries, the cutoff, the virial.");
}

}  // namespace gradus::python
