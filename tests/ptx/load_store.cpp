// ld and st, of one value or several.
#include <algorithm>
#include <bit>

#include "gradus/error.h"
#include "tests/ptx/access.h"
#include "tests/ptx/lanes.h"
#include "tests/ptx/qualifiers.h"

namespace gradus::ptx {

namespace {

uint64_t sign_extended(uint64_t x, unsigned width) {
  const unsigned shift = 64 - 8 * width;
  return static_cast<uint64_t>(static_cast<int64_t>(x << shift) >> shift);
}

// r[0 .. count) are the results, then the address.
void run_load(Warp& w, const Instruction& in, Mask m) {
  const Reg address = in.r[in.count];
  w.need(address, m, "the address");
  const unsigned width = width_of(in.type), bytes = width * in.count;
  const bool extend = is_signed(in.type) && width < 8;
  for (Mask left = m; left; left &= left - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(left));
    const uint64_t at = address_of(w, in, address, i);
    const Target t = locate(w, i, in.space, at, bytes, in.access);
    for (unsigned k = 0; k < in.count; ++k) {
      uint64_t x = 0;
      std::memcpy(&x, t.data + size_t{k} * width, width);
      if (extend) x = sign_extended(x, width);
      const uint8_t* d = t.defined + size_t{k} * width;
      const bool defined = std::all_of(d, d + width, [](uint8_t b) { return b; });
      if (t.strict && !defined)
        w.fault(i, fmt::format("load of {} bytes at {} address {:#x}, which was never written",
                               width, name_of(in.space), at + size_t{k} * width));
      w.put_lane(in.r[k], i, x, defined);
    }
  }
}

// A load that caches may serve all through the kernel: nobody may write there while it runs.
void run_load_nc(Warp& w, const Instruction& in, Mask m) {
  const Reg address = in.r[in.count];
  w.need(address, m, "the address");
  const unsigned bytes = width_of(in.type) * in.count;
  for (unsigned i = 0; i < warp_size; ++i) {
    if (!(m >> i & 1)) continue;
    const uint64_t at = address_of(w, in, address, i);
    Region* r = w.block().grid().memory.find(at);
    if (!r || bytes > r->size() - (at - r->base)) continue;  // the load itself finds that
    for (unsigned b = 0; b < bytes; ++b)
      if (r->shadow[at - r->base + b].written_at >= w.block().clock().launch)
        w.fault(i, fmt::format("load with .nc of global address {:#x}, which this launch wrote",
                               at + b));
  }
  run_load(w, in, m);
}

// r[0] is the address, then come the values.
void run_store(Warp& w, const Instruction& in, Mask m) {
  w.need(in.r[0], m, "the address");
  const unsigned width = width_of(in.type), bytes = width * in.count;
  for (Mask left = m; left; left &= left - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(left));
    const Target t = locate(w, i, in.space, address_of(w, in, in.r[0], i), bytes, in.access);
    for (unsigned k = 0; k < in.count; ++k) {
      const Reg value = in.r[1 + k];
      const bool defined = w.defined(value) >> i & 1;
      if (t.strict && !defined) w.need(value, Mask{1} << i, "the value that is stored");
      const uint64_t x = w.lane(value, i);
      std::memcpy(t.data + size_t{k} * width, &x, width);
      std::memset(t.defined + size_t{k} * width, defined, width);
    }
  }
}

const std::initializer_list<Type> storable = {Type::b8,  Type::b16, Type::b32, Type::b64, Type::u8,
                                              Type::u16, Type::u32, Type::u64, Type::s8,  Type::s16,
                                              Type::s32, Type::s64, Type::f32, Type::f64};

void ld(Decoder& d) {
  const Qualifiers q = take_qualifiers(d);
  if (q.non_coherent && q.space != Space::global) d.fail(".nc is for .global");
  d.out.count = q.count;
  d.out.type = d.take_type(storable);
  d.out.space = q.space;
  d.out.access = q.strong ? Access::atomic_load : Access::load;
  if (width_of(d.out.type) * d.out.count > 16) d.fail("loads 16 bytes at most");
  d.wide_dests(d.out.type, q.count);
  d.address(q.space);
  if (q.cache_hint) d.next_operand();
  d.out.run = q.non_coherent ? run_load_nc : run_load;
}

void st(Decoder& d) {
  const Qualifiers q = take_qualifiers(d);
  if (q.space == Space::constant || q.non_coherent) d.fail("does not write there");
  d.out.count = q.count;
  d.out.type = d.take_type(storable);
  d.out.space = q.space;
  d.out.access = q.strong ? Access::atomic_store : Access::store;
  if (width_of(d.out.type) * d.out.count > 16) d.fail("stores 16 bytes at most");
  d.address(q.space);
  d.wide_sources(d.out.type, q.count);
  if (q.cache_hint) d.next_operand();
  d.out.run = run_store;
}

// A hint, and none of an address that would fault.
void prefetch(Decoder& d) {
  const Qualifiers q = take_qualifiers(d);
  d.address(q.space);
  d.out.run = [](Warp&, const Instruction&, Mask) {};
}

}  // namespace

void add_memory_opcodes(Opcodes& o) {
  o["ld"] = ld;
  o["ldu"] = ld;
  o["st"] = st;
  o["prefetch"] = prefetch;
  o["prefetchu"] = prefetch;
}

}  // namespace gradus::ptx
