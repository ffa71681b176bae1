// Where tensor memory comes from. A context owns one; embedders may bring their own.
#pragma once

#include <atomic>
#include <cstddef>

#pragma GCC visibility push(default)

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
  // They live as long as the allocator, or a block that was counted. Thread-safe.
  class Counts {
   public:
    void add(size_t bytes);
    void remove(size_t bytes) noexcept;

   private:
    friend class HeapAllocator;
    void drop() noexcept {
      if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    std::atomic<size_t> live_{0}, peak_{0}, calls_{0};
    std::atomic<size_t> holders_{1};  // living blocks, and the allocator
  };

  HeapAllocator() = default;
  ~HeapAllocator() override { counts_->drop(); }
  HeapAllocator(const HeapAllocator&) = delete;
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  // For blocks that lie within something else, which count as those of `allocate` do.
  Counts& counts() const { return *counts_; }
  size_t live_bytes() const { return counts_->live_.load(); }
  size_t peak_bytes() const { return counts_->peak_.load(); }
  size_t live_blocks() const { return counts_->holders_.load() - 1; }
  // Number of allocate calls so far.
  size_t calls() const { return counts_->calls_.load(); }
  void reset_peak() { counts_->peak_ = counts_->live_.load(); }

 private:
  Counts* const counts_ = new Counts;
};

}  // namespace gradus

#pragma GCC visibility pop
