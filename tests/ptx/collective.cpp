// Instructions by which the lanes of a warp see one another. Each names the lanes that take part:
// all of them have to come, to the same instruction and with the same mask.
#include <algorithm>
#include <bit>

#include "gradus/error.h"
#include "tests/ptx/block.h"
#include "tests/ptx/lanes.h"

namespace gradus::ptx {

namespace {

unsigned first(Mask m) { return static_cast<unsigned>(std::countr_zero(m)); }

// The lanes of m whose partners are all here; the others wait.
Mask gather(Warp& w, Mask m, Reg mask) {
  w.need(mask, m, "the mask of lanes");
  const auto members = w.get<uint32_t>(mask);
  Mask ready = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    const Mask named = members.v[i];
    if (!(named >> i & 1))
      w.fault(i, fmt::format("the mask {:#010x} lacks the lane itself, {}", named, i));
    if (const Mask absent = named & ~w.live())
      w.fault(i, fmt::format("the mask {:#010x} names lanes that are absent: {}", named,
                             w.where_are(absent)));
    if (named & ~m) continue;
    for (unsigned k = 0; k < warp_size; ++k)
      if ((named >> k & 1) && members.v[k] != named)
        w.fault(i, fmt::format("lanes {} and {} come with the masks {:#010x} and {:#010x}", i, k,
                               named, members.v[k]));
    ready |= Mask{1} << i;
  }
  if (const Mask waiting = m & ~ready) w.hold(waiting);
  return ready;
}

enum Shuffle : uint8_t { shuffle_up, shuffle_down, shuffle_bfly, shuffle_idx };

struct Source {
  unsigned lane;
  bool inside;  // of the segment; else it is the lane's own value
};

Source source_of(uint8_t mode, unsigned lane, uint32_t b, uint32_t c) {
  const unsigned by = b & 31, clamp = c & 31, segment = c >> 8 & 31;
  const unsigned lowest = lane & segment;
  const unsigned bound = lowest | (clamp & ~segment);
  unsigned j;
  bool inside;
  if (mode == shuffle_up) {
    inside = static_cast<int>(lane) - static_cast<int>(by) >= static_cast<int>(bound);
    j = lane - by;
  } else {
    j = mode == shuffle_down   ? lane + by
        : mode == shuffle_bfly ? lane ^ by
                               : lowest | (by & ~segment);
    inside = j <= bound;
  }
  return {inside ? j : lane, inside};
}

// r: result, whether it came from inside, value, b, c, mask.
void run_shuffle(Warp& w, const Instruction& in, Mask m) {
  m = gather(w, m, in.r[5]);
  if (!m) return;
  w.need(in.r[3], m, "the lane of a shuffle");
  w.need(in.r[4], m, "the bounds of a shuffle");
  const auto a = w.get<uint32_t>(in.r[2]), b = w.get<uint32_t>(in.r[3]);
  const auto c = w.get<uint32_t>(in.r[4]), members = w.get<uint32_t>(in.r[5]);
  const Mask from = w.defined(in.r[2]);
  Lanes<uint32_t> r{};
  Mask inside = 0, defined = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    const Source s = source_of(in.mode, i, b.v[i], c.v[i]);
    inside |= static_cast<Mask>(s.inside) << i;
    // From a lane that does not take part comes nothing that is defined.
    if (s.lane >= warp_size || !(members.v[i] >> s.lane & 1)) continue;
    r.v[i] = a.v[s.lane];
    defined |= (from >> s.lane & 1) << i;
  }
  w.put(in.r[0], m, r, defined);
  if (in.r[1]) w.put_predicate(in.r[1], m, inside, all_lanes);
}

void shfl(Decoder& d) {
  if (!d.take("sync")) d.fail("without .sync is not for this generation of devices");
  d.out.mode = static_cast<uint8_t>(d.take_of({"up", "down", "bfly", "idx"}));
  d.take_type({Type::b32});
  d.dest_pair(Type::b32, Type::pred);
  for (int i = 0; i < 4; ++i) d.source(Type::b32);
  d.out.run = run_shuffle;
}

// For each lane that takes part, f(the lanes of its mask).
template <class F>
void by_mask(const Warp& w, Reg mask, Mask m, F f) {
  const auto members = w.get<uint32_t>(mask);
  while (m) {
    const Mask named = members.v[first(m)];
    f(named);
    m &= ~named;
  }
}

enum Vote : uint8_t { vote_all, vote_any, vote_uni, vote_ballot };

// r: result, predicate, mask.
void run_vote(Warp& w, const Instruction& in, Mask m) {
  m = gather(w, m, in.r[2]);
  if (!m) return;
  Mask p = w.predicate(in.r[1]);
  if (in.count) p = ~p;
  by_mask(w, in.r[2], m, [&](Mask named) {
    const bool defined = (named & ~w.defined(in.r[1])) == 0;
    const Mask votes = p & named;
    if (in.mode == vote_ballot) {
      Lanes<uint32_t> r;
      std::fill_n(r.v, warp_size, votes);
      return w.put(in.r[0], named, r, defined ? all_lanes : 0);
    }
    const bool yes = in.mode == vote_all   ? votes == named
                     : in.mode == vote_any ? votes != 0
                                           : votes == 0 || votes == named;
    w.put_predicate(in.r[0], named, yes ? all_lanes : 0, defined ? all_lanes : 0);
  });
}

