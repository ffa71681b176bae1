// Finding the first function whose gradient is not a number.
#pragma once

#include "autograd/variable.h"

namespace gradus::autograd {

// In anomaly mode: throws Error if one of the gradients that `node` gave holds a NaN (an infinity,
// on request), with the number of that gradient, where the node was made, and which nodes' runs
// made it in turn.
void look_for_anomalies(const Node& node, const Variables& gradients);

}  // namespace gradus::autograd
