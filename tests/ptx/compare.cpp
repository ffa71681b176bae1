// Comparisons, and choices by them.
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/ptx/lanes.h"
#include "tests/ptx/rounding.h"

namespace gradus::ptx {

namespace {

// In the order of `names`. Those of the last row hold for NaN as well.
enum Comparison : unsigned {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  lo,
  ls,
  hi,
  hs,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan,
  comparisons
};

size_t take_comparison(Decoder& d) {
  return d.take_of({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu",
                    "leu", "gtu", "geu", "num", "nan"});
}

template <unsigned c, class T>
bool holds(T a, T b) {
  const bool unordered = a != a || b != b;
  switch (c) {
    case eq:
      return a == b;
    case ne:
      return a != b && !unordered;
    case lt:
    case lo:
      return a < b;
    case le:
    case ls:
      return a <= b;
    case gt:
    case hi:
      return a > b;
    case ge:
    case hs:
      return a >= b;
    case equ:
      return a == b || unordered;
    case neu:
      return a != b;
    case ltu:
      return a < b || unordered;
    case leu:
      return a <= b || unordered;
    case gtu:
      return a > b || unordered;
    case geu:
      return a >= b || unordered;
    case num:
      return !unordered;
    default:
      return unordered;
  }
}

// How a value of a type is compared.
template <class T>
struct Plain {
  using Bits = T;
  using Value = T;
  static T value(T x) { return x; }
};
template <class Format>
struct Half {
  using Bits = uint16_t;
  using Value = float;
  static float value(uint16_t x) { return static_cast<float>(Format::wide(x)); }
};

template <class F>
auto with_comparable(Type t, F&& f) {
  switch (t) {
    case Type::f32:
      return f(Plain<float>{});
    case Type::f64:
      return f(Plain<double>{});
    case Type::f16:
    case Type::f16x2:
      return f(Half<Binary16>{});
    case Type::bf16:
    case Type::bf16x2:
      return f(Half<Brain16>{});
    default:
      return with_integer(t, [&](auto tag) { return f(Plain<typename decltype(tag)::type>{}); });
  }
}

using CompareLanes = Mask (*)(const Warp&, Reg a, Reg b, bool flush, unsigned half);

// `half` is which half of a pair is compared; others have one.
template <class P, unsigned c>
Mask compare_lanes(const Warp& w, Reg ra, Reg rb, bool flush, unsigned half) {
  using Bits = typename P::Bits;
  Lanes<Bits> a, b;
  if (ra.width == sizeof(Bits)) {
    a = w.get<Bits>(ra), b = w.get<Bits>(rb);
  } else if constexpr (sizeof(Bits) == 2) {
    const auto x = w.get<uint32_t>(ra), y = w.get<uint32_t>(rb);
    for (unsigned i = 0; i < warp_size; ++i) {
      a.v[i] = static_cast<Bits>(x.v[i] >> 16 * half);
      b.v[i] = static_cast<Bits>(y.v[i] >> 16 * half);
    }
  }
  Mask m = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    auto x = P::value(a.v[i]), y = P::value(b.v[i]);
    if constexpr (std::is_same_v<P, Plain<float>>)
      if (flush) x = flushed(x), y = flushed(y);
    m |= static_cast<Mask>(holds<c>(x, y)) << i;
  }
  return m;
}

CompareLanes find_compare(Type t, size_t comparison) {
  return with_comparable(t, [comparison](auto p) {
    return [&]<size_t... c>(std::index_sequence<c...>) {
      static constexpr CompareLanes table[] = {compare_lanes<decltype(p), c>...};
      return table[comparison];
    }
    (std::make_index_sequence<comparisons>{});
  });
}

// Every pair of type and comparison that is used has a number, which instructions carry.
struct Comparer {
  CompareLanes run;
  bool flush;
  int combine;   // and, or, xor; -1
  bool negated;  // the predicate that it is combined with
};

// The instruction's immediate points to one of these: they are few and live for good.
const Comparer* intern(const Comparer& c) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Comparer>> all;
  std::scoped_lock lock(mutex);
  for (const auto& known : all)
    if (known->run == c.run && known->flush == c.flush && known->combine == c.combine &&
        known->negated == c.negated)
      return known.get();
  return all.emplace_back(std::make_unique<Comparer>(c)).get();
}

