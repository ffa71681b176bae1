#include "io/onnx/narrow.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/convert.h"

namespace gradus::onnx {

using namespace ops;
using Codes = NarrowType::Codes;

namespace {

// f16 has all numbers of the floats of up to 8 bits but powers of two.
constexpr NarrowType narrow_types[] = {
    {17, "float8e4m3fn", 8, Codes::last_nan, DType::f16, 3, 7, -448, 448},
    {18, "float8e4m3fnuz", 8, Codes::zero_nan, DType::f16, 3, 8, -240, 240},
    {19, "float8e5m2", 8, Codes::ieee, DType::f16, 2, 15, -57344, 57344},
    {20, "float8e5m2fnuz", 8, Codes::zero_nan, DType::f16, 2, 16, -57344, 57344},
    {21, "uint4", 4, Codes::integers, DType::u8, 0, 0, 0, 15},
    {22, "int4", 4, Codes::integers, DType::i8, 0, 0, -8, 7},
    {23, "float4e2m1", 4, Codes::finite, DType::f16, 1, 1, -6, 6},
    {24, "float8e8m0", 8, Codes::powers, DType::f32, 0, 127, 0x1p-127, 0x1p127},
    {25, "uint2", 2, Codes::integers, DType::u8, 0, 0, 0, 3},
    {26, "int2", 2, Codes::integers, DType::i8, 0, 0, -2, 1},
    {27, "float6e2m3", 6, Codes::finite, DType::f16, 3, 1, -7.5, 7.5},
    {28, "float6e3m2", 6, Codes::finite, DType::f16, 2, 3, -28, 28},
};

// The number that a code of at most 8 bits stands for.
double number_of_code(const NarrowType& t, unsigned code) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  const unsigned sign = 1u << (t.bits - 1);
  if (t.integral()) {
    const int value = static_cast<int>(code);
    return t.least < 0 && (code & sign) ? value - (1 << t.bits) : value;
  }
  if (t.codes == Codes::powers)
    return code == 0xff ? none : std::ldexp(1.0, static_cast<int>(code) - t.bias);
  const unsigned magnitude = code & (sign - 1);
  if (t.codes == Codes::zero_nan && code == sign) return none;
  if (t.codes == Codes::last_nan && magnitude == sign - 1) return none;
  const auto exponent = static_cast<int>(magnitude >> t.mantissa);
  const double fraction = std::ldexp(magnitude & ((1u << t.mantissa) - 1), -t.mantissa);
  double value =
      exponent ? std::ldexp(1 + fraction, exponent - t.bias) : std::ldexp(fraction, 1 - t.bias);
  if (t.codes == Codes::ieee && value > t.most)
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : none;
  return code & sign ? -value : value;
}

// The greatest power of two that is no greater than x, of f64, from 2^least on.
Value power_below(const Value& x, int least) {
  Value a = binary("maximum", x, num(std::ldexp(1.0, least)));
  Value p = unary("exp2", unary("floor", unary("log2", a)));
  // A logarithm near an integer may be rounded to it.
  p = where(gt(p, a), p * 0.5, p);
  return where(ge(a, p * 2.0), p * 2.0, p);
}

Value wrapped_integer(const Value& x, const NarrowType& t) {
  const int64_t count = int64_t{1} << t.bits, least = static_cast<int64_t>(t.least);
  Value whole = cast(x, DType::i64);
  return cast(binary("remainder", whole - num(least), num(count)) + num(least), t.held);
}

Value power_of_two_near(const Value& x, const NarrowType& t, bool saturate, RoundMode mode) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  Value a = unary("abs", cast(x, DType::f64));
  Value within = binary("minimum", a, num(t.most * 2));
  Value p = power_below(within, -t.bias);
  if (mode == RoundMode::up) p = where(lt(p, within), p * 2.0, p);
  if (mode == RoundMode::nearest) p = where(ge(within, p * 1.5), p * 2.0, p);
  Value y = binary("minimum", p, num(t.most));
  if (!saturate) y = where(logical_or(gt(p, num(t.most)), lt(a, num(t.least))), num(none), y);
  return cast(where(ne(a, a), a, y), t.held);
}

