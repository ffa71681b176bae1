// Laying out a stage's buffer: slots that live from one instruction to another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace gradus::interpreter {

// Best fit over the holes of a growing buffer, neighbours joined. Logarithmic per call.
class SlotAllocator {
 public:
  static constexpr int64_t alignment = 64;
  static int64_t rounded(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  // Offset of a free slot of so many bytes (at least one alignment unit, so that slots differ).
  int64_t allocate(int64_t bytes) {
    int64_t n = std::max(rounded(bytes), alignment);
    auto hole = by_size_.lower_bound({n, 0});
    if (hole != by_size_.end()) {
      auto [size, offset] = *hole;
      remove(offset, size);
      if (size > n) add(offset + n, size - n);
      return offset;
    }
    // Grow; a hole at the end becomes part of the slot.
    int64_t offset = end_;
    if (!by_offset_.empty()) {
      auto [last, size] = *by_offset_.rbegin();
      if (last + size == end_) {
        remove(last, size);
        offset = last;
      }
    }
    end_ = offset + n;
    return offset;
  }

  void release(int64_t offset, int64_t bytes) {
    int64_t n = std::max(rounded(bytes), alignment);
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      auto [before, size] = *std::prev(next);
      if (before + size == offset) {
        remove(before, size);
        offset = before;
        n += size;
      }
    }
    next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + n) {
      auto [after, size] = *next;
      remove(after, size);
      n += size;
    }
    add(offset, n);
  }

  int64_t end() const { return end_; }

 private:
  void add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void remove(int64_t offset, int64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }
  std::map<int64_t, int64_t> by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

// The slots of a buffer whose allocations and releases are all known before anything runs: where
// they lie is settled when the last of them is. Until then a slot has an address that no other has.
class SlotPlan {
 public:
  // Its address; what lies within it is at so many bytes from there.
  int64_t allocate(int64_t bytes);
  void release(int64_t address);
  // Where they lie: as they came, each in the best hole of the moment, or the largest first (of
  // bytes, or of bytes by time), each in the best gap between those that live at the same time, if
  // that makes a smaller buffer
  // (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
  void settle();
  // In the buffer, of an address in a slot.
  int64_t offset(int64_t address) const;

  int64_t end() const { return end_; }
  int64_t live() const { return live_; }
  // The largest sum of slots that were alive at once: no buffer is smaller.
  int64_t peak() const { return peak_; }

 private:
  // Many slots are settled as they came: the other way takes time by their square. So are those
  // that little can be gained for.
  static constexpr size_t most_by_size = 4096;
  static constexpr int64_t least_gain = 64 << 10;
  struct Slot {
    int64_t address, bytes;
    int64_t offset = 0;
    uint32_t from, to = UINT32_MAX;  // alive in [from, to), in calls
  };
  size_t find(int64_t address) const;
  void settle_as_they_came();
  void settle_largest_first(bool by_time);  // of bytes, or of bytes by calls

  std::vector<Slot> slots_;    // by address
  std::vector<size_t> calls_;  // slots by their allocations and releases
  int64_t next_ = 0, end_ = 0, live_ = 0, peak_ = 0;
};

}  // namespace gradus::interpreter
