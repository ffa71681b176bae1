// Where tensor memory comes from. A context owns one; embedders may bring their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gradus {

// Thread-safe. Blocks are aligned to 64 bytes. An allocator outlives every tensor made from it:
// tensors hold it by shared_ptr.
class Allocator {
 public:
  static constexpr size_t alignment = 64;
  virtual ~Allocator() = default;
  // Throws ResourceError when there is no memory. `bytes` may be zero.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
};

// The default: the C++ heap, with counts of what lives.
class HeapAllocator final : public Allocator {
 public:
  // They live as long as the allocator, or a block that was counted. Thread-safe. The thread that
  // counts first has numbers of its own, which it alone changes: most contexts have one thread that
  // makes small tensors by the million. What is read while another thread counts may be off by
  // what that one is at.
  class Counts {
   public:
    void add(size_t bytes);
    void remove(size_t bytes) noexcept;

   private:
    friend class HeapAllocator;
    struct Numbers {
      std::atomic<int64_t> bytes{0}, blocks{0}, calls{0};
    };
    static void drop(Counts* counts) noexcept;
    bool by_owner() noexcept;
    // One may have freed what another made: only the sum counts.
    int64_t bytes() const { return own_.bytes.load() + others_.bytes.load(); }
    int64_t blocks() const { return own_.blocks.load() + others_.blocks.load(); }

    std::atomic<const void*> owner_{nullptr};  // see this_thread in allocator.cpp
    Numbers own_, others_;
    std::atomic<int64_t> peak_{0};
    Counts* next_ = nullptr;  // of those whose allocator is gone
    struct Orphans;
  };

  HeapAllocator() = default;
  ~HeapAllocator() override;
  HeapAllocator(const HeapAllocator&) = delete;
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  // For blocks that lie within something else, which count as those of `allocate` do.
  Counts& counts() const { return *counts_; }
  size_t live_bytes() const { return static_cast<size_t>(counts_->bytes()); }
  size_t peak_bytes() const { return static_cast<size_t>(counts_->peak_.load()); }
  size_t live_blocks() const { return static_cast<size_t>(counts_->blocks()); }
  // Number of allocate calls so far.
  size_t calls() const {
    return static_cast<size_t>(counts_->own_.calls.load() + counts_->others_.calls.load());
  }
  void reset_peak() { counts_->peak_ = counts_->bytes(); }

 private:
  Counts* const counts_ = new Counts;
};

}  // namespace gradus