void vote(Decoder& d) {
  if (!d.take("sync")) d.fail("without .sync is not for this generation of devices");
  d.out.mode = static_cast<uint8_t>(d.take_of({"all", "any", "uni", "ballot"}));
  d.dest(d.take_type({d.out.mode == vote_ballot ? Type::b32 : Type::pred}));
  d.source_predicate();
  d.out.count = d.negated;
  d.source(Type::b32);
  d.out.run = run_vote;
}

// r: lanes, whether all, value, mask.
template <class T>
void run_match(Warp& w, const Instruction& in, Mask m) {
  m = gather(w, m, in.r[3]);
  if (!m) return;
  w.need(in.r[2], m, "the value that is compared");
  const auto a = w.get<T>(in.r[2]);
  const auto members = w.get<uint32_t>(in.r[3]);
  Lanes<uint32_t> r{};
  Mask all = 0;
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    Mask same = 0;
    for (unsigned k = 0; k < warp_size; ++k)
      same |= static_cast<Mask>((members.v[i] >> k & 1) && a.v[k] == a.v[i]) << k;
    const bool whole = same == members.v[i];
    all |= static_cast<Mask>(whole) << i;
    r.v[i] = in.mode ? (whole ? same : 0) : same;
  }
  w.put(in.r[0], m, r, all_lanes);
  if (in.r[1]) w.put_predicate(in.r[1], m, all, all_lanes);
}

void match(Decoder& d) {
  d.out.mode = d.take_of({"any", "all"}) == 1;
  d.take_of({"sync"});
  const Type t = d.take_type({Type::b32, Type::b64});
  d.dest_pair(Type::b32, Type::pred);
  d.source(t);
  d.source(Type::b32);
  d.out.run = t == Type::b32 ? run_match<uint32_t> : run_match<uint64_t>;
}

enum Reduction : uint8_t { reduce_add, reduce_min, reduce_max, reduce_and, reduce_or, reduce_xor };

template <class T>
T reduced(uint8_t mode, T a, T b) {
  switch (mode) {
    case reduce_add:
      return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
    case reduce_min:
      return std::min(a, b);
    case reduce_max:
      return std::max(a, b);
    case reduce_and:
      return a & b;
    case reduce_or:
      return a | b;
    default:
      return a ^ b;
  }
}

// r: result, value, mask.
template <class T>
void run_redux(Warp& w, const Instruction& in, Mask m) {
  m = gather(w, m, in.r[2]);
  if (!m) return;
  w.need(in.r[1], m, "the value that is reduced");
  const auto a = w.get<T>(in.r[1]);
  by_mask(w, in.r[2], m, [&](Mask named) {
    T sum = a.v[first(named)];
    for (unsigned i = first(named) + 1; i < warp_size; ++i)
      if (named >> i & 1) sum = reduced(in.mode, sum, a.v[i]);
    Lanes<T> r;
    std::fill_n(r.v, warp_size, sum);
    w.put(in.r[0], named, r, all_lanes);
  });
}

void redux(Decoder& d) {
  d.take_of({"sync"});
  d.out.mode = static_cast<uint8_t>(d.take_of({"add", "min", "max", "and", "or", "xor"}));
  const Type t = d.take_type({Type::u32, Type::s32, Type::b32});
  d.dest(t);
  d.source(t);
  d.source(Type::b32);
  d.out.run = t == Type::s32 ? run_redux<int32_t> : run_redux<uint32_t>;
}

void activemask(Decoder& d) {
  d.take_type({Type::b32});
  d.dest(Type::b32);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    Lanes<uint32_t> r;
    std::fill_n(r.v, warp_size, m);
    w.put(in.r[0], m, r, all_lanes);
  };
}

// The leader of the lanes of a mask, and whether the lane is it.
void elect(Decoder& d) {
  d.take_of({"sync"});
  d.dest_pair(Type::b32, Type::pred);
  d.source(Type::b32);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    m = gather(w, m, in.r[2]);
    by_mask(w, in.r[2], m, [&](Mask named) {
      Lanes<uint32_t> r;
      std::fill_n(r.v, warp_size, first(named));
      w.put(in.r[0], named, r, all_lanes);
      if (in.r[1]) w.put_predicate(in.r[1], named, Mask{1} << first(named), all_lanes);
    });
  };
}

}  // namespace

void decode_warp_barrier(Decoder& d) {
  d.take_of({"sync"});
  d.source(Type::b32);
  d.out.run = [](Warp& w, const Instruction& in, Mask m) {
    if (gather(w, m, in.r[0])) w.block().clock().pass_warp_barrier(w.number());
  };
}

void add_collective_opcodes(Opcodes& o) {
  o["shfl"] = shfl;
  o["vote"] = vote;
  o["match"] = match;
  o["redux"] = redux;
  o["activemask"] = activemask;
  o["elect"] = elect;
}

}  // namespace gradus::ptx
