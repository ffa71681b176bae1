#include "tests/ptx/shadow.h"

#include <algorithm>
#include <cstring>

namespace gradus::ptx {

namespace {

// The earlier accesses of one kind to a byte, with this one.
struct Record {
  uint32_t& time;
  Toucher& who;
};

void note(Record r, Toucher self, unsigned thread, const Clock& clock) {
  if (is_synchronised(clock, r.time, r.who, thread)) {
    r.who = self;  // whoever races with the earlier ones from now on races with this one, too
  } else if (r.time < clock.block) {
    // No barrier of this block orders those of another: they stay what is remembered.
    r.who = Toucher::all(r.who.atomic() && self.atomic());
    return;
  } else {
    r.who = r.who.joined(self);
  }
  r.time = clock.now;
}

bool conflicts(Record r, Toucher self, unsigned thread, const Clock& clock) {
  return !(r.who.atomic() && self.atomic()) && !is_synchronised(clock, r.time, r.who, thread) &&
         !is_own(clock, r.time, r.who, thread);
}

}  // namespace

Race touch(Shadow* bytes, size_t n, Access access, unsigned thread, const Clock& clock) {
  const Toucher self(thread, is_atomic(access));
  for (size_t i = 0; i < n; ++i) {
    const Record written{bytes[i].written_at, bytes[i].writer};
    const Record read{bytes[i].read_at, bytes[i].reader};
    if (conflicts(written, self, thread, clock)) return {true, i, true, written.who, written.time};
    if (writes(access)) {
      if (conflicts(read, self, thread, clock)) return {true, i, false, read.who, read.time};
      note(written, self, thread, clock);
    }
    if (reads(access)) note(read, self, thread, clock);
  }
  return {};
}

bool Region::is_defined(uint64_t offset, size_t n) const {
  const uint8_t* d = defined.data() + offset;
  if (n == 4) {
    uint32_t four;
    std::memcpy(&four, d, 4);
    return four == 0x01010101u;
  }
  return std::all_of(d, d + n, [](uint8_t x) { return x; });
}

void Region::reset(uint64_t bytes) {
  data.assign(bytes, std::byte{0xcd});
  defined.assign(bytes, 0);
  shadow.assign(bytes, Shadow{});
}

}  // namespace gradus::ptx
