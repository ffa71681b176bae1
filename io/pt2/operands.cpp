#include "io/pt2/operands.h"

#include <algorithm>

#include "gradus/registry.h"

namespace gradus::pt2 {

using namespace ops;

Value in_result_dtype(Call& c, std::string_view name) { return as(c.x(name), c.result().dtype); }

Value in_result_dtype_or_undefined(Call& c, std::string_view name) {
  return c.given(name) ? in_result_dtype(c, name) : Value();
}

ir::Literal number_attribute(Call& c, std::string_view name) {
  const Value v = c.x(name);
  if (const auto* n = std::get_if<ir::Number>(&v.operand)) {
    if (n->category == Category::floating) return n->floating;
    return n->integer;
  }
  if (std::holds_alternative<Dim>(v.operand))
    c.fail("its argument '{}' is a size that has a name, and has to be a number", name);
  c.fail("its argument '{}' is a tensor, and has to be a number", name);
}

Ints dims_or_all(Call& c, std::string_view name, int rank) {
  Ints dims;
  for (int64_t d : c.integers(name, {})) {
    const int64_t nameable = std::max(rank, 1);
    if (d < -nameable || d >= nameable)
      c.fail("its argument '{}' has {} in it, and the tensor has {} dimensions", name, d, rank);
    if (rank > 0) dims.push_back(d < 0 ? d + rank : d);
  }
  std::sort(dims.begin(), dims.end());
  if (std::adjacent_find(dims.begin(), dims.end()) != dims.end())
    c.fail("its argument '{}' has a dimension twice", name);
  if (dims.empty())
    for (int d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

Value as_row(const Value& x) { return x.rank() == 0 ? unsqueeze(x, 0) : x; }

Value number_tensor(Call& c, const Value& number, DType dtype) {
  return cast(full(c.world(), {}, 0, dtype) + number, dtype);
}

Value positive_part(const Value& x) { return unary("relu", x); }

std::string_view existing(Call& c, std::string_view op) {
  if (!find(op)) c.fail("there is no operator '{}' that it could become", op);
  return op;
}

}  // namespace gradus::pt2
