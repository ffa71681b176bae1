#include "ops/number_literal.h"

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

}  // namespace gradus::ops
