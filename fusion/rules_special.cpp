#include "fusion/make_rules.h"
#include "gradus/scalar/math.h"
#include "ops/sinc.h"
#include "ops/special.h"

namespace gradus::fusion {

RuleTable special_rules() { return fold_rules<ops::SpecialOperators, ops::SincOperators>(); }

}  // namespace gradus::fusion
