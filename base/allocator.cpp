#include <bit>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "gradus/context.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/kept_blocks.h"
#include "gradus/error.h"

namespace gradus {

namespace {

// The system's pages cost more than filling them: of 64 MiB some 40 ms, in huge pages 6 ms. Where
// the system has none, the advice changes nothing.
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool keeps = false;
#else
constexpr bool keeps = true;
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

// Large blocks have pages of their own. In the C library's heap those that are given back leave
// gaps that no aligned block fits into: 20 of 20 MB, allocated and freed three times, took 890 MB.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
void* allocate_large(size_t bytes, size_t wanted) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t mapped = bytes + huge_page;
  void* const start =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(start);
  const size_t before = -reinterpret_cast<uintptr_t>(start) % huge_page;
  if (before > 0) munmap(first, before);
  std::byte* const block = first + before;
  if (before < huge_page) munmap(block + bytes, huge_page - before);
#if defined(MADV_HUGEPAGE)
  // What is left at the end stays in small pages: no more memory is taken than was asked for.
  static_cast<void>(madvise(block, wanted / huge_page * huge_page, MADV_HUGEPAGE));
#endif
  return block;
}

void free_large(void* block, size_t bytes) { munmap(block, bytes); }
#else
std::align_val_t alignment_of(size_t bytes) {
  return std::align_val_t(bytes < least_huge_bytes ? Allocator::alignment : huge_page);
}

void* allocate_large(size_t bytes, size_t) {
  return ::operator new(bytes, alignment_of(bytes), std::nothrow);
}

void free_large(void* block, size_t bytes) { ::operator delete(block, alignment_of(bytes)); }
#endif

void* allocate_fresh(size_t bytes, size_t wanted) {
  return bytes < most_padded_bytes ? allocate_padded(bytes) : allocate_large(bytes, wanted);
}

void free_block(void* block, size_t bytes) {
  if (bytes < most_padded_bytes)
    free_padded(block);
  else
    free_large(block, bytes);
}

// Blocks that are kept have few sizes, an eighth more than was asked for at most. Large ones are
// whole pages.
size_t capacity_of(size_t bytes) {
  if (most_padded_bytes == 0 || bytes < KeptBlocks::least_bytes || bytes > SIZE_MAX / 2)
    return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

bool may_be_kept(size_t capacity) { return keeps && capacity >= KeptBlocks::least_bytes; }

}  // namespace

struct HeapAllocator::Kept : KeptBlocks {
  using KeptBlocks::KeptBlocks;
};

HeapAllocator::HeapAllocator() : kept_(new Kept(free_block)) {}

HeapAllocator::~HeapAllocator() { counts_->drop(); }

void* HeapAllocator::allocate(size_t bytes) {
  const size_t capacity = capacity_of(bytes);
  void* block = may_be_kept(capacity) ? kept_->take(capacity) : nullptr;
  if (!block) block = allocate_fresh(capacity, bytes);
  if (!block) {
    kept_->free_oldest(SIZE_MAX);
    block = allocate_fresh(capacity, bytes);
  }
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
  const size_t capacity = capacity_of(bytes);
  if (may_be_kept(capacity))
    kept_->give(block, capacity);
  else
    free_block(block, capacity);
}

}  // namespace gradus
