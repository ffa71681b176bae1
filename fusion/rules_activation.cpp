#include "fusion/make_rules.h"
#include "gradus/scalar/math.h"
#include "ops/activation.h"

namespace gradus::fusion {

RuleTable activation_rules() { return fold_rules<ops::ActivationOperators>(); }

}  // namespace gradus::fusion
