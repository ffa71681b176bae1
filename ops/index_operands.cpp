#include "ops/index_operands.h"

namespace gradus::ops {

const Type& index_tensor(const InferCall& call, size_t i) {
  const Type& t = call.tensor(i);
  if (t.dtype == DType::i64 || t.dtype == DType::i32) return t;
  if (t.dtype == DType::boolean)
    call.fail(
        "{} is the mask {}; the attribute `count` has to name how many elements it picks. Use "
        "`where` or `masked_fill`, or give indices",
        call.name_of_operand(i), to_string(t));
  call.fail("{} is {}; indices are i64 or i32", call.name_of_operand(i), to_string(t));
}

void same_dtype(const InferCall& call, const Type& x, size_t i) {
  if (call.is_number(i)) return;
  const Type& src = call.tensor(i);
  if (src.dtype != x.dtype)
    call.fail("{} is {}, 'x' is {}; cast one of them", call.name_of_operand(i), to_string(src),
              to_string(x));
}

}  // namespace gradus::ops
