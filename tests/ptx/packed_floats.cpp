#include "tests/ptx/packed_floats.h"

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "tests/ptx/floats.h"
#include "tests/ptx/lanes.h"
#include "tests/ptx/rounding.h"

namespace gradus::ptx {

namespace {

template <class Format>
bool is_subnormal(uint16_t x) {
  const unsigned magnitude = x & 0x7fffu;
  return magnitude != 0 && magnitude < (1u << Format::fraction);
}

template <class Format>
uint16_t flush(uint16_t x) {
  return is_subnormal<Format>(x) ? x & 0x8000u : x;
}

template <class Format>
bool is_nan(uint16_t x) {
  return (x & 0x7fffu) > Format::infinity;
}

template <class Format>
uint16_t extreme(uint8_t mode, bool largest, uint16_t a, uint16_t b) {
  bool negative = false;
  if (mode & mode_xorsign) {
    negative = (a ^ b) & 0x8000u;
    a &= 0x7fffu, b &= 0x7fffu;
  }
  const bool nan_a = is_nan<Format>(a), nan_b = is_nan<Format>(b);
  if (nan_a && nan_b) return nan16;
  if (nan_a || nan_b) {
    if (mode & mode_nan) return nan16;
    a = nan_a ? b : a;
  } else {
    // In the order of their values, -0 before +0.
    const auto key = [](uint16_t x) { return x & 0x8000u ? 0x7fffu - (x & 0x7fffu) : x | 0x8000u; };
    if ((key(b) > key(a)) == largest) a = b;
  }
  return negative ? a ^ 0x8000u : a;
}

// Sums and products are exact or odd in double, so that they are rounded once.
template <class Format, PackedOp op>
uint16_t compute(uint8_t mode, uint16_t a, uint16_t b, uint16_t c) {
  if (mode & mode_flush) a = flush<Format>(a), b = flush<Format>(b), c = flush<Format>(c);
  if (op == PackedOp::neg) return a ^ 0x8000u;
  if (op == PackedOp::abs) return a & 0x7fffu;
  if (op == PackedOp::min || op == PackedOp::max)
    return extreme<Format>(mode, op == PackedOp::max, a, b);
  const double x = Format::wide(a), y = Format::wide(b), z = Format::wide(c);
  const double exact = op == PackedOp::add   ? odd_sum(x, y)
                       : op == PackedOp::sub ? odd_sum(x, -y)
                       : op == PackedOp::mul ? x * y
                                             : odd_sum(x * y, z);
  uint16_t r = narrow<Format>(exact, static_cast<Rounding>(mode & mode_rounding));
  if (mode & mode_flush) r = flush<Format>(r);
  if (mode & mode_saturate) {
    const uint16_t one = narrow<Format>(1.0, nearest);
    if (is_nan<Format>(r) || (r & 0x8000u))
      r = 0;
    else if (r > one)
      r = one;
  }
  if ((mode & mode_relu) && !is_nan<Format>(r) && (r & 0x8000u)) r = 0;
  return r;
}

template <class Format, PackedOp op>
Run handler(bool pair) {
  constexpr bool unary = op == PackedOp::neg || op == PackedOp::abs;
  if (!pair) {
    using T = uint16_t;
    if constexpr (unary)
      return lanes<T, T>([](uint8_t m, T a) { return compute<Format, op>(m, a, 0, 0); });
    else if constexpr (op == PackedOp::fma)
      return lanes<T, T, T, T>(
          [](uint8_t m, T a, T b, T c) { return compute<Format, op>(m, a, b, c); });
    else
      return lanes<T, T, T>([](uint8_t m, T a, T b) { return compute<Format, op>(m, a, b, 0); });
  }
  using P = uint32_t;
  const auto both = [](uint8_t m, P a, P b, P c) {
    const auto half = [&](int s) {
      return static_cast<P>(compute<Format, op>(m, static_cast<uint16_t>(a >> s),
                                                static_cast<uint16_t>(b >> s),
                                                static_cast<uint16_t>(c >> s)));
    };
    return half(0) | half(16) << 16;
  };
  using Both = decltype(both);
  if constexpr (unary)
    return lanes<P, P>([](uint8_t m, P a) { return Both{}(m, a, 0, 0); });
  else if constexpr (op == PackedOp::fma)
    return lanes<P, P, P, P>([](uint8_t m, P a, P b, P c) { return Both{}(m, a, b, c); });
  else
    return lanes<P, P, P>([](uint8_t m, P a, P b) { return Both{}(m, a, b, 0); });
}

template <class Format>
Run handler(PackedOp op, bool pair) {
  switch (op) {
    case PackedOp::add:
      return handler<Format, PackedOp::add>(pair);
    case PackedOp::sub:
      return handler<Format, PackedOp::sub>(pair);
    case PackedOp::mul:
      return handler<Format, PackedOp::mul>(pair);
    case PackedOp::fma:
      return handler<Format, PackedOp::fma>(pair);
    case PackedOp::neg:
      return handler<Format, PackedOp::neg>(pair);
    case PackedOp::abs:
      return handler<Format, PackedOp::abs>(pair);
    case PackedOp::min:
      return handler<Format, PackedOp::min>(pair);
    case PackedOp::max:
      return handler<Format, PackedOp::max>(pair);
  }
  return nullptr;
}

template <class T, class F>
Run approximate_lanes(F) {
  return lanes<T, T, T>([](uint8_t flush, T a, T b) {
    if (!flush) return canonical(F{}(a, b));
    return canonical(flushed(F{}(flushed(a), flushed(b))));
  });
}

template <class T>
Run approximation(std::string_view name) {
  static const std::unordered_map<std::string_view, Run> functions = {
      {"div", approximate_lanes<T>([](T a, T b) { return a / b; })},
      {"rcp", approximate_lanes<T>([](T a, T) { return T{1} / a; })},
      {"sqrt", approximate_lanes<T>([](T a, T) { return std::sqrt(a); })},
      {"rsqrt", approximate_lanes<T>([](T a, T) { return T{1} / std::sqrt(a); })},
      {"sin", approximate_lanes<T>([](T a, T) { return std::sin(a); })},
      {"cos", approximate_lanes<T>([](T a, T) { return std::cos(a); })},
      {"lg2", approximate_lanes<T>([](T a, T) { return std::log2(a); })},
      {"ex2", approximate_lanes<T>([](T a, T) { return std::exp2(a); })},
      {"tanh", approximate_lanes<T>([](T a, T) { return std::tanh(a); })}};
  return functions.at(name);
}

}  // namespace

void decode_packed(Decoder& d, PackedOp op, uint8_t mode) {
  const Type t = d.take_type({Type::f16, Type::f16x2, Type::bf16, Type::bf16x2});
  if (mode & mode_rounding) d.fail("rounds to the nearest alone");
  const bool unary = op == PackedOp::neg || op == PackedOp::abs;
  d.dest(t);
  d.source(t);
  if (!unary) d.source(t);
  if (op == PackedOp::fma) d.source(t);
  d.out.mode = mode;
  const bool pair = t == Type::f16x2 || t == Type::bf16x2;
  d.out.run =
      t == Type::f16 || t == Type::f16x2 ? handler<Binary16>(op, pair) : handler<Brain16>(op, pair);
}

void decode_approximate(Decoder& d) {
  d.out.mode = d.take("ftz");
  const Type t = d.take_type({Type::f32, Type::f64});
  const std::string_view name = d.statement().parts[0];
  if (t == Type::f64 && name != "rcp" && name != "rsqrt") d.fail("is for .f32");
  d.dest(t);
  d.source(t);
  if (name == "div")
    d.source(t);
  else
    d.copy(d.last());
  d.builder().note_approximate(d.statement().line);
  d.out.run = t == Type::f64 ? approximation<double>(name) : approximation<float>(name);
}

}  // namespace gradus::ptx
