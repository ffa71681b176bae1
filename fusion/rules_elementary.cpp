#include "fusion/make_rules.h"
#include "gradus/scalar/math.h"
#include "ops/elementary.h"

namespace gradus::fusion {

RuleTable elementary_rules() { return fold_rules<ops::ElementaryOperators>(); }

}  // namespace gradus::fusion
