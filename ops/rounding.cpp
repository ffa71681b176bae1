#include "ops/rounding.h"

#include <algorithm>

#include "ops/families.h"
#include "ops/scalar/math.h"
#include "ops/tiles.h"

namespace gradus::ops {

namespace {

// A division of integers, refused where the divisor has a zero.
struct CheckedDivision {
  ir::Kernel division;
  Layout divisor;
  std::string_view op;
};

// Whether any element is zero: rows of the last dimension, converted a tile at a time.
bool has_zero(const Layout& layout, const std::byte* data, size_t d) {
  constexpr int64_t tile = 512;
  if (d + 1 < layout.shape.size()) {
    int64_t step = layout.strides[d] * static_cast<int64_t>(size_of(layout.dtype));
    int64_t rows = layout.strides[d] ? layout.shape[d] : std::min<int64_t>(layout.shape[d], 1);
    for (int64_t i = 0; i < rows; ++i)
      if (has_zero(layout, data + i * step, d + 1)) return true;
    return false;
  }
  int64_t count = layout.shape.empty() ? 1 : layout.shape[d];
  int64_t stride = layout.shape.empty() ? 1 : layout.strides[d];
  int64_t buffer[tile];
  for (int64_t i = 0; i < count; i += tile) {
    int64_t n = std::min(tile, count - i);
    const std::byte* row = data + i * stride * static_cast<int64_t>(size_of(layout.dtype));
    load_tile(layout.dtype, DType::i64, row, stride, n, buffer);
    if (std::find(buffer, buffer + n, 0) != buffer + n) return true;
  }
  return false;
}

void run_checked_division(const void* parameters, std::byte* const* args, KernelScope& scope) {
  const auto& p = *static_cast<const CheckedDivision*>(parameters);
  if (has_zero(p.divisor, args[1], 0))
    throw Error("{}: operand 'y' has a zero, by which integers cannot be divided", p.op);
  p.division.run(p.division.parameters.get(), args, scope);
}

void refuse_integer_zero_divisors(BindCall& call) {
  if (is_floating(call.out[0].dtype) || call.out[0].numel() == 0) return;
  CheckedDivision p{call.kernel, call.in[1], call.op.name};
  call.set_kernel(run_checked_division, std::move(p), call.kernel.scratch_bytes);
}

}  // namespace

void Fmod::bind(BindCall& call) {
  PointwiseEntry<Fmod>::bind(call);
  refuse_integer_zero_divisors(call);
}
void Remainder::bind(BindCall& call) {
  PointwiseEntry<Remainder>::bind(call);
  refuse_integer_zero_divisors(call);
}
void FloorDivide::bind(BindCall& call) {
  PointwiseEntry<FloorDivide>::bind(call);
  refuse_integer_zero_divisors(call);
}

void Fmod::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] {
    Value quotient = unary("trunc", d.x(0) / d.x(1));
    return -(d.dy() * quotient);
  });
}

void Remainder::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] {
    Value quotient = binary("floor_divide", d.x(0), d.x(1));
    return -(d.dy() * quotient);
  });
}

Family rounding_family() { return fold<RoundingOperators>(); }

}  // namespace gradus::ops
