#include "base/allocator.h"

#include <new>

#include "base/error.h"

namespace gradus {

void* HeapAllocator::allocate(size_t bytes) {
  void* block = ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
  if (!block) throw ResourceError("no memory for a tensor of {} bytes", bytes);
  size_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  blocks_.fetch_add(1, std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void HeapAllocator::deallocate(void* block, size_t bytes) noexcept {
  live_.fetch_sub(bytes, std::memory_order_relaxed);
  blocks_.fetch_sub(1, std::memory_order_relaxed);
  ::operator delete(block, std::align_val_t(alignment));
}

}  // namespace gradus
