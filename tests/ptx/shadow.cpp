#include "tests/ptx/shadow.h"

#include <algorithm>
#include <cstring>

namespace gradus::ptx {

Race touch(Shadow* bytes, size_t n, Access access, unsigned thread, const Clock& clock) {
  const Toucher self(thread, is_atomic(access));
  for (size_t i = 0; i < n; ++i) {
    Shadow& s = bytes[i];
    const bool after_writes = is_ordered(clock, s.written_at, s.writer, thread);
    if (!after_writes && !(self.atomic() && s.writer.atomic()))
      return {true, i, true, s.writer, s.written_at};
    if (writes(access)) {
      const bool after_reads = is_ordered(clock, s.read_at, s.reader, thread);
      if (!after_reads && !(self.atomic() && s.reader.atomic()))
        return {true, i, false, s.reader, s.read_at};
      s.writer = after_writes ? self : s.writer.joined(self);
      s.written_at = clock.now;
    }
    if (reads(access)) {
      // The same thread again: only the time changes.
      const bool after_reads = is_ordered(clock, s.read_at, s.reader, thread);
      s.reader = after_reads ? self : s.reader.joined(self);
      s.read_at = clock.now;
    }
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
