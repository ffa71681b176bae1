// Compares derivative stages with central differences of the previous stage.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/inputs.h"

#pragma GCC visibility push(default)

namespace gradus {

// Options of a gradient check.
struct GradcheckOptions {
  int order = 1;  // stages 1 to `order` are checked
  // Inputs of stage 0 to differentiate with respect to. nullopt: all floating inputs.
  std::optional<std::vector<std::string>> wrt;
  // The seed of the cotangents (which are always random), of the sampled elements, and of inputs
  // that `sources` does not give.
  uint64_t seed = 0;
  double tolerance = 1e-6;  // limit of |a - n| / max(1, |a|, |n|)
  // Limit of elements of an input that are checked one by one. Larger inputs are sampled.
  int64_t max_elements = 64;
  int directions = 4;  // random directions along which a sampled input is also checked
  int tries = 8;       // attempts with inputs moved away from kinks
  // Called from time to time with the fraction of the stage's work that is done.
  std::function<void(int stage, double fraction)> progress;
};

// The result for one input of one stage: the agreement of d<stage>_<input>.
struct GradcheckEntry {
  int stage = 0;      // the derivative stage
  std::string input;  // an input of an earlier stage
  double error = 0;   // the largest |a - n| / max(1, |a|, |n|); infinity if a value is not finite
  // The position of the largest error: a row-major index of the input, or -1 for a direction.
  int64_t element = 0;
  double analytic = 0, numeric = 0;
  int64_t size = 0;     // number of elements of the input
  int64_t checked = 0;  // elements and directions that were compared
  // Elements that were not compared. kinks: the function has a kink or a jump there, also after the
  // inputs were moved. edges: the differences are not finite, as at the boundary of a domain.
  int64_t kinks = 0, edges = 0;
  bool passed = false;
  std::string why;  // the reason, if the check did not pass or elements were not compared
  // "ok"; "WRONG"; or "UNCHECKED" where the input has elements, none of which could be compared.
  std::string_view verdict() const;
};

// The results of a gradient check.
struct GradcheckReport {
  std::vector<GradcheckEntry> entries;  // sorted by stage, then by input
  int resampled = 0;                    // how often inputs were moved away from kinks
  bool passed() const;
};

// Converts the program to f64, differentiates it up to `order`, and checks every stage k from 1 on.
// Let phi be the sum of <ct<k>_r, r> over the floating results r of stage k-1, as a function of all
// differentiated inputs of the stages before k (cotangents included). Each result d<k>_<i> is
// compared with fourth-order central differences of phi in the input i, with two step sizes. A
// result `none` is compared with zero. Integer and bool inputs are not changed.
//
// If the quotients of two step sizes differ, at each of several scales, they are no estimate of a
// derivative. The inputs are then moved, and the stage is checked again. An input passes if every
// compared derivative is within the tolerance and at least one was compared, or if the input is
// empty.
//
// `sources` gives inputs of stage 0 (floating inputs of any dtype) and sizes. Inputs that it
// neither finds nor fills are random. Sizes that it does not determine are small. Throws Error for
// a program that cannot be differentiated or run, or whose stage 0 has no floating result.
GradcheckReport gradcheck(const ir::Graph& program, const InputSources& sources,
                          const GradcheckOptions& options = {},
                          std::shared_ptr<Context> context = Context::default_context());

}  // namespace gradus

#pragma GCC visibility pop
