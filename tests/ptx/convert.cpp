// cvt: between all numbers, with every rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/ptx/floats.h"
#include "tests/ptx/lanes.h"
#include "tests/ptx/rounding.h"

namespace gradus::ptx {

namespace {

// Instruction::mode has FloatMode's bits; and this one: a float is rounded to an integer.
constexpr uint8_t mode_integral = 128;

// The values of a type as the conversions see them.
template <class Format>
struct Half {
  uint16_t bits;
};
template <class T>
constexpr bool is_half = std::is_same_v<T, Half<Binary16>> || std::is_same_v<T, Half<Brain16>>;
template <class T>
struct FormatOf;
template <class F>
struct FormatOf<Half<F>> : TypeTag<F> {};

template <class T>
double rounded_to_integer(T x, Rounding r) {
  switch (r) {
    case nearest:
      return std::nearbyint(x);
    case towards_zero:
      return std::trunc(x);
    case down:
      return std::floor(x);
    default:
      return std::ceil(x);
  }
}

// Beyond the type's range: its nearest number. NaN: 0, or for 64 bits on either side the top bit.
template <class D>
D integer_of(double x, bool from_f64, Rounding r) {
  if (x != x)
    return from_f64 || sizeof(D) == 8 ? static_cast<D>(Unsigned<D>{1} << (sizeof(D) * 8 - 1))
                                      : D{0};
  x = rounded_to_integer(x, r);
  // 2^bits or 2^(bits - 1): the first number above the type's.
  const double above = std::ldexp(1.0, std::numeric_limits<D>::digits);
  if (x >= above) return std::numeric_limits<D>::max();
  if (x < static_cast<double>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
  return static_cast<D>(x);
}

template <class D, class S>
D between_integers(uint8_t mode, S x) {
  if (mode & mode_saturate) {
    const Int128 wide = x;
    return static_cast<D>(
        std::clamp<Int128>(wide, std::numeric_limits<D>::min(), std::numeric_limits<D>::max()));
  }
  return static_cast<D>(x);
}

template <class D, class S>
D float_of_integer(S x, Rounding r) {
  if (r == nearest) return static_cast<D>(x);
  RoundingScope scope(r);
  volatile S v = x;
  volatile D d = static_cast<D>(v);
  return d;
}

inline float narrow_double(double x, Rounding r) {
  if (r == nearest) return static_cast<float>(x);
  RoundingScope scope(r);
  volatile double v = x;
  volatile float f = static_cast<float>(v);
  return f;
}

template <class T>
T clamped(uint8_t mode, T x) {
  if (mode & mode_flush) x = flushed(x);
  if (mode & mode_saturate) x = saturated_unit(x);
  if ((mode & mode_relu) && x < 0) x = 0;
  return canonical(x);
}

template <class Format>
uint16_t half_of(uint8_t mode, double x) {
  if ((mode & mode_saturate)) x = saturated_unit(x);
  if ((mode & mode_relu) && x < 0) x = 0;
  return narrow<Format>(x, static_cast<Rounding>(mode & mode_rounding));
}

template <class D, class S>
D convert(uint8_t mode, S s) {
  const auto r = static_cast<Rounding>(mode & mode_rounding);
  if constexpr (std::is_integral_v<S>) {
    if constexpr (std::is_integral_v<D>) {
      return between_integers<D>(mode, s);
    } else if constexpr (is_half<D>) {
      const bool negative = s < 0;
      const auto u = static_cast<uint64_t>(s);
      return {half_of<typename FormatOf<D>::type>(mode, odd_integer(negative ? -u : u, negative))};
    } else {
      return clamped(mode & ~mode_flush, float_of_integer<D>(s, r));
    }
  } else {
    double x;
    if constexpr (is_half<S>) {
      x = FormatOf<S>::type::wide(s.bits);
    } else {
      if (std::is_same_v<S, float> && (mode & mode_flush)) s = flushed(s);
      x = static_cast<double>(s);
    }
    if constexpr (std::is_integral_v<D>) {
      return integer_of<D>(x, std::is_same_v<S, double>, r);
    } else {
      if (mode & mode_integral) x = rounded_to_integer(x, r);
      if constexpr (is_half<D>)
        return {half_of<typename FormatOf<D>::type>(
            mode & mode_integral ? mode & ~mode_rounding : mode, x)};
      else if constexpr (std::is_same_v<D, float>)
        return clamped(mode, mode & mode_integral ? static_cast<float>(x) : narrow_double(x, r));
      else
        return clamped(mode & ~mode_flush, x);
    }
  }
}

template <class T>
T from_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Registers may be wider than the types: the low bits are read, results extended by their type.
template <class D, class S>
void run_cvt(Warp& w, const Instruction& in, Mask m) {
  const Mask defined = w.defined(in.r[1]);
  Lanes<S> a;
  if (in.r[1].width == sizeof(S)) {
    a = w.get<S>(in.r[1]);
  } else {
    for (unsigned i = 0; i < warp_size; ++i) a.v[i] = from_bits<S>(w.lane(in.r[1], i));
  }
  Lanes<D> r;
  for (unsigned i = 0; i < warp_size; ++i) r.v[i] = convert<D, S>(in.mode, a.v[i]);
  if (in.r[0].width == sizeof(D)) return w.put(in.r[0], m, r, defined);
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    uint64_t x = 0;
    if constexpr (std::is_integral_v<D>)
      x = static_cast<uint64_t>(r.v[i]);
    else
      std::memcpy(&x, &r.v[i], sizeof(D));
    w.put_lane(in.r[0], i, x, defined >> i & 1);
  }
}

template <class F>
auto with_number(Type t, F&& f) {
  switch (t) {
    case Type::f16:
      return f(TypeTag<Half<Binary16>>{});
    case Type::bf16:
      return f(TypeTag<Half<Brain16>>{});
    case Type::f32:
      return f(TypeTag<float>{});
    case Type::f64:
      return f(TypeTag<double>{});
    default:
      return with_integer(t, f);
  }
}

// Two f32 to a pair: the first operand is the high half.
template <class Format>
void run_pack(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<float>(in.r[1]), b = w.get<float>(in.r[2]);
  Lanes<uint32_t> r;
  const auto half = [&](float x) {
    return static_cast<uint32_t>(half_of<Format>(in.mode, static_cast<double>(x)));
  };
  for (unsigned i = 0; i < warp_size; ++i) r.v[i] = half(a.v[i]) << 16 | half(b.v[i]);
  w.put(in.r[0], m, r, w.defined(in.r[1]) & w.defined(in.r[2]));
}

const std::initializer_list<Type> numbers = {
    Type::u8,  Type::u16, Type::u32, Type::u64, Type::s8,   Type::s16,   Type::s32,
    Type::s64, Type::f16, Type::f32, Type::f64, Type::bf16, Type::f16x2, Type::bf16x2};

void check_rounding(const Decoder& d, Type to, Type from, bool integral, bool rounded) {
  const bool to_float = is_floating(to), from_float = is_floating(from);
  const bool loses = to_float && (!from_float || width_of(to) < width_of(from) ||
                                  (width_of(to) == 2 && width_of(from) == 2 && to != from));
  if (from_float && !to_float && !integral) d.fail("lacks its rounding to an integer");
  if (loses && !integral && !rounded) d.fail("lacks its rounding");
  if (integral && !from_float) d.fail("rounds an integer to an integer");
}

void cvt(Decoder& d) {
  uint8_t mode = 0;
  bool integral = false, rounded = false;
  if (const auto r = d.try_of({"rni", "rzi", "rmi", "rpi"})) {
    mode = static_cast<uint8_t>(*r);
    integral = true;
  } else if (const auto f = d.try_of({"rn", "rz", "rm", "rp"})) {
    mode = static_cast<uint8_t>(*f);
    rounded = true;
  }
  if (d.take("relu")) mode |= mode_relu;
  if (d.take("ftz")) mode |= mode_flush;
  if (d.take("sat")) mode |= mode_saturate;
  const Type to = d.take_type(numbers), from = d.take_type(numbers);
  if (to == Type::f16x2 || to == Type::bf16x2) {
    if (from != Type::f32 || !rounded) d.fail("a pair is rounded from two .f32");
    d.dest(to);
    d.source(from);
    d.source(from);
    d.out.mode = mode;
    d.out.run = to == Type::f16x2 ? run_pack<Binary16> : run_pack<Brain16>;
    return;
  }
  if (from == Type::f16x2 || from == Type::bf16x2) d.fail("is not from pairs");
  check_rounding(d, to, from, integral, rounded);
  if (integral && is_floating(to)) mode |= mode_integral;
  d.wide_dest(to);
  d.wide_source(from);
  d.out.mode = mode;
  d.out.run = with_number(to, [from](auto d) {
    return with_number(from, [](auto s) -> Run {
      return run_cvt<typename decltype(d)::type, typename decltype(s)::type>;
    });
  });
}

}  // namespace

void add_convert_opcodes(Opcodes& o) { o["cvt"] = cvt; }

}  // namespace gradus::ptx
