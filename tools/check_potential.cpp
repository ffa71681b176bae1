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
    throw UsageError("--cutoff: expected a length greater than 0, found {}", *command.cutoff);
  if (command.spacing && !(*command.spacing > 0 && std::isfinite(*command.spacing)))
    throw UsageError("--spacing: expected a length greater than 0, found {}", *command.spacing);
  PotentialOptions options;
  options.cutoff = command.cutoff;
  options.species = command.species;
  options.check = false;
  options.fusion = FusionMode::off;
  Potential potential = Potential::load(command.program, command.weights, options);
  std::string text;
  std::vector<std::string> off;
  size_t all = 0;
  for (const PotentialCheck& c : gradus::check_potential(
           potential, {.seed = command.seed, .spacing = command.spacing.value_or(0)})) {
    text += line_of(c);
    if (c.needed && !c.passed()) off.push_back(c.name);
    ++all;
  }
  put(text);
  if (!off.empty())
    throw Error("{}: {} of {} checks failed: {}", command.program, off.size(), all,
                fmt::join(off, ", "));
}

}  // namespace gradus::cli
