// A third way to run a program: stage 0 as variables, each further stage by the engine.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// Whether the later stages are what `differentiate` makes of stage 0 alone, so that the engine can
// take their place.
bool is_derived(const Subject& subject);
// What the stages return: stage k's gradients are those of stage k-1's results, found by the engine
// in the graph that all stages before left.
Results evaluate_eagerly(const Subject& subject);

}  // namespace gradus::corpus
