// Instructions on bits.
#include <algorithm>
#include <bit>

#include "tests/ptx/lanes.h"

namespace gradus::ptx {

namespace {

const std::initializer_list<Type> bit_types = {Type::b16, Type::b32, Type::b64};

void three(Decoder& d, Type t) {
  d.dest(t);
  d.source(t);
  d.source(t);
}

struct And {
  static uint64_t of(uint64_t a, uint64_t b) { return a & b; }
};
struct Or {
  static uint64_t of(uint64_t a, uint64_t b) { return a | b; }
};
struct Xor {
  static uint64_t of(uint64_t a, uint64_t b) { return a ^ b; }
};

template <class F>
void logic(Decoder& d) {
  const Type t = d.take_type({Type::pred, Type::b16, Type::b32, Type::b64});
  d.dest(t);
  if (t == Type::pred) {
    d.source_predicate();
    if (d.negated) d.fail("negates a predicate");
    d.source_predicate();
    if (d.negated) d.fail("negates a predicate");
    d.out.run = [](Warp& w, const Instruction& in, Mask m) {
      const Mask a = w.predicate(in.r[1]), b = w.predicate(in.r[2]);
      w.put_predicate(in.r[0], m, static_cast<Mask>(F::of(a, b)),
                      w.defined(in.r[1]) & w.defined(in.r[2]));
    };
    return;
  }
  d.source(t);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, T>([](T a, T b) { return static_cast<T>(F::of(a, b)); });
  });
}

void logical_not(Decoder& d) {
  const Type t = d.take_type({Type::pred, Type::b16, Type::b32, Type::b64});
  d.dest(t);
  d.source(t);
  if (t == Type::pred) {
    d.out.run = [](Warp& w, const Instruction& in, Mask m) {
      w.put_predicate(in.r[0], m, ~w.predicate(in.r[1]), w.defined(in.r[1]));
    };
    return;
  }
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T>([](T a) { return static_cast<T>(~a); });
  });
}

void cnot(Decoder& d) {
  const Type t = d.take_type(bit_types);
  d.dest(t);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T>([](T a) { return static_cast<T>(a == 0); });
  });
}

// Amounts beyond the width shift everything out.
void shl(Decoder& d) {
  const Type t = d.take_type(bit_types);
  d.dest(t);
  d.source(t);
  d.source(Type::u32);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, uint32_t>([](T a, uint32_t n) {
      return n < sizeof(T) * 8 ? static_cast<T>(static_cast<uint64_t>(a) << n) : T{0};
    });
  });
}

void shr(Decoder& d) {
  const Type t = d.take_type({Type::b16, Type::b32, Type::b64, Type::u16, Type::u32, Type::u64,
                              Type::s16, Type::s32, Type::s64});
  d.dest(t);
  d.source(t);
  d.source(Type::u32);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, uint32_t>([](T a, uint32_t n) {
      const uint32_t most = sizeof(T) * 8 - 1;
      if (n > most) return static_cast<T>(a < 0 ? -1 : 0);
      return static_cast<T>(a >> n);
    });
  });
}

// The funnel: the 64 bits of b:a, shifted.
void shf(Decoder& d) {
  const bool right = d.take_of({"l", "r"}) == 1;
  const bool wrap = d.take_of({"clamp", "wrap"}) == 1;
  d.take_type({Type::b32});
  three(d, Type::b32);
  d.source(Type::u32);
  d.out.mode = static_cast<uint8_t>(right | wrap << 1);
  d.out.run = lanes<uint32_t, uint32_t, uint32_t, uint32_t>(
      [](uint8_t mode, uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = mode & 2 ? c & 31 : std::min(c, 32u);
        const uint64_t whole = static_cast<uint64_t>(b) << 32 | a;
        return static_cast<uint32_t>(mode & 1 ? whole >> n : whole << n >> 32);
      });
}

void lop3(Decoder& d) {
  d.take_type({Type::b32});
  three(d, Type::b32);
  d.source(Type::b32);
  const Operand& table = d.next_operand();
  if (table.kind != Operand::number || table.value.bits > 255) d.fail("expects a table of 8 bits");
  d.out.mode = static_cast<uint8_t>(table.value.bits);
  d.out.run = lanes<uint32_t, uint32_t, uint32_t, uint32_t>(
      [](uint8_t lut, uint32_t a, uint32_t b, uint32_t c) {
        uint32_t r = 0;
        for (unsigned k = 0; k < 8; ++k)
          if (lut >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return r;
      });
}

void popc(Decoder& d) {
  const Type t = d.take_type({Type::b32, Type::b64});
  d.dest(Type::u32);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<uint32_t, T>(
        [](T a) { return static_cast<uint32_t>(std::popcount(static_cast<uint64_t>(a))); });
  });
}

void clz(Decoder& d) {
  const Type t = d.take_type({Type::b32, Type::b64});
  d.dest(Type::u32);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<uint32_t, T>(
        [](T a) { return static_cast<uint32_t>(std::countl_zero(static_cast<Unsigned<T>>(a))); });
  });
}

void brev(Decoder& d) {
  const Type t = d.take_type({Type::b32, Type::b64});
  d.dest(t);
  d.source(t);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T>([](T a) {
      T r = 0;
      for (size_t i = 0; i < sizeof(T) * 8; ++i)
        r = static_cast<T>(r << 1 | ((static_cast<uint64_t>(a) >> i) & 1));
      return r;
    });
  });
}

