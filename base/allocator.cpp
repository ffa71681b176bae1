#include "base/allocator.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/error.h"

namespace gradus {

namespace {

// The C library keeps small blocks at hand, but not aligned ones: of those it splits and joins
// chunks each time. So small blocks come from `malloc` with room to align them, the distance to its
// pointer in the bytes before the block. Sanitizers see more if every block is one of theirs.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t most_small_bytes = 0;
#else
constexpr size_t most_small_bytes = 512;
#endif

void* allocate_small(size_t bytes) {
  auto* start = static_cast<std::byte*>(std::malloc(bytes + Allocator::alignment));
  if (!start) return nullptr;
  size_t past = reinterpret_cast<uintptr_t>(start) % Allocator::alignment;
  size_t distance = Allocator::alignment - past;  // at least what malloc aligns to: 16
  std::byte* block = start + distance;
  block[-1] = static_cast<std::byte>(distance);
  return block;
}

void free_small(void* block) {
  auto* p = static_cast<std::byte*>(block);
  std::free(p - static_cast<size_t>(p[-1]));
}

// Large blocks are fresh memory each time, and the system's pages cost more than filling them: of
// 64 MiB some 40 ms, in huge pages 6 ms. Where the system has none, the advice changes nothing.
constexpr size_t huge_page = size_t{2} << 20, least_huge_bytes = 2 * huge_page;

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

// A number of each thread that lives, by its address. A later thread may have it again: the numbers
// that it owns then are nobody else's any more.
const void* this_thread() {
  static constinit thread_local char mine = 0;
  return &mine;
}

// Where no other thread writes: the sum.
int64_t add_alone(std::atomic<int64_t>& number, int64_t n) {
  const int64_t sum = number.load(std::memory_order_relaxed) + n;
  number.store(sum, std::memory_order_release);
  return sum;
}

}  // namespace

void* HeapAllocator::allocate(size_t bytes) {
  void* block = bytes < most_small_bytes ? allocate_small(bytes) : allocate_large(bytes);
  if (!block) throw ResourceError("no memory for a tensor of {} bytes", bytes);
  counts_->add(bytes);
  return block;
}

// Blocks that outlive their allocator leave its counts behind, which are looked after whenever
// another one goes: whoever frees the last block cannot know that it is the last. Once the
// allocator is gone blocks only go, so that what adds up to none stays so, and nobody looks at the
// counts again.
struct HeapAllocator::Counts::Orphans {
  ~Orphans() { free_those_without_blocks(); }
  static void keep(Counts* counts) noexcept {
    counts->next_ = first.load(std::memory_order_relaxed);
    while (!first.compare_exchange_weak(counts->next_, counts, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }
  static void free_those_without_blocks() noexcept {
    Counts* counts = first.exchange(nullptr, std::memory_order_acquire);
    while (counts) drop(std::exchange(counts, counts->next_));
  }
  static inline constinit std::atomic<Counts*> first{nullptr};
};

void HeapAllocator::Counts::drop(Counts* counts) noexcept {
  if (counts->blocks() == 0)
    delete counts;
  else
    Orphans::keep(counts);
}

HeapAllocator::~HeapAllocator() {
  // Also when the module goes.
  static const Counts::Orphans orphans;
  Counts::Orphans::free_those_without_blocks();
  Counts::drop(counts_);
}

bool HeapAllocator::Counts::by_owner() noexcept {
  const void* owner = owner_.load(std::memory_order_relaxed);
  if (owner == this_thread()) [[likely]]
    return true;
  return !owner && owner_.compare_exchange_strong(owner, this_thread(), std::memory_order_relaxed);
}

void HeapAllocator::Counts::add(size_t bytes) {
  const auto n = static_cast<int64_t>(bytes);
  int64_t live = 0;
  if (by_owner()) {
    live = add_alone(own_.bytes, n) + others_.bytes.load(std::memory_order_relaxed);
    add_alone(own_.blocks, 1);
    add_alone(own_.calls, 1);
  } else {
    live = others_.bytes.fetch_add(n, std::memory_order_relaxed) + n +
           own_.bytes.load(std::memory_order_relaxed);
    others_.blocks.fetch_add(1, std::memory_order_relaxed);
    others_.calls.fetch_add(1, std::memory_order_relaxed);
  }
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

// Blocks last: who reads that there is none may free the counts.
void HeapAllocator::Counts::remove(size_t bytes) noexcept {
  const auto n = static_cast<int64_t>(bytes);
  if (by_owner()) {
    add_alone(own_.bytes, -n);
    add_alone(own_.blocks, -1);
  } else {
    others_.bytes.fetch_sub(n, std::memory_order_relaxed);
    others_.blocks.fetch_sub(1, std::memory_order_release);
  }
}

void HeapAllocator::deallocate(void* block, size_t bytes) noexcept {
  counts_->remove(bytes);
  if (bytes < most_small_bytes)
    free_small(block);
  else
    ::operator delete(block, alignment_of(bytes));
}

}  // namespace gradus
