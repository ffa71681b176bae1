#include "io/pt2/complex.h"

#include <bit>
#include <numbers>

#include "io/pt2/importer.h"
#include "io/pt2/operands.h"
#include "io/pt2/special.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

Pair operator+(const Pair& a, const Pair& b) { return {a.re + b.re, a.im + b.im}; }
Pair operator*(const Pair& a, const Pair& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Pair conjugate_of(const Pair& z) { return {z.re, -z.im}; }
Value square_of_magnitude(const Pair& z) { return z.re * z.re + z.im * z.im; }
Pair reciprocal(const Pair& z) {
  const Value squares = square_of_magnitude(z);
  return {z.re / squares, -z.im / squares};
}
Pair from_polar(const Value& length, const Value& angle) {
  return {length * unary("cos", angle), length * unary("sin", angle)};
}
Value angle_of(const Pair& z) { return atan2_as_aten(z.im, z.re); }

// Both parts as tensors of one shape.
Pair tensors_of(Call& c, std::string_view name = "self") {
  Pair z = c.pair(name);
  const DType dtype = c.result().dtype;
  if (z.re.is_number()) z.re = number_tensor(c, z.re, dtype);
  if (!z.im.defined()) z.im = zeros_like(z.re);
  if (z.im.is_number()) z.im = number_tensor(c, z.im, dtype);
  return z;
}

// By the rule of real tensors

void need_complex_results(Call& c) {
  for (size_t i = 0; i < c.results(); ++i)
    if (c.wants(i) && !c.result(i).complex)
      c.fail(
          "an operand is {}, and the result is real: this is not supported",
          c.is_complex("self") && c.is_tensor("self") ? complex_name(c.meta().dtype) : "complex");
}

// A view of a complex tensor by views of its parts.
View of_parts(Importer& importer, const View& re, const View& im) {
  View both;
  both.part = [&importer, re, im](const Value& whole) {
    const Pair z = importer.parts(whole);
    return importer.joined({re.part(z.re), im.part(z.im)});
  };
  if (re.with_part)
    both.with_part = [&importer, re, im](const Value& whole, const Value& part) {
      const Pair z = importer.parts(whole), p = importer.parts(part);
      return importer.joined({re.with_part(z.re, p.re), im.with_part(z.im, p.im)});
    };
  return both;
}

// A rule of new tensors, whose imaginary part is 0.
void real_alone(Call& c) {
  for (const ShownResult& r : c.run_shown({})) give_pair(c, {r.value, zeros_like(r.value)});
}

// A rule that is linear in each of its complex operands: for each choice of their parts, times i
// for each imaginary one.
Pair multiplied_out(Call& c, std::string_view hidden) {
  constexpr size_t most = 4;
  const size_t operands = c.complex_operands(hidden);
  if (operands > most) c.fail("more than {} complex operands are not supported", most);
  Pair sum;
  for (uint32_t imaginary = 0; imaginary < 1U << operands; ++imaginary) {
    const Value product = c.run_shown({Shown::As::product, imaginary, hidden}).at(0).value;
    const int turns = std::popcount(imaginary) % 4;
    Value& part = turns % 2 ? sum.im : sum.re;
    if (!part.defined())
      part = turns < 2 ? product : -product;
    else
      part = turns < 2 ? part + product : part - product;
  }
  if (!sum.im.defined()) sum.im = zeros_like(sum.re);
  return sum;
}
void complex_product(Call& c) { give_pair(c, multiplied_out(c, {})); }

void complex_linear(Call& c) {
  const Pair y = multiplied_out(c, "bias");
  give_pair(c, c.given("bias") ? y + tensors_of(c, "bias") : y);
}

void by_magnitude(Call& c) {
  for (const ShownResult& r : c.run_shown({.as = Shown::As::magnitude})) c.give(r.value);
}

// Views

void parts_of(Call& c) {
  c.give_view("self", {[](const Value& whole) { return whole; },
                       [](const Value&, const Value& part) { return part; }});
}
void real_view(Call& c) {
  Importer& i = c.importer();
  c.give_view("self", {[&i](const Value& whole) { return i.parts(whole).re; },
                       [&i](const Value& whole, const Value& part) {
                         return i.joined({part, i.parts(whole).im});
                       }});
}
void imaginary_view(Call& c) {
  Importer& i = c.importer();
  c.give_view("self", {[&i](const Value& whole) { return i.parts(whole).im; },
                       [&i](const Value& whole, const Value& part) {
                         return i.joined({i.parts(whole).re, part});
                       }});
}
View conjugate_view(Importer& i) {
  return {[&i](const Value& whole) { return i.joined(conjugate_of(i.parts(whole))); },
          [&i](const Value&, const Value& part) { return i.joined(conjugate_of(i.parts(part))); }};
}
void conjugate_rule(Call& c) { c.give_view("self", conjugate_view(c.importer())); }
void conjugate_copy(Call& c) { give_pair(c, conjugate_of(tensors_of(c))); }

void transposed_conjugate(Call& c) {
  const std::vector<ShownResult> turned = c.run_shown({});
  const View swap = turned.at(0).view;
  View turn = of_parts(c.importer(), swap, swap), back = conjugate_view(c.importer());
  c.give_view("self", {[=](const Value& whole) { return back.part(turn.part(whole)); },
                       [=](const Value& whole, const Value& part) {
                         return turn.with_part(whole, back.part(part));
                       }});
}

// Made of real tensors

void complex_rule(Call& c) { give_pair(c, {c.x("real"), c.x("imag")}); }
void polar_rule(Call& c) { give_pair(c, from_polar(c.x("abs"), c.x("angle"))); }

// Functions

void magnitude_rule(Call& c) { c.give(magnitude_of(c.x())); }
void angle_rule(Call& c) { c.give(angle_of(tensors_of(c))); }

void sign_rule(Call& c) {
  const Pair z = tensors_of(c);
  const Value length = magnitude_of(c.x()), zero = eq(length, num(0.0));
  const Value divisor = where(zero, num(1.0), length);
  give_pair(c, {keep_where(logical_not(zero), z.re / divisor),
                keep_where(logical_not(zero), z.im / divisor)});
}

void complex_quotient(Call& c) {
  if (c.given("rounding_mode")) c.fail("complex numbers have no rounding mode");
  const Pair x = tensors_of(c);
  if (c.is_complex("other")) return give_pair(c, x * reciprocal(tensors_of(c, "other")));
  const Value y = c.pair("other").re;
  give_pair(c, {x.re / y, x.im / y});
}
void reciprocal_rule(Call& c) { give_pair(c, reciprocal(tensors_of(c))); }

// By whole exponents: what others give jumps somewhere.
void complex_power(Call& c) {
  constexpr double most = 64;
  if (c.is_tensor("exponent") || !c.is_complex("self"))
    c.fail("powers of complex numbers are supported for exponents that are numbers");
  const double exponent = c.number("exponent");
  if (!(std::abs(exponent) <= most) || exponent != std::floor(exponent))
    c.fail("powers of complex numbers are supported for whole exponents up to {}", most);
  Pair power = tensors_of(c), result{ones_like(power.re), zeros_like(power.re)};
  bool any = false;
  for (int left = std::abs(static_cast<int>(exponent)); left > 0; left /= 2) {
    if (left % 2) {
      result = any ? result * power : power;
      any = true;
    }
    if (left > 1) power = power * power;
  }
  give_pair(c, exponent < 0 ? reciprocal(result) : result);
}
void square_rule(Call& c) {
  const Pair z = tensors_of(c);
  give_pair(c, z * z);
}

void exp_rule(Call& c) {
  const Pair z = tensors_of(c);
  give_pair(c, from_polar(unary("exp", z.re), z.im));
}
void log_rule(Call& c) {
  const Pair z = tensors_of(c);
  give_pair(c, {unary("log", magnitude_of(c.x())), angle_of(z)});
}
void sqrt_rule(Call& c) {
  give_pair(c, from_polar(unary("sqrt", magnitude_of(c.x())), angle_of(tensors_of(c)) * 0.5));
}
void sin_rule(Call& c) {
  const Pair z = tensors_of(c);
  give_pair(c,
            {unary("sin", z.re) * unary("cosh", z.im), unary("cos", z.re) * unary("sinh", z.im)});
}
void cos_rule(Call& c) {
  const Pair z = tensors_of(c);
  give_pair(
      c, {unary("cos", z.re) * unary("cosh", z.im), -(unary("sin", z.re) * unary("sinh", z.im))});
}

void dot_rule(Call& c) {  // of the conjugate of the first one
  const Pair a = tensors_of(c), b = tensors_of(c, "other");
  const Pair products = conjugate_of(a) * b;
  give_pair(c, {sum_all(products.re), sum_all(products.im)});
}

// Tests

void equal_rule(Call& c) {
  auto parts = [&](std::string_view name) {
    Pair z = c.pair(name);
    if (!z.im.defined()) z.im = num(0.0);
    return z;
  };
  const Pair a = parts("self"), b = parts("other");
  const Value same = logical_and(eq(a.re, b.re), eq(a.im, b.im));
  c.give(c.op().starts_with("ne") ? logical_not(same) : same);
}
template <bool both>
void complex_test(Call& c) {
  const Pair z = c.pair();
  const Value re = unary(c.ours(), z.re), im = unary(c.ours(), z.im);
  c.give(both ? logical_and(re, im) : logical_or(re, im));
}

void nothing_of_it(Call&) {}

constexpr RuleEntry complex_table[] = {
    {"view_as_real", parts_of},
    {"view_as_complex", parts_of},
    {"real", real_view},
    {"imag", imaginary_view},
    {"conj", conjugate_rule},
    {"_conj", conjugate_rule},
    {"conj_physical", conjugate_copy},
    {"_conj_physical", conjugate_copy},
    {"mH", transposed_conjugate},
    {"matrix_H", transposed_conjugate},
    {"adjoint", transposed_conjugate},
    {"complex", complex_rule},
    {"polar", polar_rule},
    {"abs", magnitude_rule},
    {"absolute", magnitude_rule},
    {"angle", angle_rule},
    {"sgn", sign_rule},
    {"div", complex_quotient},
    {"true_divide", complex_quotient},
    {"reciprocal", reciprocal_rule},
    {"pow.Tensor_Scalar", complex_power},
    {"square", square_rule},
    {"exp", exp_rule},
    {"log", log_rule},
    {"sqrt", sqrt_rule},
    {"sin", sin_rule},
    {"cos", cos_rule},
    {"vdot", dot_rule},
    {"eq", equal_rule},
    {"ne", equal_rule},
    {"isfinite", complex_test<true>},
    {"isnan", complex_test<false>},
    {"isinf", complex_test<false>},
    {"linalg_vector_norm", by_magnitude},
    {"_assert_tensor_metadata", nothing_of_it},
    // Linear in each operand.
    {"mul", complex_product},
    {"matmul", complex_product},
    {"linalg_matmul", complex_product},
    {"mm", complex_product},
    {"bmm", complex_product},
    {"mv", complex_product},
    {"dot", complex_product},
    {"inner", complex_product},
    {"outer", complex_product},
    {"einsum", complex_product},
    {"tensordot", complex_product},
    {"linear", complex_linear},
    // Linear in all of them together.
    {"add", by_parts},
    {"sub", by_parts},
    {"rsub", by_parts},
    {"neg", by_parts},
    {"sum", by_parts},
    {"mean", by_parts},
    {"cumsum", by_parts},
    {"diff", by_parts},
    {"trace", by_parts},
    {"where.self", by_parts},
    {"where.ScalarSelf", by_parts},
    {"where.ScalarOther", by_parts},
    {"where.Scalar", by_parts},
    {"masked_fill", by_parts},
    {"copy", by_parts},
    {"fill", by_parts},
    {"zero", by_parts},
    {"to", by_parts},
    {"type_as", by_parts},
    {"_to_copy", by_parts},
    {"clone", by_parts},
    {"lift_fresh_copy", by_parts},
    {"cat", by_parts},
    {"concat", by_parts},
    {"stack", by_parts},
    {"hstack", by_parts},
    {"vstack", by_parts},
    {"repeat", by_parts},
    {"tile", by_parts},
    {"flip", by_parts},
    {"roll", by_parts},
    {"tril", by_parts},
    {"triu", by_parts},
    {"constant_pad_nd", by_parts},
    {"pad", by_parts},
    {"diag_embed", by_parts},
    {"index.Tensor", by_parts},
    {"index_select", by_parts},
    {"gather", by_parts},
    {"broadcast_tensors", by_parts},
    {"select_scatter", by_parts},
    {"slice_scatter", by_parts},
    // New ones.
    {"zeros", real_alone},
    {"zeros_like", real_alone},
    {"new_zeros", real_alone},
    {"empty", real_alone},
    {"empty_like", real_alone},
    {"new_empty", real_alone},
    {"ones", real_alone},
    {"ones_like", real_alone},
    {"new_ones", real_alone},
    {"eye", real_alone},
    {"full", by_parts},
    {"full_like", by_parts},
    {"new_full", by_parts},
    // Views.
    {"view.default", by_parts},
    {"_unsafe_view", by_parts},
    {"reshape", by_parts},
    {"flatten", by_parts},
    {"ravel", by_parts},
    {"unflatten", by_parts},
    {"reshape_as", by_parts},
    {"view_as", by_parts},
    {"unsqueeze", by_parts},
    {"squeeze", by_parts},
    {"transpose", by_parts},
    {"swapdims", by_parts},
    {"swapaxes", by_parts},
    {"t", by_parts},
    {"mT", by_parts},
    {"numpy_T", by_parts},
    {"permute", by_parts},
    {"movedim", by_parts},
    {"moveaxis", by_parts},
    {"select", by_parts},
    {"slice", by_parts},
    {"narrow", by_parts},
    {"expand", by_parts},
    {"expand_as", by_parts},
    {"broadcast_to", by_parts},
    {"diagonal", by_parts},
    {"unfold", by_parts},
    {"alias", by_parts},
    {"contiguous", by_parts},
    {"resolve_conj", by_parts},
    {"resolve_neg", by_parts},
    {"detach", by_parts},
    {"split", by_parts},
    {"split_with_sizes", by_parts},
    {"chunk", by_parts},
    {"unbind", by_parts},
    {"fft_fftshift", by_parts},
    {"fft_ifftshift", by_parts},
};

}  // namespace

