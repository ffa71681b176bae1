#include "base/kept_blocks.h"

#include <algorithm>

namespace gradus {

void* KeptBlocks::take(size_t bytes) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return nullptr;
  for (size_t i = count_; i-- > 0;)
    if (blocks_[i].bytes == bytes) {
      void* const block = blocks_[i].start;
      remove(i);
      return block;
    }
  drop(bytes);
  return nullptr;
}

void KeptBlocks::give(void* block, size_t bytes) noexcept {
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && bytes <= most_bytes) {
      if (bytes_ + bytes > most_bytes) drop(bytes_ + bytes - most_bytes);
      if (count_ == blocks_.size()) drop(1);
      blocks_[count_++] = {block, bytes};
      bytes_ += bytes;
      return;
    }
  }
  free_(block, bytes);
}

void KeptBlocks::free_oldest(size_t bytes) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) drop(bytes);
}

void KeptBlocks::drop(size_t bytes) noexcept {
  for (size_t freed = 0; freed < bytes && count_ > 0;) {
    const Block oldest = blocks_[0];
    remove(0);
    free_(oldest.start, oldest.bytes);
    freed += oldest.bytes;
  }
}

void KeptBlocks::remove(size_t at) noexcept {
  bytes_ -= blocks_[at].bytes;
  std::copy(blocks_.begin() + at + 1, blocks_.begin() + count_, blocks_.begin() + at);
  --count_;
}

}  // namespace gradus
