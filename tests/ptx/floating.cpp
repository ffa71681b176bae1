// Floating arithmetic of 32 and 64 bits, with an exact definition each.
#include <cmath>

#include "tests/ptx/floats.h"
#include "tests/ptx/lanes.h"
#include "tests/ptx/packed_floats.h"
#include "tests/ptx/rounding.h"

namespace gradus::ptx {

namespace {

struct Add {
  template <class T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <class T>
  static T of(T a, T b) {
    return a / b;
  }
};
struct Fma {
  template <class T>
  static T of(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Sqrt {
  template <class T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  static T of(T a) {
    return T{1} / a;
  }
};

template <class Op, class T, class... A>
T directed(Rounding r, A... a) {
  RoundingScope scope(r);
  return [](volatile auto... v) -> T {
    volatile T result = Op::template of<T>(v...);
    return result;
  }(a...);
}

// What the modifiers make of an operation.
template <class Op, class T, class... A>
T in_mode(uint8_t mode, A... a) {
  const auto rounding = static_cast<Rounding>(mode & mode_rounding);
  T r;
  if (mode & mode_flush)
    r = rounding ? directed<Op, T>(rounding, flushed(a)...) : Op::template of<T>(flushed(a)...);
  else
    r = rounding ? directed<Op, T>(rounding, a...) : Op::template of<T>(a...);
  if (mode & mode_flush) r = flushed(r);
  if (mode & mode_saturate) r = saturated_unit(r);
  return canonical(r);
}

template <class Op, class T, class... A>
Run handler(uint8_t mode) {
  if (mode == 0) return lanes<T, A...>([](A... a) { return canonical(Op::template of<T>(a...)); });
  return lanes<T, A...>([](uint8_t m, A... a) { return in_mode<Op, T>(m, a...); });
}

std::optional<uint8_t> take_rounding(Decoder& d) {
  const auto r = d.try_of({"rn", "rz", "rm", "rp"});
  if (!r) return std::nullopt;
  return static_cast<uint8_t>(*r);
}

uint8_t take_flush(Decoder& d) { return d.take("ftz") ? mode_flush : 0; }
uint8_t take_saturate(Decoder& d) { return d.take("sat") ? mode_saturate : 0; }

// The type at the end, f32 or f64, and what f64 does not have.
Type finish_mode(Decoder& d, uint8_t mode) {
  const Type t = d.take_type({Type::f32, Type::f64});
  if (t == Type::f64 && (mode & (mode_flush | mode_saturate)))
    d.fail("f64 has no .ftz and no .sat");
  d.out.mode = mode;
  return t;
}

bool is_floating_form(const Decoder& d) { return d.last_type() && is_floating(*d.last_type()); }
bool is_packed(const Decoder& d) {
  const Type t = *d.last_type();
  return t != Type::f32 && t != Type::f64;
}

template <class Op>
void two(Decoder& d, Type t, uint8_t mode) {
  d.dest(t);
  d.source(t);
  d.source(t);
  d.out.run = t == Type::f64 ? handler<Op, double, double, double>(mode)
                             : handler<Op, float, float, float>(mode);
}

template <class Op>
void one(Decoder& d, Type t, uint8_t mode) {
  d.dest(t);
  d.source(t);
  d.out.run = t == Type::f64 ? handler<Op, double, double>(mode) : handler<Op, float, float>(mode);
}

template <class Op>
bool decode_two(Decoder& d, PackedOp packed) {
  if (!is_floating_form(d)) return false;
  uint8_t mode = take_rounding(d).value_or(nearest);
  mode |= take_flush(d);
  mode |= take_saturate(d);
  if (is_packed(d)) {
    decode_packed(d, packed, mode);
    return true;
  }
  two<Op>(d, finish_mode(d, mode), mode);
  return true;
}

void fma(Decoder& d) {
  const auto rounding = take_rounding(d);
  uint8_t mode = rounding.value_or(nearest);
  mode |= take_flush(d);
  mode |= take_saturate(d);
  if (d.take("relu")) mode |= mode_relu;
  if (!is_floating_form(d)) d.fail("is for floating types");
  if (is_packed(d)) return decode_packed(d, PackedOp::fma, mode);
  if (!rounding) d.fail("lacks its rounding");
  if (mode & mode_relu) d.fail(".relu is for 16 bits");
  const Type t = finish_mode(d, mode);
  d.dest(t);
  d.source(t);
  d.source(t);
  d.source(t);
  d.out.run = t == Type::f64 ? handler<Fma, double, double, double, double>(mode)
                             : handler<Fma, float, float, float, float>(mode);
}

template <class Op>
void root(Decoder& d) {
  if (d.take("approx")) return decode_approximate(d);
  const auto rounding = take_rounding(d);
  if (!rounding) d.fail("lacks its rounding");
  const auto mode = static_cast<uint8_t>(*rounding | take_flush(d));
  one<Op>(d, finish_mode(d, mode), mode);
}

// d has the sign of a and the magnitude of b.
void copysign(Decoder& d) {
  const Type t = d.take_type({Type::f32, Type::f64});
  d.dest(t);
  d.source(t);
  d.source(t);
  if (t == Type::f64)
    d.out.run =
        lanes<double, double, double>([](double a, double b) { return std::copysign(b, a); });
  else
    d.out.run = lanes<float, float, float>([](float a, float b) { return std::copysign(b, a); });
}

template <class T>
T extreme(uint8_t mode, bool largest, T a, T b) {
  if (mode & mode_flush) a = flushed(a), b = flushed(b);
  bool negative = false;
  if (mode & mode_xorsign) {
    negative = std::signbit(a) != std::signbit(b);
    a = std::fabs(a), b = std::fabs(b);
  }
  T r;
  if (a != a || b != b) {
    r = (mode & mode_nan) || (a != a && b != b) ? canonical(a != a ? a : b) : a != a ? b : a;
    if (r != r) return r;
  } else if (a == b) {  // of two zeros, -0 is the smaller one
    r = std::signbit(a) == largest ? b : a;
  } else {
    r = (a < b) != largest ? a : b;
  }
  return negative ? -r : r;
}

}  // namespace

bool decode_float_sum(Decoder& d, bool subtract) {
  return subtract ? decode_two<Sub>(d, PackedOp::sub) : decode_two<Add>(d, PackedOp::add);
}

bool decode_float_product(Decoder& d) { return decode_two<Mul>(d, PackedOp::mul); }

// mad of floats with a rounding is fma.
bool decode_float_mad(Decoder& d) {
  if (!is_floating_form(d)) return false;
  fma(d);
  return true;
}

bool decode_float_quotient(Decoder& d) {
  if (!is_floating_form(d)) return false;
  if (d.take("approx") || d.take("full")) {
    decode_approximate(d);
    return true;
  }
  const auto rounding = take_rounding(d);
  if (!rounding) d.fail("lacks its rounding");
  const auto mode = static_cast<uint8_t>(*rounding | take_flush(d));
  two<Div>(d, finish_mode(d, mode), mode);
  return true;
}

bool decode_float_sign(Decoder& d, bool negate) {
  if (!is_floating_form(d)) return false;
  const uint8_t mode = take_flush(d);
  if (is_packed(d)) {
    decode_packed(d, negate ? PackedOp::neg : PackedOp::abs, mode);
    return true;
  }
  const Type t = finish_mode(d, mode);
  d.dest(t);
  d.source(t);
  if (t == Type::f64)
    d.out.run = negate ? lanes<double, double>([](double a) { return -a; })
                       : lanes<double, double>([](double a) { return std::fabs(a); });
  else
    d.out.run =
        negate
            ? lanes<float, float>([](uint8_t m, float a) { return -(m ? flushed(a) : a); })
            : lanes<float, float>([](uint8_t m, float a) { return std::fabs(m ? flushed(a) : a); });
  return true;
}

bool decode_float_extreme(Decoder& d, bool largest) {
  if (!is_floating_form(d)) return false;
  uint8_t mode = take_flush(d);
  if (d.take("NaN")) mode |= mode_nan;
  if (d.take("xorsign")) {
    if (!d.take("abs")) d.fail(".xorsign goes with .abs");
    mode |= mode_xorsign;
  }
  if (is_packed(d)) {
    decode_packed(d, largest ? PackedOp::max : PackedOp::min, mode);
    return true;
  }
  const Type t = finish_mode(d, mode);
  d.dest(t);
  d.source(t);
  d.source(t);
  const auto pick = [largest](auto x) {
    using T = decltype(x);
    return largest ? lanes<T, T, T>([](uint8_t m, T a, T b) { return extreme(m, true, a, b); })
                   : lanes<T, T, T>([](uint8_t m, T a, T b) { return extreme(m, false, a, b); });
  };
  d.out.run = t == Type::f64 ? pick(double{}) : pick(float{});
  return true;
}

void add_float_opcodes(Opcodes& o) {
  o["fma"] = fma;
  o["sqrt"] = root<Sqrt>;
  o["rcp"] = root<Reciprocal>;
  o["copysign"] = copysign;
  for (const char* name : {"rsqrt", "sin", "cos", "lg2", "ex2", "tanh"})
    o[name] = [](Decoder& d) {
      d.take_of({"approx"});
      decode_approximate(d);
    };
}

}  // namespace gradus::ptx
