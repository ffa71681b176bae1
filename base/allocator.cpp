#include <cstdint>
#include <cstdlib>
#include <new>

#include "gradus/context.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "gradus/error.h"

namespace gradus {

namespace {

// Large blocks are fresh memory each time, and the system's pages cost more than filling them: of
// 64 MiB some 40 ms, in huge pages 6 ms. Where the system has none, the advice changes nothing.
constexpr size_t huge_page = size_t{2} << 20, least_huge_bytes = 2 * huge_page;

// The C library keeps blocks at hand, but not aligned ones: of small ones it splits and joins
// chunks each time, and a large one that was given back does not serve the next of its size, for it
// looks for one with room to align it (a step that returns new parameters took half as much again).
// So blocks come from `malloc` with that room, and the distance to its pointer in the byte before
// the block. Sanitizers see more if every block is one of theirs.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t most_padded_bytes = 0;
#else
constexpr size_t most_padded_bytes = least_huge_bytes;
#endif

void* allocate_padded(size_t bytes) {
  auto* start = static_cast<std::byte*>(std::malloc(bytes + Allocator::alignment));
  if (!start) return nullptr;
  size_t past = reinterpret_cast<uintptr_t>(start) % Allocator::alignment;
  size_t distance = Allocator::alignment - past;  // at least what malloc aligns to: 16
  std::byte* block = start + distance;
  block[-1] = static_cast<std::byte>(distance);
  return block;
}

void free_padded(void* block) {
  auto* p = static_cast<std::byte*>(block);
  std::free(p - static_cast<size_t>(p[-1]));
}

std::align_val_t alignment_of(size_t bytes) {
  return std::align_val_t(bytes < least_huge_bytes ? Allocator::alignment : huge_page);
}

void* allocate_large(size_t bytes) {
  void* block = ::operator new(bytes, alignment_of(bytes), std::nothrow);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // What is left at the end stays in small pages: no more memory is taken than was asked for.
  if (block && bytes >= least_huge_bytes)
    static_cast<void>(madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE));
#endif
  return block;
}

}  // namespace

void* HeapAllocator::allocate(size_t bytes) {
  void* block = bytes < most_padded_bytes ? allocate_padded(bytes) : allocate_large(bytes);
  if (!block) throw ResourceError("no memory for a tensor of {} bytes", bytes);
  counts_->add(bytes);
  return block;
}

void HeapAllocator::Counts::add(size_t bytes) {
  size_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  holders_.fetch_add(1, std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_relaxed);
}

void HeapAllocator::Counts::remove(size_t bytes) noexcept {
  live_.fetch_sub(bytes, std::memory_order_relaxed);
  drop();
}

void HeapAllocator::deallocate(void* block, size_t bytes) noexcept {
  counts_->remove(bytes);
  if (bytes < most_padded_bytes)
    free_padded(block);
  else
    ::operator delete(block, alignment_of(bytes));
}

}  // namespace gradus
