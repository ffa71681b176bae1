#include "ops/powers.h"

#include "ops/bind_work.h"
#include "ops/scalar/math.h"

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

void bind_power(BindCall& call, const PointwiseInfo& general) {
  work::Pointwise w = pointwise_work(general, call);
  w.exponent_is_number = true;
  call.set_work(std::move(w));
}

}  // namespace gradus::ops
