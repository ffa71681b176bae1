// What is known of each byte of memory: whether it was written, and which threads touched it when,
// by which data races are found.
//
// Time counts barriers. A launch runs its blocks one after the other, so a moment says by itself
// which block it belongs to. Two accesses are ordered if they are of one thread, of different
// launches, of one block with a barrier of the block between, or of one warp with a barrier of the
// warp between. Two that are not, one of which writes, and which are not both atomic, are a race.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradus::ptx {

struct Clock {
  uint32_t now = 1;
  uint32_t launch = 1, block = 1, barrier = 1;  // when these began
  std::array<uint32_t, 32> warp{};

  void begin_launch() {
    launch = block = barrier = ++now;
    warp.fill(now);
  }
  void begin_block() {
    block = barrier = ++now;
    warp.fill(now);
  }
  void pass_barrier() { barrier = ++now; }
  void pass_warp_barrier(unsigned w) { warp[w] = ++now; }
};

// Who touched a byte: a thread of its block, several of one warp, or several of several.
class Toucher {
 public:
  constexpr Toucher() = default;
  constexpr Toucher(unsigned thread, bool atomic)
      : code_(static_cast<uint16_t>(thread | (atomic ? atomic_bit : 0u))) {}

  constexpr bool atomic() const { return code_ & atomic_bit; }
  constexpr unsigned who() const { return code_ & ~atomic_bit; }
  constexpr bool is_thread() const { return who() < several; }
  constexpr bool is_warp() const { return who() < everybody; }
  constexpr unsigned warp() const { return is_thread() ? who() / 32 : who() - several; }

  // Those of several blocks, or of several warps.
  static constexpr Toucher all(bool atomic) { return {everybody, atomic}; }

  // Both of them, of one block; atomic if both are.
  constexpr Toucher joined(Toucher o) const {
    Toucher r;
    const uint16_t bit = code_ & o.code_ & atomic_bit;
    if (who() == o.who())
      r.code_ = static_cast<uint16_t>(who());
    else if (is_warp() && o.is_warp() && warp() == o.warp())
      r.code_ = static_cast<uint16_t>(several + warp());
    else
      r.code_ = everybody;
    r.code_ = static_cast<uint16_t>(r.code_ | bit);
    return r;
  }

 private:
  static constexpr unsigned atomic_bit = 0x8000, several = 1024, everybody = 1024 + 32;
  uint16_t code_ = 0;
};

struct Shadow {
  uint32_t written_at = 0, read_at = 0;
  Toucher writer, reader;
};

// Whether a barrier, or the end of a launch, stands between what happened at `time` by `who` and
// what `thread` does now.
inline bool is_synchronised(const Clock& c, uint32_t time, Toucher who, unsigned thread) {
  if (time < c.launch) return true;
  if (time < c.block) return false;
  if (time < c.barrier) return true;
  return who.is_warp() && who.warp() == thread / 32 && time < c.warp[thread / 32];
}

// Whether all of it was done by that thread itself.
inline bool is_own(const Clock& c, uint32_t time, Toucher who, unsigned thread) {
  return time >= c.block && who.is_thread() && who.who() == thread;
}

enum class Access : uint8_t { load, store, atomic_load, atomic_store, update };

inline bool reads(Access a) { return a != Access::store && a != Access::atomic_store; }
inline bool writes(Access a) { return a != Access::load && a != Access::atomic_load; }
inline bool is_atomic(Access a) { return a >= Access::atomic_load; }

// A race with an earlier access, if there is one; and notes this access. `n` bytes.
struct Race {
  bool found = false;
  size_t byte = 0;
  bool earlier_wrote = false;
  Toucher earlier;
  uint32_t time = 0;
};
Race touch(Shadow* bytes, size_t n, Access access, unsigned thread, const Clock& clock);

// Memory with its shadow.
struct Region {
  uint64_t base = 0;
  std::vector<std::byte> data;
  std::vector<uint8_t> defined;  // 1 for each byte that was written
  std::vector<Shadow> shadow;
  bool constant = false;  // .const: programs only read it, by ld.const or generic addresses
  bool read_only = false;

  uint64_t size() const { return data.size(); }
  // The address lies in it; n bytes from there may not.
  bool holds(uint64_t address) const { return address - base < data.size(); }
  bool is_defined(uint64_t offset, size_t n) const;
  // All undefined again, of this size.
  void reset(uint64_t bytes);
};

}  // namespace gradus::ptx