const Comparer& comparer_of(const Instruction& in) {
  return *reinterpret_cast<const Comparer*>(in.immediate);
}

Mask combined(const Comparer& c, Mask m, Mask other) {
  if (c.negated) other = ~other;
  return c.combine == 0 ? m & other : c.combine == 1 ? m | other : m ^ other;
}

// p = a ? b (combined with c); q = not that comparison (combined with c). Of pairs, p is the low
// half and q the high one.
void run_setp(Warp& w, const Instruction& in, Mask m) {
  const Comparer& c = comparer_of(in);
  Mask defined = w.defined(in.r[2]) & w.defined(in.r[3]);
  Mask p = c.run(w, in.r[2], in.r[3], c.flush, 0);
  Mask q = in.mode ? c.run(w, in.r[2], in.r[3], c.flush, 1) : ~p;
  if (c.combine >= 0) {
    const Mask other = w.predicate(in.r[4]);
    defined &= w.defined(in.r[4]);
    p = combined(c, p, other);
    q = combined(c, q, other);
  }
  w.put_predicate(in.r[0], m, p, defined);
  if (in.r[1]) w.put_predicate(in.r[1], m, q, defined);
}

const std::initializer_list<Type> comparable = {
    Type::b16, Type::b32, Type::b64,  Type::u16,   Type::u32,    Type::u64, Type::s16, Type::s32,
    Type::s64, Type::f16, Type::bf16, Type::f16x2, Type::bf16x2, Type::f32, Type::f64};

bool is_pair(Type t) { return t == Type::f16x2 || t == Type::bf16x2; }

void check_comparison(const Decoder& d, Type t, size_t c) {
  const bool ordering = c == lo || c == ls || c == hi || c == hs;
  if (is_floating(t) ? ordering : c >= equ) d.fail("the comparison is not for its type");
  if (is_bits(t) && c > ne) d.fail("bits are equal or not");
}

void setp(Decoder& d) {
  const size_t c = take_comparison(d);
  const auto combine = d.try_of({"and", "or", "xor"});
  const bool flush = d.take("ftz");
  const Type t = d.take_type(comparable);
  check_comparison(d, t, c);
  d.dest_pair(Type::pred, Type::pred);
  d.source(t);
  d.source(t);
  if (combine) d.source_predicate();
  d.out.mode = is_pair(t);
  d.out.immediate = reinterpret_cast<int64_t>(
      intern({find_compare(t, c), flush, combine ? static_cast<int>(*combine) : -1, d.negated}));
  d.out.run = run_setp;
}

// d = a ? b as a number: all ones, or 1.0.
void run_set(Warp& w, const Instruction& in, Mask m) {
  const Comparer& c = comparer_of(in);
  Mask defined = w.defined(in.r[1]) & w.defined(in.r[2]);
  Mask low = c.run(w, in.r[1], in.r[2], c.flush, 0), high = 0;
  if (in.r[1].width == 4 && in.count == 2) high = c.run(w, in.r[1], in.r[2], c.flush, 1);
  if (c.combine >= 0) {
    low = combined(c, low, w.predicate(in.r[3]));
    high = combined(c, high, w.predicate(in.r[3]));
    defined &= w.defined(in.r[3]);
  }
  const auto type = static_cast<Type>(in.mode);
  const uint64_t yes = type == Type::f32                            ? 0x3f800000u
                       : type == Type::f16 || type == Type::f16x2   ? 0x3c00u
                       : type == Type::bf16 || type == Type::bf16x2 ? 0x3f80u
                                                                    : ~uint64_t{0};
  for (unsigned i = 0; i < warp_size; ++i)
    if (m >> i & 1)
      w.put_lane(in.r[0], i,
                 (low >> i & 1 ? yes : 0) | (in.count == 2 && high >> i & 1 ? yes << 16 : 0),
                 defined >> i & 1);
}

