// What a gradient has to be to go on.
#pragma once

#include "gradus/variable.h"

namespace gradus::autograd {

// What node `from` gave for its edges: as many as there are, each fit for the input it goes to.
// Shapes that broadcast from the input's are summed down, other dtypes cast, 0-d ones moved to the
// input's device. What goes nowhere is dropped, undefined ones pass. Errors name node and number.
void check_gradients(const Node& from, Variables& gradients);
// The same for the cotangents that a backward begins with.
void check_cotangents(std::span<const Edge> roots, Variables& cotangents);

// In anomaly mode: throws Error if one of the gradients that `node` gave holds a NaN (an infinity,
// on request), with the number of that gradient, where the node was made, and which nodes' runs
// made it in turn.
void look_for_anomalies(const Node& node, const Variables& gradients);

// An exception with the node's name in its message, where it is one of Gradus'.
std::exception_ptr named(std::exception_ptr error, const Node& node);

}  // namespace gradus::autograd