Value rounded_float(const Value& x, const NarrowType& t, bool saturate) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  Value wide = cast(x, DType::f64);
  // What is far outside is rounded as what is just outside.
  Value a = binary("minimum", unary("abs", wide), num(t.most * 2));
  Value unit = power_below(a, 1 - t.bias) * std::ldexp(1.0, -t.mantissa);
  Value y = unary("round", a / unit) * unit;
  const bool has_other = t.codes != Codes::finite;
  const double above = saturate || !has_other ? t.most : t.codes == Codes::ieee ? infinite : none;
  y = where(gt(y, num(t.most)), num(above), y);
  y = where(lt(wide, num(0.0)), -y, y);
  // Minus zero; one of the types has another use for it.
  const bool signed_zero = t.codes != Codes::zero_nan;
  y = where(eq(y, num(0.0)), signed_zero ? wide * 0.0 : num(0.0), y);
  // What has no NaN gives what its code would be cut to.
  if (!has_other) y = where(ne(wide, wide), num(-0.0), y);
  return cast(y, t.held);
}

}  // namespace

const NarrowType* narrow_type(int element_type) {
  auto found = std::ranges::find(narrow_types, element_type, &NarrowType::number);
  return found == std::end(narrow_types) ? nullptr : found;
}

int64_t narrow_bytes(const NarrowType& type, int64_t elements) {
  // In this order it does not overflow.
  return elements / 8 * type.bits + (elements % 8 * type.bits + 7) / 8;
}

Tensor decoded(const NarrowType& t, std::span<const uint8_t> codes, const Sizes& shape) {
  Tensor y = Tensor::empty(t.held, shape);
  visit_dtype(t.held, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = y.mutable_data_as<T>();
    const auto bits = static_cast<size_t>(t.bits);
    for (size_t i = 0, n = static_cast<size_t>(y.numel()); i < n; ++i) {
      const size_t at = i * bits, byte = at / 8;
      unsigned two = codes[byte];
      if (byte + 1 < codes.size()) two |= static_cast<unsigned>(codes[byte + 1]) << 8;
      out[i] = convert<T>(number_of_code(t, two >> at % 8 & ((1u << bits) - 1)));
    }
  });
  return y;
}

Value narrowed(const Value& x, const NarrowType& type, bool saturate, RoundMode mode) {
  if (type.integral()) return wrapped_integer(x, type);
  if (type.codes == Codes::powers) return power_of_two_near(x, type, saturate, mode);
  return rounded_float(x, type, saturate);
}

void give_narrow(Call& call, Value held, const NarrowType& type) {
  call.give(std::move(held));
  call.results().back()->narrow = &type;
}

const NarrowType* narrow_type_moved(std::string_view op, std::span<const ItemPtr> inputs) {
  constexpr std::string_view movers[] = {"Identity",  "Reshape", "Transpose", "Squeeze",
                                         "Unsqueeze", "Flatten", "Slice",     "Gather",
                                         "Concat",    "Expand",  "Tile",      "Split"};
  constexpr std::string_view others[] = {"Cast",  "CastLike", "QuantizeLinear", "DequantizeLinear",
                                         "Shape", "Size"};
  const NarrowType* found = nullptr;
  for (const ItemPtr& i : inputs)
    if (i && i->narrow) found = i->narrow;
  if (!found || std::ranges::count(others, op)) return nullptr;
  if (!std::ranges::count(movers, op))
    throw Unsupported(fmt::format("{} of {} is not supported; cast it first", op, found->name),
                      fmt::format("{} of {}", op, found->name));
  return found;
}

}  // namespace gradus::onnx
