// What a backward would do, before it runs.
#pragma once

#include <vector>

#include "autograd/variable.h"

#pragma GCC visibility push(default)

namespace gradus::autograd {

// A node that takes part, in the order in which one thread runs them.
struct BackwardStep {
  static constexpr uint32_t root = UINT32_MAX;
  struct Contribution {
    uint32_t step;    // whose gradient it is; `root`: a cotangent that was given
    uint32_t output;  // of that step's node; the root's number
  };
  const Node* node = nullptr;  // lives as long as the roots' nodes do
  bool runs = false;           // otherwise only what arrives is asked for
  // By output of the node: whether its gradient is used.
  SmallVector<bool, 4> wanted;
  // By input of the node: what is added up there, in this order.
  SmallVector<std::vector<Contribution>, 1> inputs;
};

}  // namespace gradus::autograd

#pragma GCC visibility pop
