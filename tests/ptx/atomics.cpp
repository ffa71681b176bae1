// atom and red: lanes in their order, or all the way back, so that a sum of floats is the same in
// each run.
#include <algorithm>
#include <bit>
#include <cmath>

#include "gradus/error.h"
#include "tests/ptx/access.h"
#include "tests/ptx/lanes.h"
#include "tests/ptx/qualifiers.h"
#include "tests/ptx/rounding.h"

namespace gradus::ptx {

namespace {

enum class Update : uint8_t { add, min, max, inc, dec, bit_and, bit_or, bit_xor, exch, cas };

template <class T>
uint64_t update_integer(Update u, uint64_t old_bits, uint64_t b_bits, uint64_t c_bits) {
  const T old = static_cast<T>(old_bits), b = static_cast<T>(b_bits), c = static_cast<T>(c_bits);
  const auto bits = [](T x) { return static_cast<uint64_t>(x); };
  switch (u) {
    case Update::add:
      return old_bits + b_bits;
    case Update::min:
      return bits(std::min(old, b));
    case Update::max:
      return bits(std::max(old, b));
    case Update::inc:
      return old >= b ? 0 : old_bits + 1;
    case Update::dec:
      return old == 0 || old > b ? b_bits : old_bits - 1;
    case Update::bit_and:
      return old_bits & b_bits;
    case Update::bit_or:
      return old_bits | b_bits;
    case Update::bit_xor:
      return old_bits ^ b_bits;
    case Update::exch:
      return b_bits;
    case Update::cas:
      return old == b ? bits(c) : old_bits;
  }
  return old_bits;
}

template <class Format>
uint16_t add_halves(uint16_t a, uint16_t b) {
  return narrow<Format>(odd_sum(Format::wide(a), Format::wide(b)), nearest);
}

template <class Format>
uint32_t add_pairs(uint32_t a, uint32_t b) {
  const auto half = [&](int s) {
    return static_cast<uint32_t>(
        add_halves<Format>(static_cast<uint16_t>(a >> s), static_cast<uint16_t>(b >> s)));
  };
  return half(0) | half(16) << 16;
}

uint64_t updated(Update u, Type t, uint64_t old, uint64_t b, uint64_t c) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto low16 = [](uint64_t x) { return static_cast<uint16_t>(x); };
  switch (t) {
    case Type::f32:
      return std::bit_cast<uint32_t>(
          canonical(std::bit_cast<float>(low(old)) + std::bit_cast<float>(low(b))));
    case Type::f64:
      return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
    case Type::f16:
      return add_halves<Binary16>(low16(old), low16(b));
    case Type::bf16:
      return add_halves<Brain16>(low16(old), low16(b));
    case Type::f16x2:
      return add_pairs<Binary16>(low(old), low(b));
    case Type::bf16x2:
      return add_pairs<Brain16>(low(old), low(b));
    case Type::s32:
      return update_integer<int32_t>(u, old, b, c);
    case Type::s64:
      return update_integer<int64_t>(u, old, b, c);
    case Type::b16:
      return update_integer<uint16_t>(u, old, b, c);
    case Type::u32:
    case Type::b32:
      return update_integer<uint32_t>(u, old, b, c);
    default:
      return update_integer<uint64_t>(u, old, b, c);
  }
}

uint64_t flushed(uint64_t bits) {
  const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
  return std::fpclassify(x) == FP_SUBNORMAL ? std::bit_cast<uint32_t>(std::copysign(0.0f, x))
                                            : bits;
}

// Sums of f32 flush subnormal numbers to zero, on both sides, in all memory that is not shared.
uint64_t updated_there(Update u, Type t, bool shared, uint64_t old, uint64_t b, uint64_t c) {
  if (t != Type::f32 || shared) return updated(u, t, old, b, c);
  return flushed(updated(u, t, flushed(old), flushed(b), c));
}

// r[0] (none for red) := the old value of [r[1]], which becomes update(old, r[2], r[3]).
void run_atomic(Warp& w, const Instruction& in, Mask m) {
  w.need(in.r[1], m, "the address");
  w.need(in.r[2], m, "the operand of an atomic instruction");
  if (in.r[3]) w.need(in.r[3], m, "the operand of an atomic instruction");
  const unsigned width = width_of(in.type);
  const bool backwards = w.block().grid().launch.backwards;
  for (unsigned n = 0; n < warp_size; ++n) {
    const unsigned i = backwards ? warp_size - 1 - n : n;
    if (!(m >> i & 1)) continue;
    const uint64_t at = address_of(w, in, in.r[1], i);
    const bool shared = in.space == Space::shared || at - shared_window < window_size;
    const Target t = locate(w, i, in.space, at, width, Access::update);
    if (!std::all_of(t.defined, t.defined + width, [](uint8_t b) { return b; }))
      w.fault(
          i, fmt::format("atomic access of {} bytes at {:#x}, which was never written", width, at));
    uint64_t old = 0;
    std::memcpy(&old, t.data, width);
    const uint64_t now = updated_there(static_cast<Update>(in.mode), in.type, shared, old,
                                       w.lane(in.r[2], i), in.r[3] ? w.lane(in.r[3], i) : 0);
    std::memcpy(t.data, &now, width);
    if (in.r[0]) w.put_lane(in.r[0], i, old, true);
  }
}

template <bool gives_old>
void atom(Decoder& d) {
  const Qualifiers q = take_qualifiers(d);
  const auto u = static_cast<Update>(
      d.take_of({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}));
  const bool hint = take_qualifiers(d).cache_hint || q.cache_hint;
  const bool exact = d.take("noftz");
  const Type t =
      d.take_type({Type::b16, Type::b32, Type::b64, Type::u32, Type::u64, Type::s32, Type::s64,
                   Type::f32, Type::f64, Type::f16, Type::bf16, Type::f16x2, Type::bf16x2});
  if (is_floating(t) && u != Update::add) d.fail("floats are only added");
  if (exact != (is_floating(t) && t != Type::f32 && t != Type::f64))
    d.fail(".noftz is for 16-bit floats, and they need it");
  if (is_bits(t) && (u == Update::add || u == Update::min || u == Update::max || u == Update::inc))
    d.fail("bits are no numbers");
  if (q.space != Space::generic && q.space != Space::global && q.space != Space::shared)
    d.fail("is for .global and .shared");
  if (q.count != 1 || (!gives_old && (u == Update::exch || u == Update::cas)))
    d.fail("the interpreter does not know this form");
  if (gives_old)
    d.dest(t);
  else
    d.nothing();
  d.address(q.space);
  d.source(t);
  if (u == Update::cas) d.source(t);
  if (hint) d.next_operand();
  d.out.mode = static_cast<uint8_t>(u);
  d.out.type = t;
  d.out.space = q.space;
  d.out.run = run_atomic;
}

}  // namespace

void add_atomic_opcodes(Opcodes& o) {
  o["atom"] = atom<true>;
  o["red"] = atom<false>;
}

}  // namespace gradus::ptx
