#include "fusion/make_rules.h"
#include "ops/activation.h"
#include "ops/scalar/math.h"

namespace gradus::fusion {

RuleTable activation_rules() { return fold_rules<ops::ActivationOperators>(); }

}  // namespace gradus::fusion
