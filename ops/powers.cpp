#include "ops/powers.h"

#include "gradus/scalar/math.h"
#include "ops/bind_work.h"

namespace gradus::ops {

const PointwiseInfo& half_power_info(int half) {
  const PointwiseInfo* info = nullptr;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((cheap_half_powers[I] == half
          ? static_cast<void>(info = &PointwiseEntry<HalfPower<cheap_half_powers[I]>>::info())
          : static_cast<void>(0)),
     ...);
  }
  (std::make_index_sequence<cheap_half_powers.size()>());
  GRADUS_CHECK(info);
  return *info;
}

int half_power_of(const work::Nest& nest, const work::Step& step) {
  // The one operator with such rules, told by its loops.
  static const PointwiseInfo* pow = &general_power_info();
  if (!step.call.op || &step.call.op->pointwise() != pow) return 0;
  const ir::Number* exponent = nest.number(step.operands[1]);
  bool plain = exponent && !nest.number(step.operands[0]) &&
               is_floating(nest.dtype_of(step.operands[0])) &&
               nest.dtype_of(step.operands[0]) == step.dtype;
  // A truth value is no exponent to look at.
  return plain && exponent->category != Category::boolean ? cheap_half_power(exponent->as_double())
                                                          : 0;
}

void bind_power(BindCall& call, const PointwiseInfo& general) {
  work::Pointwise w = pointwise_work(general, call);
  w.exponent_is_number = true;
  call.set_work(std::move(w));
}

}  // namespace gradus::ops
