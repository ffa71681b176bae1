// Instructions on bits, against loops over single bits.
#include "tests/ptx/support.h"

namespace gradus::ptx::test {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using s32 = int32_t;
using s64 = int64_t;

TEST(Bits, Logic) {
  expect_each<u32, u32, u32>("and.b32 %d, %a, %b;", [](u32 a, u32 b) { return a & b; });
  expect_each<u64, u64, u64>("or.b64 %d, %a, %b;", [](u64 a, u64 b) { return a | b; });
  expect_each<uint16_t, uint16_t, uint16_t>(
      "xor.b16 %d, %a, %b;", [](uint16_t a, uint16_t b) { return static_cast<uint16_t>(a ^ b); });
  expect_each<u64, u64>("not.b64 %d, %a;", [](u64 a) { return ~a; });
  expect_each<u32, u32>("cnot.b32 %d, %a;", [](u32 a) { return static_cast<u32>(a == 0); });
}

TEST(Bits, Lop3IsATableOfThreeBits) {
  for (const int table : {0x96, 0xe8, 0x80, 0x1b, 0xff, 0x00})
    expect_each<u32, u32, u32, u32>(
        "lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";",
        [table](u32 a, u32 b, u32 c) {
          u32 r = 0;
          for (int i = 0; i < 32; ++i)
            r |= static_cast<u32>(table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1)
                 << i;
          return r;
        },
        500);
}

TEST(Bits, ShiftsBeyondTheWidthGiveZero) {
  expect_each<u32, u32, u32>("shl.b32 %d, %a, %b;",
                             [](u32 a, u32 n) { return n < 32 ? a << n : 0; });
  expect_each<u64, u64, u32>("shl.b64 %d, %a, %b;",
                             [](u64 a, u32 n) { return n < 64 ? a << n : 0; });
  expect_each<uint16_t, uint16_t, u32>("shl.b16 %d, %a, %b;", [](uint16_t a, u32 n) {
    return static_cast<uint16_t>(n < 16 ? a << n : 0);
  });
}

TEST(Bits, FunnelShifts) {
  const auto whole = [](u32 a, u32 b) { return static_cast<u64>(b) << 32 | a; };
  expect_each<u32, u32, u32, u32>("shf.l.wrap.b32 %d, %a, %b, %c;", [=](u32 a, u32 b, u32 c) {
    return static_cast<u32>((whole(a, b) << (c & 31)) >> 32);
  });
  expect_each<u32, u32, u32, u32>("shf.r.wrap.b32 %d, %a, %b, %c;", [=](u32 a, u32 b, u32 c) {
    return static_cast<u32>(whole(a, b) >> (c & 31));
  });
  expect_each<u32, u32, u32, u32>("shf.l.clamp.b32 %d, %a, %b, %c;", [=](u32 a, u32 b, u32 c) {
    return c >= 32 ? a : static_cast<u32>((whole(a, b) << c) >> 32);
  });
  expect_each<u32, u32, u32, u32>("shf.r.clamp.b32 %d, %a, %b, %c;", [=](u32 a, u32 b, u32 c) {
    return c >= 32 ? b : static_cast<u32>(whole(a, b) >> c);
  });
}

TEST(Bits, Counting) {
  const auto count = [](u64 a) {
    u32 n = 0;
    for (; a; a &= a - 1) ++n;
    return n;
  };
  expect_each<u32, u32>("popc.b32 %d, %a;", [=](u32 a) { return count(a); });
  expect_each<u32, u64>("popc.b64 %d, %a;", [=](u64 a) { return count(a); });
  const auto zeros = [](u64 a, u32 bits) {
    u32 n = 0;
    while (n < bits && !(a >> (bits - 1 - n) & 1)) ++n;
    return n;
  };
  expect_each<u32, u32>("clz.b32 %d, %a;", [=](u32 a) { return zeros(a, 32); });
  expect_each<u32, u64>("clz.b64 %d, %a;", [=](u64 a) { return zeros(a, 64); });
  expect_each<u32, u32>("bfind.u32 %d, %a;", [=](u32 a) { return a ? 31 - zeros(a, 32) : ~0u; });
  expect_each<u32, s32>("bfind.s32 %d, %a;", [=](s32 a) {
    const u32 u = static_cast<u32>(a < 0 ? ~a : a);
    return u ? 31 - zeros(u, 32) : ~0u;
  });
  expect_each<u32, u64>("bfind.shiftamt.u64 %d, %a;",
                        [=](u64 a) { return a ? zeros(a, 64) : ~0u; });
}

TEST(Bits, Reversal) {
  const auto reversed = [](u64 a, int bits) {
    u64 r = 0;
    for (int i = 0; i < bits; ++i) r |= (a >> i & 1) << (bits - 1 - i);
    return r;
  };
  expect_each<u32, u32>("brev.b32 %d, %a;",
                        [=](u32 a) { return static_cast<u32>(reversed(a, 32)); });
  expect_each<u64, u64>("brev.b64 %d, %a;", [=](u64 a) { return reversed(a, 64); });
}

// The field's bits one by one, copies of the sign above the top.
template <class T>
T field(T a, u32 b, u32 c) {
  const u32 bits = sizeof(T) * 8, at = b & 255, n = c & 255;
  const u64 u = static_cast<std::make_unsigned_t<T>>(a);
  const auto bit = [&](u32 i) { return i < bits ? u >> i & 1 : 0; };
  const u32 top = std::min(at + n - 1, bits - 1);
  const u64 sign = std::is_signed_v<T> && n ? bit(top) : 0;
  u64 r = 0;
  for (u32 i = 0; i < bits; ++i) r |= (i < n && at + i < bits ? bit(at + i) : sign) << i;
  return static_cast<T>(r);
}

TEST(Bits, Fields) {
  expect_each<u32, u32, u32, u32>("bfe.u32 %d, %a, %b, %c;", field<u32>);
  expect_each<s32, s32, u32, u32>("bfe.s32 %d, %a, %b, %c;", field<s32>);
  expect_each<u64, u64, u32, u32>("bfe.u64 %d, %a, %b, %c;", field<u64>);
  expect_each<s64, s64, u32, u32>("bfe.s64 %d, %a, %b, %c;", field<s64>);
  const auto insert = [](u64 a, u64 b, u32 at, u32 n, u32 bits) {
    for (u32 i = 0; i < n && at + i < bits; ++i)
      b = (b & ~(u64{1} << (at + i))) | (a >> i & 1) << (at + i);
    return b;
  };
  expect_each<u32, u32, u32, u32>("bfi.b32 %d, %a, %b, %c, 7;", [=](u32 a, u32 b, u32 c) {
    return static_cast<u32>(insert(a, b, c & 255, 7, 32));
  });
  expect_each<u64, u64, u64, u32>("bfi.b64 %d, %a, %b, 11, %c;", [=](u64 a, u64 b, u32 c) {
    return insert(a, b, 11, c & 255, 64);
  });
}

TEST(Bits, Masks) {
  expect_each<u32, u32, u32>("bmsk.clamp.b32 %d, %a, %b;", [](u32 a, u32 b) {
    u32 r = 0;
    for (u64 i = a; i < u64{a} + b && i < 32; ++i) r |= 1u << i;
    return r;
  });
  expect_each<s32, s32, u32>("szext.clamp.s32 %d, %a, %b;", [](s32 a, u32 n) {
    if (n == 0) return 0;
    if (n >= 32) return a;
    return static_cast<s32>(static_cast<u32>(a) << (32 - n)) >> (32 - n);
  });
}

TEST(Bits, Permutations) {
  expect_each<u32, u32, u32, u32>("prmt.b32 %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
      const u32 s = c >> 4 * i & 15, from = s & 4 ? b : a;
      u32 byte = from >> 8 * (s & 3) & 255;
      if (s & 8) byte = byte >= 128 ? 255 : 0;
      r |= byte << 8 * i;
    }
    return r;
  });
  expect_each<u32, u32, u32, u32>("prmt.b32.f4e %d, %a, %b, %c;", [](u32 a, u32 b, u32 c) {
    return static_cast<u32>((static_cast<u64>(b) << 32 | a) >> 8 * (c & 3));
  });
  expect_each<u32, u32, u32, u32>("prmt.b32.rc16 %d, %a, %b, %c;", [](u32 a, u32, u32 c) {
    const u32 half = a >> (c & 1 ? 16 : 0) & 0xffff;
    return half | half << 16;
  });
}

}  // namespace
}  // namespace gradus::ptx::test
