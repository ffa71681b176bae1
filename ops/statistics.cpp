#include "ops/statistics.h"

#include <cmath>

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

namespace {

void infer_floating(InferCall& call, const auto& a) {
  const Type& x = call.tensor(0);
  if (!x.is_floating())
    call.fail("'x' is {}; it must have a floating dtype, cast it first", to_string(x));
  infer_reduction(call, a, x.dtype);
}

// x less its mean, and what the sum of its squares is divided by.
struct Centred {
  Value x;
  Dim count, divisor;
};
Centred centred(const Value& x, const Ints& dims, int64_t correction) {
  Value wide = widened(x);
  Dim n = reduced_count(x.dims(), dims);
  Value mean = dims.empty() ? wide : over_count(sum(wide, dims, true), n);
  return {wide - mean, n, correction == 0 ? n : max(n - Dim(correction), Dim(0))};
}

// Without elements NaN, and with too few infinite: as of a divisor that only a run knows.
Value over_freedom(const Value& total, const Centred& c) {
  if (c.count == Dim(0)) return over_count(total, c.count);
  return total / c.divisor;
}

Value variance(const Value& x, const VarianceAttr& a) {
  Ints dims = reduced_dims(a, x.rank());
  Centred c = centred(x, dims, a.correction);
  Value squares = c.x * c.x;
  return over_freedom(sum(squares, dims, a.keepdim), c);
}

Value variance_gradient(const Value& x, const VarianceAttr& a, const Value& dy) {
  Ints dims = reduced_dims(a, x.rank());
  Centred c = centred(x, dims, a.correction);
  Value scale = restore_dims(widened(dy), dims, a.keepdim, x.rank()) * 2.0;
  Value scaled = over_freedom(scale, c);
  return scaled * c.x;
}

// a / b where b is not zero, else 0; b's zeros do not reach the derivatives either.
Value divide_or_zero(const Value& a, const Value& b, double power) {
  Value zero = eq(b, num(0.0));
  Value safe = where(zero, num(1.0), b);
  Value divisor = power == 1 ? safe : emit<Pow>(safe, num(power));
  return where(zero, num(0.0), a / divisor);
}

// sign(x) |x|^power, 0 at 0 whatever the power.
Value signed_power(const Value& x, double power) {
  Value zero = eq(x, num(0.0));
  Value safe = where(zero, num(1.0), emit<Abs>(x));
  Value raised = power == 1 ? safe : emit<Pow>(safe, num(power));
  return where(zero, num(0.0), emit<Sign>(x) * raised);
}

}  // namespace

void Var::infer(InferCall& call, const Attr& a) { infer_floating(call, a); }
void Var::compose(ComposeCall& c, const Attr& a) {
  c.give(cast(variance(c.x(), a), c.x().dtype()));
}
Value Var::dx(VjpCall& d, const Attr& a) { return variance_gradient(d.x(), a, d.dy()); }

void Std::infer(InferCall& call, const Attr& a) { infer_floating(call, a); }
void Std::compose(ComposeCall& c, const Attr& a) {
  Value v = variance(c.x(), a);
  c.give(cast(emit<Sqrt>(v), c.x().dtype()));
}
Value Std::dx(VjpCall& d, const Attr& a) {
  Value half = divide_or_zero(widened(d.dy()) * 0.5, widened(d.y()), 1);
  return variance_gradient(d.x(), a, half);
}

void LogSumExp::infer(InferCall& call, const Attr& a) {
  DType x = call.tensor(0).dtype;
  infer_reduction(call, a, gradus::is_floating(x) ? x : DType::f32);
}
void LogSumExp::compose(ComposeCall& c, const Attr& a) {
  DType dtype = c.x().type.is_floating() ? c.x().dtype() : DType::f32;
  Value x = widened(cast(c.x(), dtype));
  Ints dims = reduced_dims(a, x.rank());
  // Less the greatest one, unless that is infinite.
  Value greatest = emit<Amax>({x}, {.dim = dims, .keepdim = true, .allow_empty = true});
  Value infinite = eq(emit<Abs>(greatest), num(INFINITY));
  Value shift = where(infinite, num(0.0), greatest);
  Value powers = emit<Exp>(x - shift);
  Value log = emit<Log>(sum(powers, dims, true));
  Value y = log + shift;
  if (!a.keepdim && !dims.empty()) y = reshape(y, reduced_shape(x.dims(), dims, false));
  c.give(cast(y, dtype));
}
Value LogSumExp::dx(VjpCall& d, const Attr& a) {
  Value x = widened(d.x());
  Ints dims = reduced_dims(a, x.rank());
  Value y = restore_dims(widened(d.y()), dims, a.keepdim, x.rank());
  Value dy = restore_dims(widened(d.dy()), dims, a.keepdim, x.rank());
  Value share = emit<Exp>(x - y);
  return dy * share;
}

void Norm::infer(InferCall& call, const Attr& a) {
  if (std::isnan(a.p)) call.fail("'p' is NaN; it must be a number, inf or -inf");
  infer_floating(call, a);
}
void Norm::compose(ComposeCall& c, const Attr& a) {
  Value x = widened(c.x());
  Ints dims = reduced_dims(a, x.rank());
  auto norm = [&]() -> Value {
    if (a.p == 0) return sum(cast(ne(x, num(0.0)), x.dtype()), dims, a.keepdim);
    if (a.p == 2) return emit<Sqrt>(sum(x * x, dims, a.keepdim));
    Value magnitude = emit<Abs>(x);
    if (a.p == 1) return sum(magnitude, dims, a.keepdim);
    const ExtremumAttr over{.dim = dims, .keepdim = a.keepdim};
    if (std::isinf(a.p))
      return a.p > 0 ? emit<Amax>({magnitude}, over) : emit<Amin>({magnitude}, over);
    Value powers = emit<Pow>(magnitude, num(a.p));
    return emit<Pow>(sum(powers, dims, a.keepdim), num(1 / a.p));
  };
  c.give(cast(norm(), c.x().dtype()));
}
Value Norm::dx(VjpCall& d, const Attr& a) {
  if (a.p == 0) return {};
  Value x = widened(d.x());
  Ints dims = reduced_dims(a, x.rank());
  Value dy = restore_dims(widened(d.dy()), dims, a.keepdim, x.rank());
  if (a.p == 1) return emit<Sign>(x) * dy;
  Value y = restore_dims(widened(d.y()), dims, a.keepdim, x.rank());
  if (std::isinf(a.p)) {  // equal magnitudes share evenly; NaN where there is one
    Value magnitude = emit<Abs>(x);
    Value extreme = logical_or(eq(magnitude, y), emit<Isnan>(x));
    Value mask = cast(extreme, x.dtype());
    Value share = dy / sum(mask, dims, true);
    return emit<Sign>(x) * (share * mask);
  }
  if (a.p == 2) return x * divide_or_zero(dy, y, 1);
  Value scale = divide_or_zero(dy, y, a.p - 1);
  return signed_power(x, a.p - 1) * scale;
}

}  // namespace gradus::ops
