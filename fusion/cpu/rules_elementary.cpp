#include "fusion/cpu/make_rules.h"
#include "ops/elementary.h"
#include "ops/scalar/math.h"

namespace gradus::fusion::cpu {

RuleTable elementary_rules() { return fold_rules<ops::ElementaryOperators>(); }

}  // namespace gradus::fusion::cpu