void set(Decoder& d) {
  const size_t c = take_comparison(d);
  const auto combine = d.try_of({"and", "or", "xor"});
  const bool flush = d.take("ftz");
  const Type result = d.take_type({Type::u16, Type::s16, Type::u32, Type::s32, Type::f32, Type::f16,
                                   Type::bf16, Type::f16x2, Type::bf16x2});
  const Type t = d.take_type(comparable);
  check_comparison(d, t, c);
  if (is_pair(t) != is_pair(result) && !(is_pair(t) && width_of(result) == 4))
    d.fail("a pair gives a pair");
  if (is_pair(t) && !is_pair(result)) d.fail("the interpreter knows pairs that give pairs alone");
  d.dest(result);
  d.source(t);
  d.source(t);
  if (combine) d.source_predicate();
  d.out.mode = static_cast<uint8_t>(result);
  d.out.count = is_pair(t) ? 2 : 1;
  d.out.immediate = reinterpret_cast<int64_t>(
      intern({find_compare(t, c), flush, combine ? static_cast<int>(*combine) : -1, d.negated}));
  d.out.run = run_set;
}

// d = p ? a : b. What is not chosen need not be defined.
template <class T>
void run_selp(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<T>(in.r[1]), b = w.get<T>(in.r[2]);
  const Mask p = w.predicate(in.r[3]);
  Lanes<T> r;
  for (unsigned i = 0; i < warp_size; ++i) r.v[i] = p >> i & 1 ? a.v[i] : b.v[i];
  const Mask defined = ((p & w.defined(in.r[1])) | (~p & w.defined(in.r[2]))) & w.defined(in.r[3]);
  w.put(in.r[0], m, r, defined);
}

const std::initializer_list<Type> selectable = {Type::b16, Type::b32, Type::b64, Type::u16,
                                                Type::u32, Type::u64, Type::s16, Type::s32,
                                                Type::s64, Type::f32, Type::f64};

void selp(Decoder& d) {
  const Type t = d.take_type(selectable);
  d.dest(t);
  d.source(t);
  d.source(t);
  d.source_predicate();
  if (d.negated) d.fail("negates its predicate");
  d.out.run = width_of(t) == 2   ? run_selp<uint16_t>
              : width_of(t) == 4 ? run_selp<uint32_t>
                                 : run_selp<uint64_t>;
}

// d = c >= 0 ? a : b
template <class T, class C>
Run slct_lanes() {
  return lanes<T, T, T, C>([](uint8_t flush, T a, T b, C c) {
    if constexpr (std::is_same_v<C, float>)
      if (flush) c = flushed(c);
    return c >= 0 ? a : b;
  });
}

void slct(Decoder& d) {
  d.out.mode = d.take("ftz");
  const Type t = d.take_type(selectable), c = d.take_type({Type::s32, Type::f32});
  d.dest(t);
  d.source(t);
  d.source(t);
  d.source(c);
  const auto pick = [c](auto x) {
    using T = decltype(x);
    return c == Type::f32 ? slct_lanes<T, float>() : slct_lanes<T, int32_t>();
  };
  d.out.run = width_of(t) == 2   ? pick(uint16_t{})
              : width_of(t) == 4 ? pick(uint32_t{})
                                 : pick(uint64_t{});
}

template <class T>
bool has_property(uint8_t property, T x) {
  switch (property) {
    case 0:
      return std::isfinite(x);
    case 1:
      return std::isinf(x);
    case 2:
      return !std::isnan(x);
    case 3:
      return std::isnan(x);
    case 4:
      return std::isnormal(x) || x == 0;
    default:
      return std::fpclassify(x) == FP_SUBNORMAL;
  }
}

template <class T>
void run_testp(Warp& w, const Instruction& in, Mask m) {
  const auto a = w.get<T>(in.r[1]);
  Mask p = 0;
  for (unsigned i = 0; i < warp_size; ++i)
    p |= static_cast<Mask>(has_property(in.mode, a.v[i])) << i;
  w.put_predicate(in.r[0], m, p, w.defined(in.r[1]));
}

void testp(Decoder& d) {
  d.out.mode = static_cast<uint8_t>(
      d.take_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
  const Type t = d.take_type({Type::f32, Type::f64});
  d.dest_predicate();
  d.source(t);
  d.out.run = t == Type::f32 ? run_testp<float> : run_testp<double>;
}

}  // namespace

void add_compare_opcodes(Opcodes& o) {
  o["setp"] = setp;
  o["set"] = set;
  o["selp"] = selp;
  o["slct"] = slct;
  o["testp"] = testp;
}

}  // namespace gradus::ptx