// The place of the leading bit that is not the sign; ~0 if there is none.
void bfind(Decoder& d) {
  const bool shift = d.take("shiftamt");
  const Type t = d.take_type({Type::u32, Type::u64, Type::s32, Type::s64});
  d.dest(Type::u32);
  d.source(t);
  d.out.mode = shift;
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<uint32_t, T>([](uint8_t shift, T a) {
      const auto u = static_cast<Unsigned<T>>(a < 0 ? ~a : a);
      if (u == 0) return ~0u;
      const auto zeros = static_cast<uint32_t>(std::countl_zero(u));
      return shift ? zeros : static_cast<uint32_t>(sizeof(T) * 8 - 1) - zeros;
    });
  });
}

// Bits [b, b + c) of a; beyond the top they are copies of the sign.
void bfe(Decoder& d) {
  const Type t = d.take_type({Type::u32, Type::u64, Type::s32, Type::s64});
  d.dest(t);
  d.source(t);
  d.source(Type::u32);
  d.source(Type::u32);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, uint32_t, uint32_t>([](T a, uint32_t b, uint32_t c) {
      constexpr uint32_t bits = sizeof(T) * 8;
      const uint32_t at = b & 255, n = c & 255;
      if (n == 0) return T{0};
      const uint32_t top = std::min(at + n - 1, bits - 1);
      const uint64_t u = static_cast<Unsigned<T>>(a);
      const bool sign = a < 0 || std::is_signed_v<T> ? u >> top & 1 : false;
      uint64_t r = at < bits ? u >> at : 0;
      if (n < 64) r &= (uint64_t{1} << n) - 1;
      // From where the field's own bits end.
      const uint32_t own = at < bits ? std::min(n, bits - at) : 0;
      if (std::is_signed_v<T> && sign && own < bits) r |= ~uint64_t{0} << own;
      return static_cast<T>(r);
    });
  });
}

// b with bits [c, c + d) taken from the low ones of a.
void bfi(Decoder& d) {
  const Type t = d.take_type({Type::b32, Type::b64});
  three(d, t);
  d.source(Type::u32);
  d.source(Type::u32);
  d.out.run = with_integer(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    return lanes<T, T, T, uint32_t, uint32_t>([](T a, T b, uint32_t c, uint32_t n) {
      constexpr uint32_t bits = sizeof(T) * 8;
      const uint32_t at = c & 255, count = n & 255;
      if (at >= bits || count == 0) return b;
      const uint64_t field = count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0};
      return static_cast<T>((b & ~(field << at)) | ((a & field) << at));
    });
  });
}

void bmsk(Decoder& d) {
  const bool wrap = d.take_of({"clamp", "wrap"}) == 1;
  d.take_type({Type::b32});
  three(d, Type::b32);
  d.out.mode = wrap;
  d.out.run = lanes<uint32_t, uint32_t, uint32_t>([](uint8_t wrap, uint32_t a, uint32_t b) {
    const uint32_t at = wrap ? a & 31 : a, n = wrap ? b & 31 : std::min(b, 32u);
    if (at >= 32) return 0u;
    return static_cast<uint32_t>(((uint64_t{1} << n) - 1) << at);
  });
}

void szext(Decoder& d) {
  const bool wrap = d.take_of({"clamp", "wrap"}) == 1;
  const Type t = d.take_type({Type::u32, Type::s32});
  d.dest(t);
  d.source(t);
  d.source(Type::u32);
  d.out.mode = static_cast<uint8_t>(wrap | (t == Type::s32) << 1);
  d.out.run = lanes<uint32_t, uint32_t, uint32_t>([](uint8_t mode, uint32_t a, uint32_t b) {
    const uint32_t n = mode & 1 ? b & 31 : b;
    if (n >= 32) return a;
    if (n == 0) return 0u;
    const uint32_t low = a & ((1u << n) - 1);
    return (mode & 2) && (low >> (n - 1) & 1) ? low | ~0u << n : low;
  });
}

// Bytes of b:a by the selector's nibbles; its bit 3 copies the byte's sign.
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t s = selector >> 4 * i;
    uint32_t byte = bytes >> 8 * (s & 7) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << 8 * i;
  }
  return r;
}

// The selector that a mode makes of the two low bits of c.
uint32_t selector_of(uint8_t mode, uint32_t c) {
  const uint32_t n = c & 3;
  static constexpr uint32_t table[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543},   // f4e
                                           {0x5670, 0x6701, 0x7012, 0x0123},   // b4e
                                           {0x0000, 0x1111, 0x2222, 0x3333},   // rc8
                                           {0x3210, 0x3211, 0x3222, 0x3333},   // ecl
                                           {0x0000, 0x1110, 0x2210, 0x3210},   // ecr
                                           {0x1010, 0x3232, 0x1010, 0x3232}};  // rc16
  return table[mode][n];
}

void prmt(Decoder& d) {
  d.take_type({Type::b32});
  const auto mode = d.try_of({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  three(d, Type::b32);
  d.source(Type::b32);
  d.out.mode = static_cast<uint8_t>(mode.value_or(6));
  d.out.run = lanes<uint32_t, uint32_t, uint32_t, uint32_t>(
      [](uint8_t mode, uint32_t a, uint32_t b, uint32_t c) {
        return permute(a, b, mode == 6 ? c : selector_of(mode, c));
      });
}

}  // namespace

void add_bit_opcodes(Opcodes& o) {
  o["and"] = logic<And>;
  o["or"] = logic<Or>;
  o["xor"] = logic<Xor>;
  o["not"] = logical_not;
  o["cnot"] = cnot;
  o["shl"] = shl;
  o["shr"] = shr;
  o["shf"] = shf;
  o["lop3"] = lop3;
  o["popc"] = popc;
  o["clz"] = clz;
  o["brev"] = brev;
  o["bfind"] = bfind;
  o["bfe"] = bfe;
  o["bfi"] = bfi;
  o["bmsk"] = bmsk;
  o["szext"] = szext;
  o["prmt"] = prmt;
}

}  // namespace gradus::ptx
