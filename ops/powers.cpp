#include "ops/powers.h"

#include <cstring>

#include "ops/scalar/math.h"

namespace gradus::ops {

namespace {

using ir::BindCall;
using ir::Kernel;
using ir::KernelScope;

constexpr size_t cases = cheap_half_powers.size();

struct PowerPlan {
  DType number;  // what the exponent is written as
  Kernel general;
  std::array<Kernel, cases> cheap;
};

// A number is known when it is stored, and the same in every run: nothing is decided by element.
void run_power(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const PowerPlan& p = *static_cast<const PowerPlan*>(parameters);
  double exponent = 0;
  if (p.number == DType::f64) {
    std::memcpy(&exponent, args[1], sizeof(double));
  } else if (p.number == DType::i64) {
    int64_t n = 0;
    std::memcpy(&n, args[1], sizeof n);
    exponent = static_cast<double>(n);
  }
  for (size_t i = 0; i < cases; ++i)
    if (exponent * 2 == cheap_half_powers[i]) {
      std::byte* unary[]{args[0], args[2]};
      return p.cheap[i].run(p.cheap[i].parameters.get(), unary, scope);
    }
  p.general.run(p.general.parameters.get(), args, scope);
}

template <size_t... I>
void bind_cheap(PowerPlan& p, const BindCall& call, std::index_sequence<I...>) {
  auto bind = [&](const PointwiseInfo& info) {
    BindCall unary{call.op,
                   call.in.first(1),
                   call.present.first(1),
                   call.number.first(1),
                   call.attributes,
                   call.sizes,
                   call.out,
                   {},
                   {}};
    bind_pointwise(info, unary);
    return std::move(unary.kernel);
  };
  ((p.cheap[I] = bind(PointwiseEntry<HalfPower<cheap_half_powers[I]>>::info())), ...);
}

}  // namespace

const PointwiseInfo& half_power_info(int half) {
  const PointwiseInfo* info = nullptr;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((cheap_half_powers[I] == half
          ? static_cast<void>(info = &PointwiseEntry<HalfPower<cheap_half_powers[I]>>::info())
          : static_cast<void>(0)),
     ...);
  }
  (std::make_index_sequence<cases>());
  GRADUS_CHECK(info);
  return *info;
}

void bind_power(BindCall& call, const PointwiseInfo& general) {
  PowerPlan p;
  p.number = call.in[1].dtype;
  bind_pointwise(general, call);
  p.general = std::move(call.kernel);
  bind_cheap(p, call, std::make_index_sequence<cases>());
  call.set_kernel(run_power, std::move(p));
}

}  // namespace gradus::ops
