#include "gradus/pool.h"

#include <array>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include <pthread.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "gradus/per_thread.h"

namespace gradus::pool {

namespace {

// Sanitizers see more if every block is one of theirs.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool pooling = false;
#else
constexpr bool pooling = true;
#endif

constexpr size_t line = 64, classes = most_bytes / line, page_bytes = size_t{64} << 10;
constexpr uint32_t batch = 64;  // blocks that go between a thread and the others at once

struct Free {
  Free* next;
};

// Blocks of one size, at the start of as many bytes as its alignment: a block finds its page.
struct Page {
  Page *next = nullptr, *before = nullptr;  // of those with something to give
  Free* free = nullptr;
  uint32_t size;        // class
  uint32_t used = 0;    // blocks that are taken
  uint32_t carved = 0;  // blocks that were ever taken; those after them lie in order

  explicit Page(uint32_t c) : size(c) {}
  size_t block_bytes() const { return (size + 1) * line; }
  uint32_t blocks() const {
    return static_cast<uint32_t>((page_bytes - sizeof(Page)) / block_bytes());
  }
  bool full() const { return used == blocks(); }
  void* take() {
    ++used;
    if (free) return std::exchange(free, free->next);
    // From the end: the page's head is no block.
    return reinterpret_cast<std::byte*>(this) + page_bytes - ++carved * block_bytes();
  }
  void give(void* block) {
    --used;
    free = new (block) Free{free};
  }
};
static_assert(sizeof(Page) <= line);

Page* page_of(void* block) {
  return reinterpret_cast<Page*>(reinterpret_cast<uintptr_t>(block) & ~(page_bytes - 1));
}

// What all threads share. Never destroyed: what dies late in the process still gives back.
struct Shared {
  std::mutex mutex;
  std::array<Page*, classes> pages{};  // in use, with something to give: given to last first
  Page* empty = nullptr;               // of any size again
  size_t bytes = 0, empty_bytes = 0;
  bool closed = false;  // the process ends, or the module goes: nothing is kept

  void link(Page* p) {
    Page*& first = pages[p->size];
    p->before = nullptr;
    p->next = first;
    if (first) first->before = p;
    first = p;
  }
  void unlink(Page* p) {
    (p->before ? p->before->next : pages[p->size]) = p->next;
    if (p->next) p->next->before = p->before;
  }
  Page* page_with(uint32_t size) {
    if (Page* p = pages[size]) return p;
    void* memory = empty;
    if (memory) {
      empty = empty->next;
      empty_bytes -= page_bytes;
    } else {
      memory = ::operator new(page_bytes, std::align_val_t(page_bytes));
      bytes += page_bytes;
    }
    auto* p = new (memory) Page(size);
    link(p);
    return p;
  }
  void* take(uint32_t size) {
    Page* p = page_with(size);
    void* block = p->take();
    if (p->full()) unlink(p);
    return block;
  }
  void give(void* block) {
    Page* p = page_of(block);
    if (p->full()) link(p);
    p->give(block);
    if (p->used != 0) return;
    unlink(p);
    p->next = empty;
    empty = p;
    empty_bytes += page_bytes;
    if (closed)
      drop_empty();
    else if (empty_bytes > most_kept_bytes)
      offer(p);
  }
  // The system may have the memory, and takes it when it is short of some: nothing is lost by what
  // comes back in time. The head stays.
  static void offer([[maybe_unused]] Page* p) {
#if defined(__linux__) && defined(MADV_FREE)
    constexpr size_t head = 4096;
    static_cast<void>(
        madvise(reinterpret_cast<std::byte*>(p) + head, page_bytes - head, MADV_FREE));
#endif
  }
  void drop_empty() {
    while (Page* p = empty) {
      empty = p->next;
      empty_bytes -= page_bytes;
      bytes -= page_bytes;
      ::operator delete(p, std::align_val_t(page_bytes));
    }
  }
};

alignas(Shared) std::byte shared_memory[sizeof(Shared)];

// A fork while another thread is at it would leave the child without.
struct Lifetime {
  Lifetime() {
    new (shared_memory) Shared;
    pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); },
                   [] { get().mutex.unlock(); });
  }
  ~Lifetime() {
    std::lock_guard guard(get().mutex);
    get().closed = true;
    get().drop_empty();
  }
  static Shared& get() { return *std::launder(reinterpret_cast<Shared*>(shared_memory)); }
};

Shared& shared() {
  static const Lifetime lifetime;
  return Lifetime::get();
}

// What a thread has at hand, by size.
struct Hand {
  struct List {
    Free* first = nullptr;
    uint32_t count = 0;
  };
  std::array<List, classes> lists{};

  ~Hand() {
    for (List& list : lists) give_back(list, list.count);
  }
  static void give_back(List& list, uint32_t count) {
    Shared& all = shared();
    std::lock_guard guard(all.mutex);
    while (count-- > 0) {
      Free* block = std::exchange(list.first, list.first->next);
      --list.count;
      all.give(block);
    }
  }
  static void fetch(List& list, uint32_t size) {
    Shared& all = shared();
    std::lock_guard guard(all.mutex);
    // The heap may refuse; what came before that is kept.
    for (uint32_t i = 0; i < batch; ++i) {
      list.first = new (all.take(size)) Free{list.first};
      ++list.count;
    }
  }
};

}  // namespace

void* take(size_t bytes) {
  if (!pooling || bytes > most_bytes) return ::operator new(bytes, std::align_val_t(line));
  auto size = static_cast<uint32_t>(bytes == 0 ? 0 : (bytes - 1) / line);
  Hand::List& list = PerThread<Hand>::get().lists[size];
  if (!list.first) [[unlikely]]
    Hand::fetch(list, size);
  --list.count;
  void* block = std::exchange(list.first, list.first->next);
  // The next one is asked for soon, and filled: blocks are given back long after they were used.
  if (list.first) {
    __builtin_prefetch(list.first, 1);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(list.first) + line, 1);
  }
  return block;
}

void give(void* block, size_t bytes) noexcept {
  if (!pooling || bytes > most_bytes) return ::operator delete(block, std::align_val_t(line));
  Hand::List& list = PerThread<Hand>::get().lists[bytes == 0 ? 0 : (bytes - 1) / line];
  list.first = new (block) Free{list.first};
  if (++list.count > 4 * batch) [[unlikely]]
    Hand::give_back(list, batch);
}

size_t pooled_bytes() {
  Shared& all = shared();
  std::lock_guard guard(all.mutex);
  return all.bytes;
}

}  // namespace gradus::pool
