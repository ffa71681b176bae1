// Integer arithmetic. Signed sums wrap, as on the device: they are worked out unsigned.
#include <algorithm>
#include <bit>
#include <limits>

#include "tests/ptx/floats.h"
#include "tests/ptx/lanes.h"

namespace gradus::ptx {

namespace {

const std::initializer_list<Type> wide_types = {Type::u16, Type::u32, Type::u64,
                                                Type::s16, Type::s32, Type::s64};

// In unsigned arithmetic at least as wide as int, so that nothing overflows.
template <class T, class F>
T wrapped(T a, T b, F f) {
  return static_cast<T>(
      static_cast<Unsigned<T>>(f(static_cast<uint64_t>(static_cast<Unsigned<T>>(a)),
                                 static_cast<uint64_t>(static_cast<Unsigned<T>>(b)))));
}

template <class T>
T saturated(Wider<T> x) {
  return static_cast<T>(
      std::clamp<Wider<T>>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

void three(Decoder& d, Type t) {
  d.dest(t);
  d.source(t);
  d.source(t);
}

// add.cc and its kin: sums of 32 or 64 bits with the carry of the lane. mode: 1 takes the carry
// in, 2 gives it, 4 subtracts.
template <class T>
void add_with_carry(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<T>(in.r[1]), b = w.get<T>(in.r[2]);
  Lanes<T> r;
  Mask carry = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    const bool c = (in.mode & 1) && (w.carry() >> i & 1);
    const Wider<T> wide = in.mode & 4 ? static_cast<Wider<T>>(a.v[i]) - b.v[i] - c
                                      : static_cast<Wider<T>>(a.v[i]) + b.v[i] + c;
    r.v[i] = static_cast<T>(wide);
    carry |= static_cast<Mask>((wide >> sizeof(T) * 8) != 0) << i;
  }
  w.put(in.r[0], m, r, w.defined(in.r[1]) & w.defined(in.r[2]));
  if (in.mode & 2) w.set_carry(m, carry);
}

void decode_carry(Decoder& d, uint8_t mode) {
  if (mode & 1) mode |= d.take("cc") ? 2 : 0;
  const Type t = d.take_type({Type::u32, Type::s32, Type::b32, Type::u64, Type::s64, Type::b64});
  three(d, t);
  d.out.mode = mode;
  d.out.run = width_of(t) == 8 ? add_with_carry<uint64_t> : add_with_carry<uint32_t>;
}

template <bool subtract>
void add(Decoder& d) {
  if (decode_float_sum(d, subtract)) return;
  if (d.take("cc")) return decode_carry(d, subtract ? 6 : 2);
  const bool saturate = d.take("sat");
  if (!saturate && d.peek() && (*d.peek() == "u16x2" || *d.peek() == "s16x2")) {
    three(d, d.take_type());
    d.out.run = lanes<uint32_t, uint32_t, uint32_t>([](uint32_t a, uint32_t b) {
      const uint32_t low = subtract ? a - b : a + b;
      const uint32_t high = subtract ? (a >> 16) - (b >> 16) : (a >> 16) + (b >> 16);
      return (low & 0xffffu) | high << 16;
    });
    return;
  }
  const Type t = d.take_type(wide_types);
  three(d, t);
  if (saturate) {
    if (t != Type::s32) d.fail(".sat is for .s32");
    d.out.run = lanes<int32_t, int32_t, int32_t>([](int32_t a, int32_t b) {
      return saturated<int32_t>(subtract ? int64_t{a} - b : int64_t{a} + b);
    });
    return;
  }
  d.out.run = with_integer(t, [](auto tag) {
    using T = Unsigned<typename decltype(tag)::type>;
    return lanes<T, T, T>([](T a, T b) { return static_cast<T>(subtract ? a - b : a + b); });
  });
}

// The product as .lo, .hi or .wide gives it.
enum class Part { low, high, wide };

template <class T>
T high_half(T a, T b) {
  return static_cast<T>((static_cast<Wider<T>>(a) * b) >> sizeof(T) * 8);
}
template <class T>
T low_half(T a, T b) {
  return wrapped(a, b, [](uint64_t x, uint64_t y) { return x * y; });
}
template <class T>
Wider<T> whole(T a, T b) {
  return static_cast<Wider<T>>(a) * b;
}

Type doubled(Decoder& d, Type t) {
  switch (t) {
    case Type::u16:
      return Type::u32;
    case Type::s16:
      return Type::s32;
    case Type::u32:
      return Type::u64;
    case Type::s32:
      return Type::s64;
    default:
      d.fail(".wide is for 16 and 32 bits");
  }
}

void mul(Decoder& d) {
  if (decode_float_product(d)) return;
  const auto part = static_cast<Part>(d.take_of({"lo", "hi", "wide"}));
  const Type t = d.take_type(wide_types);
  d.dest(part == Part::wide ? doubled(d, t) : t);
  d.source(t);
  d.source(t);
  d.out.run = with_integer(t, [part](auto tag) -> Run {
    using T = typename decltype(tag)::type;
    if (part == Part::low) return lanes<T, T, T>([](T a, T b) { return low_half(a, b); });
    if (part == Part::high) return lanes<T, T, T>([](T a, T b) { return high_half(a, b); });
    if constexpr (sizeof(T) < 8)
      return lanes<Wider<T>, T, T>([](T a, T b) { return whole(a, b); });
    else
      return nullptr;
  });
}

// mode as add_with_carry's, for the sum of half a product.
template <class T, bool high>
void mad_with_carry(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<T>(in.r[1]), b = w.get<T>(in.r[2]);
  const auto c = w.get<Unsigned<T>>(in.r[3]);
  Lanes<T> r;
  Mask carry = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    const bool add = (in.mode & 1) && (w.carry() >> i & 1);
    const T part = high ? high_half(a.v[i], b.v[i]) : low_half(a.v[i], b.v[i]);
    const auto sum = static_cast<Wider<Unsigned<T>>>(static_cast<Unsigned<T>>(part)) + c.v[i] + add;
    r.v[i] = static_cast<T>(sum);
    carry |= static_cast<Mask>((sum >> sizeof(T) * 8) != 0) << i;
  }
  w.put(in.r[0], m, r, w.defined(in.r[1]) & w.defined(in.r[2]) & w.defined(in.r[3]));
  if (in.mode & 2) w.set_carry(m, carry);
}

void decode_mad_carry(Decoder& d, Part part, uint8_t mode) {
  const Type t = d.take_type({Type::u32, Type::s32, Type::u64, Type::s64});
  if (part == Part::wide) d.fail("has no .wide");
  three(d, t);
  d.source(t);
  d.out.mode = mode;
  d.out.run = with_integer(t, [part](auto tag) -> Run {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) >= 4)
      return part == Part::high ? mad_with_carry<T, true> : mad_with_carry<T, false>;
    else
      return nullptr;
  });
}

