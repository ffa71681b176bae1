#include "fusion/cost.h"

namespace gradus::fusion {

bool worth_a_kernel(const Nest& nest, const Frame&) { return nest.steps.size() >= 2; }

}  // namespace gradus::fusion
