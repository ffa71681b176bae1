#include "ops/bitwise.h"

#include "ops/families.h"
#include "ops/operands.h"

namespace gradus::ops {

void infer_bits(InferCall& call, const PointwiseInfo& info, bool takes_bool) {
  infer_pointwise(info, call);
  const DType dtype = call.out[0].dtype;
  if (is_floating(dtype) || (dtype == DType::boolean && !takes_bool))
    call.fail("the operands' common dtype is {}; it must be an integer{}", name_of(dtype),
              takes_bool ? " or bool" : "");
}

void BitwiseNot::compose(ComposeCall& c) {
  const Value& x = tensor_operand(c, 0);
  if (is_floating(x.dtype()))
    c.fail("operand 'x' is {}; it must have an integer dtype or bool", to_string(x.type));
  c.give(x.dtype() == DType::boolean ? logical_not(x) : emit<BitwiseXor>(x, num(int64_t{-1})));
}

Family bitwise_family() { return fold<BitwiseOperators>(); }

}  // namespace gradus::ops