void mad(Decoder& d) {
  if (decode_float_mad(d)) return;
  const auto part = static_cast<Part>(d.take_of({"lo", "hi", "wide"}));
  if (d.take("cc")) return decode_mad_carry(d, part, 2);
  const bool saturate = d.take("sat");
  const Type t = d.take_type(wide_types);
  const Type sum = part == Part::wide ? doubled(d, t) : t;
  d.dest(sum);
  d.source(t);
  d.source(t);
  d.source(sum);
  if (saturate) {
    if (t != Type::s32 || part != Part::high) d.fail(".sat is for .hi.s32");
    d.out.run = lanes<int32_t, int32_t, int32_t, int32_t>([](int32_t a, int32_t b, int32_t c) {
      return saturated<int32_t>(int64_t{high_half(a, b)} + c);
    });
    return;
  }
  d.out.run = with_integer(t, [part](auto tag) -> Run {
    using T = typename decltype(tag)::type;
    const auto plus = [](auto a, auto b) {
      return wrapped(a, b, [](uint64_t x, uint64_t y) { return x + y; });
    };
    using Plus = decltype(plus);
    if (part == Part::low)
      return lanes<T, T, T, T>([](T a, T b, T c) { return Plus{}(low_half(a, b), c); });
    if (part == Part::high)
      return lanes<T, T, T, T>([](T a, T b, T c) { return Plus{}(high_half(a, b), c); });
    if constexpr (sizeof(T) < 8)
      return lanes<Wider<T>, T, T, Wider<T>>(
          [](T a, T b, Wider<T> c) { return Plus{}(whole(a, b), c); });
    else
      return nullptr;
  });
}

void madc(Decoder& d) {
  const auto part = static_cast<Part>(d.take_of({"lo", "hi", "wide"}));
  decode_mad_carry(d, part, d.take("cc") ? 3 : 1);
}

// 24-bit products: the low 24 bits of each operand.
template <bool plus>
void mul24(Decoder& d) {
  const bool high = d.take_of({"lo", "hi"}) == 1;
  const Type t = d.take_type({Type::u32, Type::s32});
  three(d, t);
  if (plus) d.source(t);
  d.out.mode = high;
  d.out.run = with_integer(t, [](auto tag) -> Run {
    using T = typename decltype(tag)::type;
    const auto product = [](uint8_t mode, T a, T b) {
      const auto cut = [](T x) {
        return static_cast<Wider<T>>(static_cast<T>(static_cast<uint32_t>(x) << 8) >> 8);
      };
      const auto p = static_cast<uint64_t>(cut(a) * cut(b));
      return static_cast<uint32_t>(mode ? p >> 16 : p);
    };
    using Product = decltype(product);
    if constexpr (plus)
      return lanes<T, T, T, T>([](uint8_t mode, T a, T b, T c) {
        return static_cast<T>(Product{}(mode, a, b) + static_cast<uint32_t>(c));
      });
    else
      return lanes<T, T, T>(
          [](uint8_t mode, T a, T b) { return static_cast<T>(Product{}(mode, a, b)); });
  });
}

