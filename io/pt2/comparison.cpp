// Comparisons.
#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

void comparison_rule(Call& c) { c.give(binary(c.ours(), c.x(), c.x("other"))); }

// |x - y| <= atol + rtol |y|, or equal; infinities are close to themselves alone.
void isclose_rule(Call& c) {
  const double rtol = c.number("rtol", 1e-5), atol = c.number("atol", 1e-8);
  Value x = c.x(), y = c.x("other");
  Value close = eq(x, y);
  if (c.flag("equal_nan", false)) {
    Value both = logical_and(unary("isnan", x), unary("isnan", y));
    close = logical_or(close, both);
  }
  if (rtol == 0 && atol == 0) return c.give(close);
  if (!is_floating(x.dtype())) x = cast(x, DType::f64), y = cast(y, DType::f64);
  Value distance = unary("abs", x - y), allowed = unary("abs", y * rtol) + atol;
  Value near = logical_and(unary("isfinite", distance), le(distance, allowed));
  c.give(logical_or(close, near));
}

// Whether each element is among the others.
void isin_rule(Call& c) {
  Value x = c.given("elements") ? c.x("elements") : c.x("element");
  Value set = c.given("test_elements") ? c.x("test_elements") : c.x("test_element");
  Value found;
  if (set.is_number()) {
    found = eq(x, set);
  } else {
    Value row = reshape(set, {ir::numel(set.dims())});
    Value each = x.is_number() ? eq(x, row) : eq(unsqueeze(x, x.rank()), row);
    found = emit("any", {each}, {{"dim", each.rank() - 1}});
  }
  c.give(c.flag("invert", false) ? logical_not(found) : found);
}

constexpr RuleEntry comparison_table[] = {
    {"eq", comparison_rule},
    {"ne", comparison_rule},
    {"lt", comparison_rule},
    {"le", comparison_rule},
    {"gt", comparison_rule},
    {"ge", comparison_rule},
    {"not_equal", comparison_rule, "ne"},
    {"less", comparison_rule, "lt"},
    {"less_equal", comparison_rule, "le"},
    {"greater", comparison_rule, "gt"},
    {"greater_equal", comparison_rule, "ge"},
    {"isclose", isclose_rule},
    {"isin", isin_rule},
};

}  // namespace

constinit const Rules comparison_rules = comparison_table;

}  // namespace gradus::pt2
