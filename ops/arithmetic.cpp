#include "ops/arithmetic.h"

#include <cmath>
#include <limits>

#include "gradus/scalar/math.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/powers.h"

namespace gradus::ops {

namespace {

Value halved_at_ties(const Value& dy, const Value& loses, const Value& ties) {
  Value half = dy * 0.5;
  Value shared = where(ties, half, dy);
  return where(loses, num(0.0), shared);
}

}  // namespace

Value Rsqrt::dx(VjpCall& d) {  // dx = -dy y^3 / 2
  Value cube = d.y() * emit<Square>(d.y());
  return d.dy() * (cube * -0.5);
}

void Add::infer(InferCall& call, const Attr& a) {
  PointwiseEntry<Add>::infer(call);
  require_integral_coefficient(call, "alpha", a.alpha);
}

void Sub::infer(InferCall& call, const Attr& a) {
  PointwiseEntry<Sub>::infer(call);
  require_integral_coefficient(call, "alpha", a.alpha);
}

void Div::vjp(VjpCall& d) {  // dx = dy / y, dy = -(dy / y) z
  d.give(0, [&] { return d.dy() / d.x(1); });
  d.give(1, [&] {
    Value share = d.dy() / d.x(1);
    return -sum_to(share * d.y(), d.x_type(1).dims);
  });
}

namespace {

// dy * exponent * x^(exponent - 1)
Value pow_base_gradient(VjpCall& d) {
  const Value &x = d.x(0), &exponent = d.x(1);
  if (auto e = exponent.constant()) {
    if (*e == 0) return zeros_of(d.world, d.x_type(0));
    if (*e == 1) return d.dy();
    if (*e == 2) return d.dy() * (x * 2.0);
    return d.dy() * (emit<Pow>({x, num(*e - 1)}) * *e);
  }
  if (const auto* size = std::get_if<Dim>(&exponent.operand)) {
    Value slope = emit<Pow>({x, Value::number(*size - Dim(1))}) * *size;
    return d.dy() * slope;
  }
  // Where both are zero the slope is 0 and not 0 * inf: a base of one does it. A select by the
  // exponent alone would lose the mixed derivative 1 / x where the exponent is zero.
  Value base = where(logical_or(x, exponent), x, num(1.0));
  Value power = emit<Pow>({base, exponent - 1.0});
  return d.dy() * (exponent * power);
}

// dy * z * log(x), 0 where x is 0 and the exponent is not negative.
Value pow_exponent_gradient(VjpCall& d) {
  const Value &x = d.x(0), &exponent = d.x(1);
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (auto base = x.constant()) {
    if (*base != 0) return d.dy() * (d.y() * std::log(*base));
    Value factor = where(lt(exponent, num(0.0)), num(-inf), num(0.0));
    return d.dy() * (d.y() * factor);
  }
  Value base = x.is_number() ? x * ones_like(exponent) : x;
  Value limit = logical_and(eq(base, num(0.0)), ge(exponent, num(0.0)));
  Value log = emit<Log>(where(limit, num(1.0), base));
  return d.dy() * (d.y() * log);
}

}  // namespace

const PointwiseInfo& general_power_info() { return PointwiseEntry<Pow>::info(); }

void Pow::bind(BindCall& call) {
  const PointwiseInfo& info = general_power_info();
  const DType dtype = call.in[0].dtype;
  if (call.number[1] && !call.number[0] && is_floating(dtype) && dtype == call.out[0].dtype)
    bind_power(call, info);
  else
    bind_pointwise(info, call);
}

void Pow::vjp(VjpCall& d) {
  d.give(0, [&] { return pow_base_gradient(d); });
  d.give(1, [&] { return pow_exponent_gradient(d); });
}

void Maximum::vjp(VjpCall& d) {
  d.give(0, [&] { return halved_at_ties(d.dy(), lt(d.x(0), d.x(1)), eq(d.x(0), d.x(1))); });
  d.give(1, [&] { return halved_at_ties(d.dy(), gt(d.x(0), d.x(1)), eq(d.x(0), d.x(1))); });
}

void Minimum::vjp(VjpCall& d) {
  d.give(0, [&] { return halved_at_ties(d.dy(), gt(d.x(0), d.x(1)), eq(d.x(0), d.x(1))); });
  d.give(1, [&] { return halved_at_ties(d.dy(), lt(d.x(0), d.x(1)), eq(d.x(0), d.x(1))); });
}

namespace {

void give_to_chosen(VjpCall& d, const Value& first) {
  d.give(0, [&] { return keep_where(first, d.dy()); });
  d.give(1, [&] { return where(first, num(0.0), d.dy()); });
}
Value is_nan(const Value& x) { return emit<Isnan>(x); }

}  // namespace

void Fmax::vjp(VjpCall& d) {
  Value ahead = ge(d.x(0), d.x(1));
  if (d.x(1).is_number()) return give_to_chosen(d, ahead);
  give_to_chosen(d, logical_or(ahead, is_nan(d.x(1))));
}

void Fmin::vjp(VjpCall& d) {
  Value ahead = le(d.x(0), d.x(1));
  if (d.x(1).is_number()) return give_to_chosen(d, ahead);
  give_to_chosen(d, logical_or(ahead, is_nan(d.x(1))));
}

// dx = dy y / r^2, dy = -dy x / r^2, with r = hypot(x, y): nothing overflows.
void Atan2::vjp(VjpCall& d) {
  Value radius = emit<Hypot>(d.x(0), d.x(1));
  Value share = d.dy() / radius;
  d.give(0, [&] { return share * (d.x(1) / radius); });
  d.give(1, [&] { return -(share * (d.x(0) / radius)); });
}

void Lerp::vjp(VjpCall& d) {
  const Value &start = d.x(0), &end = d.x(1), &weight = d.x(2);
  d.give(0, [&] {
    if (auto w = weight.constant()) return d.dy() * (1 - *w);
    if (weight.is_number()) return d.dy() - d.dy() * weight;
    return d.dy() * (1.0 - weight);
  });
  d.give(1, [&] { return d.dy() * weight; });
  d.give(2, [&] {
    if (!start.is_number() || !end.is_number()) return d.dy() * (end - start);
    Value to_end = d.dy() * end;
    return to_end - d.dy() * start;
  });
}

void Addcmul::infer(InferCall& call, const Attr& a) {
  PointwiseEntry<Addcmul>::infer(call);
  require_integral_coefficient(call, "value", a.value);
}

void Addcmul::vjp(VjpCall& d, const Attr& a) {
  double value = a.value.as_double();
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] { return d.dy() * value * d.x(2); });
  d.give(2, [&] { return d.dy() * value * d.x(1); });
}

void Addcdiv::vjp(VjpCall& d, const Attr& a) {
  double value = a.value.as_double();
  d.give(0, [&] { return d.dy(); });
  d.give(1, [&] { return d.dy() * value / d.x(2); });
  d.give(2, [&] {
    Value share = d.dy() * value / d.x(2);
    return -(share * (d.x(1) / d.x(2)));
  });
}

Family arithmetic_family() { return fold<ArithmeticOperators>(); }

}  // namespace gradus::ops