// |a - b| + c
void sad(Decoder& d) {
  const Type t = d.take_type(wide_types);
  three(d, t);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    using U = Unsigned<T>;
    return lanes<T, T, T, T>([](T a, T b, T c) {
      const U x = static_cast<U>(a), y = static_cast<U>(b);
      return static_cast<T>(static_cast<U>((a < b ? y - x : x - y) + static_cast<U>(c)));
    });
  });
}

// The device defines no result for a divisor of zero, so nothing may depend on one.
template <class T, bool remainder>
void divide(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<T>(in.r[1]), b = w.get<T>(in.r[2]);
  const Mask defined = w.defined(in.r[1]) & w.defined(in.r[2]);
  Lanes<T> r{};
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m & defined) || !((m & defined) >> i & 1)) continue;
    if (b.v[i] == 0) w.fault(i, "division of an integer by zero");
    if (std::is_signed_v<T> && b.v[i] == static_cast<T>(-1))
      r.v[i] = remainder ? T{0} : static_cast<T>(-static_cast<Unsigned<T>>(a.v[i]));
    else
      r.v[i] = static_cast<T>(remainder ? a.v[i] % b.v[i] : a.v[i] / b.v[i]);
  }
  w.put(in.r[0], m, r, defined);
}

template <bool remainder>
void div(Decoder& d) {
  if (!remainder && decode_float_quotient(d)) return;
  const Type t = d.take_type(wide_types);
  three(d, t);
  d.out.run = with_integer(
      t, [](auto tag) -> Run { return divide<typename decltype(tag)::type, remainder>; });
}

template <bool negative>
void abs(Decoder& d) {
  if (decode_float_sign(d, negative)) return;
  const Type t = d.take_type({Type::s16, Type::s32, Type::s64});
  d.dest(t);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T>([](T a) {
      return negative || a < 0 ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)) : a;
    });
  });
}

template <bool largest>
void min(Decoder& d) {
  if (decode_float_extreme(d, largest)) return;
  const bool relu = d.take("relu");
  if (d.peek() && (*d.peek() == "u16x2" || *d.peek() == "s16x2")) {
    const Type t = d.take_type();
    if (d.take("relu") || relu) d.fail("the interpreter knows no .relu of packed integers");
    three(d, t);
    d.out.mode = t == Type::s16x2;
    d.out.run = lanes<uint32_t, uint32_t, uint32_t>([](uint8_t mode, uint32_t a, uint32_t b) {
      const auto pick = [mode](uint32_t x, uint32_t y) {
        const uint32_t flip = mode ? 0x8000u : 0;
        return ((x ^ flip) < (y ^ flip)) != largest ? x : y;
      };
      return pick(a & 0xffffu, b & 0xffffu) | pick(a >> 16, b >> 16) << 16;
    });
    return;
  }
  const Type t = d.take_type(wide_types);
  if (relu && t != Type::s32) d.fail(".relu is for .s32");
  three(d, t);
  d.out.mode = relu;
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, T>([](uint8_t relu, T a, T b) {
      const T r = largest ? std::max(a, b) : std::min(a, b);
      return relu ? std::max(r, T{0}) : r;
    });
  });
}

// c + the dot product of four bytes.
void dp4a(Decoder& d) {
  const Type a = d.take_type({Type::u32, Type::s32}), b = d.take_type({Type::u32, Type::s32});
  three(d, Type::b32);
  d.source(Type::b32);
  d.out.mode = static_cast<uint8_t>((a == Type::s32) | (b == Type::s32) << 1);
  d.out.run = lanes<uint32_t, uint32_t, uint32_t, uint32_t>(
      [](uint8_t mode, uint32_t x, uint32_t y, uint32_t c) {
        for (int i = 0; i < 32; i += 8) {
          const uint32_t p = x >> i & 255, q = y >> i & 255;
          c += (mode & 1 ? static_cast<uint32_t>(static_cast<int8_t>(p)) : p) *
               (mode & 2 ? static_cast<uint32_t>(static_cast<int8_t>(q)) : q);
        }
        return c;
      });
}

}  // namespace

void add_integer_opcodes(Opcodes& o) {
  o["add"] = add<false>;
  o["sub"] = add<true>;
  o["addc"] = [](Decoder& d) { decode_carry(d, 1); };
  o["subc"] = [](Decoder& d) { decode_carry(d, 5); };
  o["mul"] = mul;
  o["mad"] = mad;
  o["madc"] = madc;
  o["mul24"] = mul24<false>;
  o["mad24"] = mul24<true>;
  o["sad"] = sad;
  o["div"] = div<false>;
  o["rem"] = div<true>;
  o["abs"] = abs<false>;
  o["neg"] = abs<true>;
  o["min"] = min<false>;
  o["max"] = min<true>;
  o["dp4a"] = dp4a;
}

}  // namespace gradus::ptx
