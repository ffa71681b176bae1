#include "ops/operands.h"

#include "gradus/rules.h"

namespace gradus::ops {

const Value& tensor_operand(const ComposeCall& c, size_t i) {
  std::string_view name = c.op.operand(i).name;
  if (!c.given(i)) c.fail("operand '{}' is missing", name);
  if (!c.x(i).is_tensor()) c.fail("operand '{}' must be a tensor, not a number", name);
  return c.x(i);
}

const Value& floating_operand(const ComposeCall& c, size_t i) {
  const Value& x = tensor_operand(c, i);
  if (!x.type.is_floating())
    c.fail("operand '{}' is {}; it must have a floating dtype, cast it first", c.op.operand(i).name,
           to_string(x.type));
  return x;
}

void same_size(const ComposeCall& c, const Dim& a, const Dim& b, std::string_view what) {
  bool differ = a.is_constant() && b.is_constant() ? a != b : (a == Dim(1)) != (b == Dim(1));
  if (differ) c.fail("sizes {} and {} differ: {}", a.to_string(), b.to_string(), what);
}

Value per_channel(const ComposeCall& c, size_t i, const Value& x) {
  if (!c.given(i)) return {};
  const Value& v = floating_operand(c, i);
  std::string_view name = c.op.operand(i).name;
  if (v.rank() != 1)
    c.fail("operand '{}' is {}; it must hold one number per channel of {}", name, to_string(v.type),
           to_string(x.type));
  same_size(c, v.dims()[0], x.dims()[1],
            fmt::format("'{}' and the channels of {}", name, to_string(x.type)));
  Dims shape(x.dims().size() - 1, Dim(1));
  shape[0] = v.dims()[0];
  return reshape(v, shape);
}

}  // namespace gradus::ops
