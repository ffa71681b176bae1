#include "ops/number_literal.h"

#include <cmath>

namespace gradus::ops {

bool read_literal(const Literal& l, NumberLiteral& n, std::string& what) {
  if (std::holds_alternative<Dim>(l.value)) {
    int64_t i;
    if (!read_literal(l, i, what)) return false;
    n = NumberLiteral(i);
    return true;
  }
  if (const bool* b = std::get_if<bool>(&l.value)) {
    n = NumberLiteral(int64_t{*b});
    return true;
  }
  double f;
  if (!read_literal(l, f, what)) return false;
  n = NumberLiteral(f);
  return true;
}

Literal write_literal(const NumberLiteral& n) {
  return n.is_floating() ? Literal(n.floating) : Literal(n.integer);
}

void require_integral_coefficient(const ir::InferCall& call, std::string_view name,
                                  const NumberLiteral& n) {
  if (is_floating(call.out[0].dtype) || !n.is_floating() || n.floating == std::trunc(n.floating))
    return;
  call.fail("attribute '{}' is {}, but the operands are integers; cast one to a floating dtype",
            name, n.floating);
}

ir::Number number_of(const Literal& literal, const ir::DimEnvironment* sizes, std::string_view op,
                     std::string_view attribute) {
  if (const bool* b = std::get_if<bool>(&literal.value)) return ir::Number::of(*b);
  if (const Dim* d = std::get_if<Dim>(&literal.value))
    return ir::Number::of(d->is_constant() ? d->value() : sizes ? d->evaluate(*sizes) : 0);
  double f = 0;
  std::string what;
  if (read_literal(literal, f, what)) return ir::Number::of(f);
  throw Error("{}: attribute '{}' must be a number, not {}", op, attribute, to_string(literal));
}

}  // namespace gradus::ops
