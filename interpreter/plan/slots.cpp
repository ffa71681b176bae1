#include "interpreter/plan/slots.h"

#include <numeric>

#include "gradus/error.h"

namespace gradus::interpreter {

int64_t SlotPlan::allocate(int64_t bytes) {
  const int64_t n = std::max(SlotAllocator::rounded(bytes), SlotAllocator::alignment);
  slots_.push_back({next_, n, 0, static_cast<uint32_t>(calls_.size())});
  calls_.push_back(slots_.size() - 1);
  next_ += n;
  live_ += n;
  peak_ = std::max(peak_, live_);
  return slots_.back().address;
}

void SlotPlan::release(int64_t address) {
  const size_t s = find(address);
  GRADUS_CHECK(slots_[s].address == address && slots_[s].to == UINT32_MAX);
  slots_[s].to = static_cast<uint32_t>(calls_.size());
  calls_.push_back(s);
  live_ -= slots_[s].bytes;
}

size_t SlotPlan::find(int64_t address) const {
  const auto after = std::ranges::upper_bound(slots_, address, {}, &Slot::address);
  return static_cast<size_t>(after - slots_.begin()) - 1;
}

int64_t SlotPlan::offset(int64_t address) const {
  if (slots_.empty()) return 0;
  const Slot& s = slots_[find(address)];
  return s.offset + (address - s.address);
}

void SlotPlan::settle() {
  settle_as_they_came();
  if (end_ - peak_ < least_gain || slots_.size() > most_by_size) return;
  for (const bool by_time : {false, true}) {
    const std::vector<Slot> best = slots_;
    const int64_t end = end_;
    settle_largest_first(by_time);
    if (end_ < end) continue;
    slots_ = best;
    end_ = end;
  }
}

void SlotPlan::settle_as_they_came() {
  SlotAllocator allocator;
  for (uint32_t c = 0; c < calls_.size(); ++c) {
    Slot& s = slots_[calls_[c]];
    if (s.from == c)
      s.offset = allocator.allocate(s.bytes);
    else
      allocator.release(s.offset, s.bytes);
  }
  end_ = allocator.end();
}

void SlotPlan::settle_largest_first(bool by_time) {
  std::vector<size_t> order(slots_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t n) {
    const Slot& s = slots_[n];
    const auto end = std::min(s.to, static_cast<uint32_t>(calls_.size()));
    return static_cast<double>(s.bytes) * (by_time ? end - s.from : 1);
  });
  std::vector<size_t> placed;  // by offset
  end_ = 0;
  for (size_t n : order) {
    Slot& s = slots_[n];
    int64_t best = INT64_MAX, at = 0, free = 0;  // the smallest gap; where; the end of what came
    for (size_t p : placed) {
      const Slot& other = slots_[p];
      if (other.to <= s.from || s.to <= other.from) continue;
      if (const int64_t gap = other.offset - free; gap >= s.bytes && gap < best) {
        best = gap;
        at = free;
      }
      free = std::max(free, other.offset + other.bytes);
    }
    s.offset = best == INT64_MAX ? free : at;
    end_ = std::max(end_, s.offset + s.bytes);
    placed.insert(
        std::ranges::upper_bound(placed, s.offset, {}, [&](size_t p) { return slots_[p].offset; }),
        n);
  }
}

}  // namespace gradus::interpreter
