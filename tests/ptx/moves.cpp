// mov, and addresses between state spaces.
#include "tests/ptx/block.h"
#include "tests/ptx/lanes.h"

namespace gradus::ptx {

namespace {

Run copy_of(unsigned width) {
  switch (width) {
    case 1:
      return lanes<uint8_t, uint8_t>([](uint8_t a) { return a; });
    case 2:
      return lanes<uint16_t, uint16_t>([](uint16_t a) { return a; });
    case 4:
      return lanes<uint32_t, uint32_t>([](uint32_t a) { return a; });
    default:
      return lanes<uint64_t, uint64_t>([](uint64_t a) { return a; });
  }
}

// d = {a, b, ..}, the first one lowest.
void run_pack(Warp& w, const Instruction& in, Mask m) {
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    uint64_t x = 0;
    bool defined = true;
    for (unsigned k = in.count; k-- > 0;) {
      const Reg part = in.r[1 + k];
      x = x << 8 * part.width | w.lane(part, i);
      defined &= w.defined(part) >> i & 1;
    }
    w.put_lane(in.r[0], i, x, defined);
  }
}

// {a, b, ..} = d
void run_unpack(Warp& w, const Instruction& in, Mask m) {
  const Reg from = in.r[in.count];
  const Mask defined = w.defined(from);
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    uint64_t x = w.lane(from, i);
    for (unsigned k = 0; k < in.count; ++k) {
      w.put_lane(in.r[k], i, x, defined >> i & 1);
      x >>= 8 * in.r[k].width;
    }
  }
}

// The type of each of n parts of a value.
Type part_of(const Decoder& d, Type t, size_t n) {
  const unsigned width = n ? width_of(t) / static_cast<unsigned>(n) : 0;
  if (width * n != width_of(t) || n < 2) d.fail("the parts in braces do not make up its type");
  switch (width) {
    case 1:
      return Type::b8;
    case 2:
      return Type::b16;
    case 4:
      return Type::b32;
    default:
      d.fail("the parts in braces do not make up its type");
  }
}

void mov(Decoder& d) {
  const Type t =
      d.take_type({Type::pred, Type::b16, Type::b32, Type::b64, Type::u16, Type::u32, Type::u64,
                   Type::s16, Type::s32, Type::s64, Type::f16, Type::bf16, Type::f32, Type::f64});
  if (d.operand().kind == Operand::vector) {
    const size_t n = d.operand().items.size();
    d.wide_dests(part_of(d, t, n), static_cast<unsigned>(n));
    d.source(t);
    d.out.count = static_cast<uint8_t>(n);
    d.out.run = run_unpack;
    // A part is as wide as its register, or the parts would not make up the whole.
    for (size_t k = 0; k < n; ++k)
      if (d.out.r[k].width * n != width_of(t)) d.fail("the parts do not make up its type");
    return;
  }
  d.dest(t);
  if (d.operand().kind == Operand::vector) {
    const size_t n = d.operand().items.size();
    d.wide_sources(part_of(d, t, n), static_cast<unsigned>(n));
    d.out.count = static_cast<uint8_t>(n);
    d.out.run = run_pack;
    for (size_t k = 0; k < n; ++k)
      if (d.out.r[1 + k].width * n != width_of(t)) d.fail("the parts do not make up its type");
    return;
  }
  if (t == Type::pred) {
    d.source_predicate();
    if (d.negated) d.fail("negates its operand");
    d.out.run = [](Warp& w, const Instruction& in, Mask m) {
      w.put_predicate(in.r[0], m, w.predicate(in.r[1]), w.defined(in.r[1]));
    };
    return;
  }
  d.source(t);
  d.out.run = copy_of(width_of(t));
}

// The window of generic addresses where a space lies; 0 for what has generic addresses itself.
uint64_t window_of(Space s) {
  return s == Space::shared ? shared_window : s == Space::local ? local_window : 0;
}

Space take_space(Decoder& d) {
  const size_t s = d.take_of({"global", "const", "shared", "local", "param"});
  static constexpr Space spaces[] = {Space::global, Space::constant, Space::shared, Space::local,
                                     Space::param};
  return spaces[s];
}

// To or from a generic address; null pointers stay null.
void cvta(Decoder& d) {
  const bool to = d.take("to");
  const Space s = take_space(d);
  const Type t = d.take_type({Type::u64, Type::b64, Type::u32});
  if (t == Type::u32) d.fail("addresses have 64 bits");
  d.dest(t);
  d.source(t);
  const uint64_t window = window_of(s);
  d.out.mode = to;
  d.out.immediate = static_cast<int64_t>(window);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    const auto a = w.get<uint64_t>(in.r[1]);
    const auto window = static_cast<uint64_t>(in.immediate);
    Lanes<uint64_t> r;
    for (unsigned i = 0; i < warp_size; ++i) r.v[i] = in.mode ? a.v[i] - window : a.v[i] + window;
    w.put(in.r[0], m, r, w.defined(in.r[1]));
  };
}

void isspacep(Decoder& d) {
  const Space s = take_space(d);
  d.dest_predicate();
  d.source(Type::u64);
  d.out.mode = static_cast<uint8_t>(s);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    const auto a = w.get<uint64_t>(in.r[1]);
    const auto space = static_cast<Space>(in.mode);
    Memory& memory = w.block().grid().memory;
    Mask p = 0;
    for (unsigned i = 0; i < warp_size; ++i) {
      const uint64_t x = a.v[i];
      const Region* r = memory.find(x);
      const bool yes = space == Space::shared     ? x - shared_window < window_size
                       : space == Space::local    ? x - local_window < window_size
                       : space == Space::param    ? x - param_window < window_size
                       : space == Space::constant ? r && r->constant
                                                  : r && !r->constant;
      p |= static_cast<Mask>(yes) << i;
    }
    w.put_predicate(in.r[0], m, p, w.defined(in.r[1]));
  };
}

}  // namespace

void add_move_opcodes(Opcodes& o) {
  o["mov"] = mov;
  o["cvta"] = cvta;
  o["isspacep"] = isspacep;
}

}  // namespace gradus::ptx