Value magnitude_of(const Value& whole) {
  return emit("norm", {whole}, {{"dim", Literal::list(Ints{-1})}});
}

void give_pair(Call& c, const Pair& z) {
  need_complex_results(c);
  const TensorMeta& m = c.result();
  auto fitted = [&](const Value& part) { return expand(cast(part, m.dtype), m.sizes); };
  c.give(c.importer().joined({fitted(z.re), fitted(z.im)}));
}

Value whole_of(Call& c, std::string_view name) {
  if (c.is_complex(name)) return c.x(name);
  if (!c.is_tensor(name)) c.fail("its argument '{}' is no tensor", name);
  const Value x = as(c.x(name), c.result().dtype);
  return c.importer().joined({x, zeros_like(x)});
}

void by_parts(Call& c) {
  need_complex_results(c);
  const std::vector<ShownResult> re = c.run_shown({}), im = c.run_shown({.imaginary = 1});
  Importer& importer = c.importer();
  for (size_t i = 0; i < re.size(); ++i) {
    const bool own = !re[i].of.empty() && c.is_complex(re[i].of);
    if (!re[i].value.defined())
      c.give_nothing();
    else if (own && re[i].view.part)
      c.give_view(re[i].of, of_parts(importer, re[i].view, im[i].view));
    else if (own)
      c.give_same(re[i].of);
    else
      c.give(importer.joined({re[i].value, im[i].value}));
  }
}

constinit const Rules complex_rules = complex_table;

}  // namespace gradus::pt2
