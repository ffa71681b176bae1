#include "ir/passes/checkpoint_lengths.h"

#include <algorithm>
#include <cmath>

#include "gradus/error.h"

namespace gradus::ir {

namespace {

using ops::Ints;

// What is kept at most at once: of each level the carries, of the innermost segment all.
int64_t kept(const LoopCosts& c, const Ints& lengths) {
  int64_t bytes = 0, steps = c.steps;
  for (int64_t each : lengths) {
    bytes += (steps + each - 1) / each * c.carries;
    steps = each;
  }
  return bytes + steps * c.step;
}

// Of these levels those that keep least: as many segments in each.
Ints even_lengths(const LoopCosts& c, int levels) {
  if (c.carries == 0) return {1};
  const double ratio = static_cast<double>(c.carries) / static_cast<double>(c.step);
  const double each = std::pow(static_cast<double>(c.steps) / ratio, 1.0 / (levels + 1));
  Ints lengths;
  auto length = static_cast<double>(c.steps);
  for (int i = 0; i < levels; ++i) {
    length /= each;
    const auto whole = std::max<int64_t>(static_cast<int64_t>(std::ceil(length)), 1);
    if (whole >= (lengths.empty() ? c.steps : lengths.back())) break;
    lengths.push_back(whole);
  }
  return lengths;
}

}  // namespace

Ints checkpoint_lengths(const LoopCosts& c) {
  Ints best;
  int64_t least = kept(c, best);
  for (int levels = 1; least > c.memory && levels <= 62; ++levels) {
    Ints lengths = even_lengths(c, levels);
    const int64_t bytes = kept(c, lengths);
    if (bytes >= least) continue;
    least = bytes;
    best = std::move(lengths);
  }
  if (least > c.memory)
    throw Error(
        "scan: memory is {} bytes; the derivatives of its {} steps keep at least {}; set memory to "
        "this number or more",
        c.memory, c.steps, least);
  return best;
}

}  // namespace gradus::ir
