#include "ops/rounding.h"

#include <algorithm>

#include "ops/device_form.h"
#include "ops/families.h"
#include "ops/scalar/math.h"
#include "ops/tiles.h"

namespace gradus::ops {

namespace {

// A division of integers, refused where the divisor has a zero.
struct CheckedDivision {
  ir::Kernel division;
  Layout dividend, divisor, result;
  const Operator* op;
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
  if (has_zero(p.divisor, args[1], 0)) throw zero_divisor_error(*p.op);
  p.division.run(p.division.parameters.get(), args, scope);
}

void refuse_integer_zero_divisors(BindCall& call) {
  if (is_floating(call.out[0].dtype) || call.out[0].numel() == 0) return;
  CheckedDivision p{call.kernel, call.in[0], call.in[1], call.out[0], &call.op};
  call.set_kernel(run_checked_division, std::move(p), call.kernel.scratch_bytes);
}

}  // namespace

Error zero_divisor_error(const Operator& op) {
  return Error("{}: operand 'y' has a zero, by which integers cannot be divided", op.name);
}

std::optional<DeviceForm> form_of_division(ir::KernelFunction run, const void* parameters) {
  if (run != run_checked_division) return std::nullopt;
  const auto& p = *static_cast<const CheckedDivision*>(parameters);
  DeviceDivision form;
  form.op = p.op;
  form.out = p.result.dtype;
  const Sizes& shape = p.result.shape;
  auto stride_of = [&](const Layout& l, size_t d) {
    const size_t lead = shape.size() - l.shape.size();
    return d < lead || l.shape[d - lead] == 1 ? 0 : l.strides[d - lead];
  };
  const std::array<const Layout*, 2> in{&p.dividend, &p.divisor};
  for (size_t k = 0; k < in.size(); ++k) form.in[k] = in[k]->dtype;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    bool joins = !form.shape.empty();
    for (size_t k = 0; k < in.size() && joins; ++k)
      joins = form.strides[k].back() == stride_of(*in[k], d) * shape[d];
    if (joins)
      form.shape.back() *= shape[d];
    else
      form.shape.push_back(shape[d]);
    for (size_t k = 0; k < in.size(); ++k) {
      form.strides[k].resize(form.shape.size());
      form.strides[k].back() = stride_of(*in[k], d);
    }
  }
  if (form.shape.empty()) {
    form.shape = {1};
    form.strides = {Sizes{0}, Sizes{0}};
  }
  return DeviceForm{std::move(form)};
}

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
