// gradus check-potential
#include <cmath>

#include "gradus/potential.h"
#include "tools/cli.h"
#include "tools/output.h"

namespace gradus::cli {

namespace {

std::string line_of(const PotentialCheck& c) {
  const char* verdict = c.passed() ? "ok" : c.needed ? "WRONG" : "no";
  return fmt::format("{:<12}  {:<5}  {:.2g} of {:.0e}  {}\n", c.name, verdict, c.error, c.allowed,
                     c.what);
}

}  // namespace

void check_potential(const CheckPotentialCommand& command) {
  if (command.cutoff && !(*command.cutoff > 0 && std::isfinite(*command.cutoff)))
    throw UsageError("--cutoff is a length greater than 0, not {}", *command.cutoff);
  if (command.spacing < 0 || !std::isfinite(command.spacing))
    throw UsageError("--spacing is a length greater than 0, not {}", command.spacing);
  PotentialOptions options;
  options.cutoff = command.cutoff;
  options.species = command.species;
  options.check = false;
  options.fusion = FusionMode::off;
  Potential potential = Potential::load(command.program, command.weights, options);
  std::string text;
  size_t off = 0, all = 0;
  for (const PotentialCheck& c :
       gradus::check_potential(potential, {.seed = command.seed, .spacing = command.spacing})) {
    text += line_of(c);
    off += c.needed && !c.passed();
    ++all;
  }
  put(text);
  if (off) throw Error("{}: {} of {} checks failed", command.program, off, all);
}

}  // namespace gradus::cli
