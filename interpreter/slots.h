// Laying out a stage's buffer: slots that live from one instruction to another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

namespace gradus::interpreter {

// Best fit over the holes of a growing buffer, neighbours joined. Logarithmic per call.
class SlotAllocator {
 public:
  static constexpr int64_t alignment = 64;
  static int64_t rounded(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  // Offset of a free slot of so many bytes (at least one alignment unit, so that slots differ).
  int64_t allocate(int64_t bytes) {
    int64_t n = std::max(rounded(bytes), alignment);
    live_ += n;
    peak_ = std::max(peak_, live_);
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
    live_ -= n;
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
  int64_t live() const { return live_; }
  // The largest sum of slots that were alive at once.
  int64_t peak() const { return peak_; }

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
  int64_t end_ = 0, live_ = 0, peak_ = 0;
};

}  // namespace gradus::interpreter
