#include "ops/activation.h"

#include <limits>

#include "gradus/scalar/math.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// min(x, bound), whose derivative is 0 on the bound and above.
Value kept_below(const Value& x, double bound) {
  return emit<Hardtanh>({x}, {.min = -inf, .max = bound});
}

// dy * above where x > 0, else dy * below * e^(x / width). The exponent is kept from growing where
// it is not asked for: an infinity there would leak into second derivatives as 0 * inf.
Value elu_gradient(VjpCall& d, double above, double below, double width) {
  Value slope = emit<Exp>(kept_below(d.x(), 0.0) / width) * below;
  return where(gt(d.x(), num(0.0)), d.dy() * above, d.dy() * slope);
}

// dy where the condition fails.
Value drop_where(const Value& condition, const Value& dy) { return where(condition, num(0.0), dy); }

}  // namespace

Value Elu::dx(VjpCall& d, const Attr& a) { return elu_gradient(d, 1, a.alpha, 1); }

void Celu::infer(InferCall& call, const Attr& a) {
  if (a.alpha == 0) call.fail("attribute 'alpha' must not be 0");
  PointwiseEntry<Celu>::infer(call);
}

Value Celu::dx(VjpCall& d, const Attr& a) { return elu_gradient(d, 1, 1, a.alpha); }

Value Selu::dx(VjpCall& d) { return elu_gradient(d, scale, alpha * scale, 1); }

bool read_literal(const Literal& l, GeluForm& form, std::string& what) {
  const std::string* s = std::get_if<std::string>(&l.value);
  what = "\"none\" or \"tanh\"";
  if (!s || (*s != "none" && *s != "tanh")) return false;
  form.by_tanh = *s == "tanh";
  return true;
}

Literal write_literal(const GeluForm& form) { return form.by_tanh ? "tanh" : "none"; }

// With s = sigmoid(v), v = a x + b x^3: y = x s, y' = s (1 + x (1 - s) v').
Value Gelu::dx(VjpCall& d, const Attr& attr) {
  const Value& x = d.x();
  if (!attr.approximate.by_tanh) {
    Value density = x * emit<NormalPdf>(x);
    return d.dy() * (emit<NormalCdf>(x) + density);
  }
  Value x2 = emit<Square>(x);
  Value s = emit<Sigmoid>(x * (x2 * b + a));
  Value v_slope = x2 * (3 * b) + a;
  Value bend = x * ((1.0 - s) * v_slope);
  return d.dy() * (s * (bend + 1.0));
}

Value Silu::dx(VjpCall& d) {  // y' = s (1 + x (1 - s))
  Value s = emit<Sigmoid>(d.x());
  Value bend = d.x() * (1.0 - s);
  return d.dy() * (s * (bend + 1.0));
}

Value Softplus::dx(VjpCall& d, const Attr& a) {
  Value scaled = d.x() * a.beta;
  Value soft = d.dy() * emit<Sigmoid>(kept_below(scaled, a.threshold));
  return where(gt(scaled, num(a.threshold)), d.dy(), soft);
}

void Hardtanh::infer(InferCall& call, const Attr& a) {
  if (!(a.min.as_double() <= a.max.as_double()))
    call.fail("attribute 'min' is {}, more than 'max', {}", a.min.as_double(), a.max.as_double());
  PointwiseEntry<Hardtanh>::infer(call);
}

Value Hardtanh::dx(VjpCall& d, const Attr& a) {
  Value high = ge(d.x(), num(a.max.as_double()));
  if (a.min.as_double() == -inf) return drop_where(high, d.dy());
  Value low = le(d.x(), num(a.min.as_double()));
  return drop_where(logical_or(low, high), d.dy());
}

Value Relu6::dx(VjpCall& d) {
  Value low = le(d.x(), num(0.0));
  Value high = ge(d.x(), num(6.0));
  return drop_where(logical_or(low, high), d.dy());
}

Value Hardshrink::dx(VjpCall& d, const Attr& a) {
  double lambd = a.lambd;
  Value low = ge(d.x(), num(-lambd));
  Value high = le(d.x(), num(lambd));
  return drop_where(logical_and(low, high), d.dy());
}

void Softshrink::infer(InferCall& call, const Attr& a) {
  double lambd = a.lambd;
  if (!(lambd >= 0)) call.fail("attribute 'lambd' is {}, it must not be negative", lambd);
  PointwiseEntry<Softshrink>::infer(call);
}

Value Softshrink::dx(VjpCall& d, const Attr& a) { return Hardshrink::dx(d, a); }

// With t = tanh(log(1 + e^x)): y' = t + x (1 - t^2) sigmoid(x).
Value Mish::dx(VjpCall& d) {
  const Value& x = d.x();
  // At 40 the threshold changes no bit.
  Value t = emit<Tanh>(emit<Softplus>({x}, {.threshold = 40.0}));
  Value bend = x * (emit<Sigmoid>(x) * (1.0 - emit<Square>(t)));
  return d.dy() * (t + bend);
}

void Prelu::compose(ComposeCall& c) {
  const Value &x = tensor_operand(c, 0), &w = tensor_operand(c, 1);
  if (w.rank() > 1)
    c.fail("operand 'w' has shape {}; it holds one weight, or one per channel",
           to_string(w.dims()));
  Value weight = w;
  bool per_channel = w.rank() == 1 && w.dims()[0] != Dim(1);
  if (per_channel) {
    Dim channels = x.rank() > 1 ? x.dims()[1] : Dim(1);
    if (w.dims()[0].is_constant() && channels.is_constant() && w.dims()[0] != channels)
      c.fail("operand 'w' has {} weights, 'x' has {} channels", w.dims()[0].value(),
             channels.value());
    Dims shape(static_cast<size_t>(std::max(x.rank(), 1)), Dim(1));
    shape[x.rank() > 1 ? 1 : 0] = w.dims()[0];
    weight = reshape(w, shape);
  } else if (w.rank() == 1 && x.rank() == 0) {
    weight = reshape(w, {});
  }
  Value below = weight * x;
  c.give(where(gt(x, num(0.0)), x, below));
}

void NanToNum::compose(ComposeCall& c, const Attr& a) {
  const Value& x = tensor_operand(c, 0);
  if (!is_floating(x.dtype())) return c.give(x);
  double largest = x.dtype() == DType::f64    ? std::numeric_limits<double>::max()
                   : x.dtype() == DType::f32  ? std::numeric_limits<float>::max()
                   : x.dtype() == DType::bf16 ? 0x1.fep127
                                              : 65504.0;
  Value y = where(emit<Isnan>(x), num(a.nan), x);
  y = where(eq(x, num(inf)), num(a.posinf.value_or(largest)), y);
  c.give(where(eq(x, num(-inf)), num(a.neginf.value_or(-largest)), y));
}

void Glu::compose(ComposeCall& c, const Attr& a) {
  const Value& x = tensor_operand(c, 0);
  const int64_t dim = a.dim;
  const Dim size = x.dims()[dim];
  if (size.is_constant() && size.value() % 2 != 0)
    c.fail("dimension {} of 'x', {}, has no halves", dim, to_string(x.type));
  const Dim half = floor_div(size, 2);
  Value gate = emit<Sigmoid>(slice(x, dim, half, size));
  c.give(slice(x, dim, 0, half) * gate);
}

Family activation_family() { return fold<ActivationOperators>(); }

}  // namespace gradus::ops
