// Holding derivative stages against numbers: central differences of the stage before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/inputs.h"

#pragma GCC visibility push(default)

namespace gradus {

struct GradcheckOptions {
  int order = 1;  // stages 1 to `order` are checked
  // Stage-0 inputs to differentiate with respect to; absent: all floating ones.
  std::optional<std::vector<std::string>> wrt;
  // Of the cotangents (which are always random), of what is picked, and of inputs that `inputs`
  // does not give.
  uint64_t seed = 0;
  double tolerance = 1e-6;    // of |a - n| / max(1, |a|, |n|)
  int64_t max_elements = 64;  // of one input, looked at one by one; larger inputs are sampled
  int directions = 4;         // along which a sampled input moves as a whole
  int tries = 8;              // at inputs nudged away from kinks
  // Told from time to time how far the work is; for a progress line.
  std::function<void(int stage, double fraction)> progress;
};

// What was found for one differentiated input of one stage: how well d<stage>_<input> agrees.
struct GradcheckEntry {
  int stage = 0;      // the derivative stage
  std::string input;  // of an earlier stage
  double error = 0;   // the worst |a - n| / max(1, |a|, |n|); infinity if one is not finite
  // Where the worst one is: a row-major index of the input, or -1 for a direction.
  int64_t element = 0;
  double analytic = 0, numeric = 0;
  int64_t size = 0;     // elements of the input
  int64_t checked = 0;  // elements and directions that were compared
  // Elements that were left out: the function has a kink or a jump there, and nudging the inputs
  // did not help; or the differences are not finite, as at the edge of a domain.
  int64_t kinks = 0, edges = 0;
  bool passed = false;
  std::string why;  // if it did not pass, or if something was left out
};

struct GradcheckReport {
  std::vector<GradcheckEntry> entries;  // by stage, then by input
  int resampled = 0;                    // how often inputs were nudged away from kinks
  bool passed() const;
};

// Differentiates the program, retyped to f64, up to `order` and checks every stage k from 1 on.
// With phi the sum of <ct<k>_r, r> over the floating results r of stage k-1, as a function of all
// differentiated inputs of the stages before k (cotangents included), each result d<k>_<i> is held
// against fourth-order central differences of phi in the input i, at two step sizes. A result
// `none` is held to be zero. Integer and bool inputs stay as they are.
//
// A difference quotient that two step sizes do not agree about, at any of several scales, says
// nothing about a derivative: the inputs are nudged there and the stage is tried again. An input
// passes if nothing that was compared is off, and something was (or it has no elements).
//
// `sources` gives inputs of stage 0 (floating ones of any dtype) and sizes; what it neither finds
// nor fills is random, and a size that nothing settles is a small one.
// Throws Error for a program that cannot be differentiated or run.
GradcheckReport gradcheck(const ir::Graph& program, const InputSources& sources,
                          const GradcheckOptions& options = {},
                          std::shared_ptr<Context> context = Context::default_context());

}  // namespace gradus

#pragma GCC visibility pop
