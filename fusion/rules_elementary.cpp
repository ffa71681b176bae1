#include "fusion/make_rules.h"
#include "ops/elementary.h"
#include "ops/scalar/math.h"

namespace gradus::fusion {

RuleTable elementary_rules() { return fold_rules<ops::ElementaryOperators>(); }

}  // namespace gradus::fusion
