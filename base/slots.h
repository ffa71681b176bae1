// Items of work that need scratch memory each: split over slots, one worker at a time in each.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "gradus/context.h"

namespace gradus {

// Slots that may run at once: settled once, because their memory is asked for before a run.
inline int64_t most_slots() {
  static const int64_t n = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return n;
}

// Calls body(item, slot) for every item. Which slot takes which item differs from run to run:
// it must change no bit.
template <class F>
void run_in_slots(WorkerPool& workers, int64_t items, F body) {
  const int64_t slots = std::min<int64_t>({items, workers.workers(), most_slots()});
  if (slots <= 1) {
    for (int64_t i = 0; i < items; ++i) body(i, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  workers.parallel_for(slots, [&](int64_t slot) {
    for (int64_t i; (i = next.fetch_add(1)) < items;) body(i, slot);
  });
}

}  // namespace gradus
