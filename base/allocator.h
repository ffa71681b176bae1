// Where tensor memory comes from. A context owns one; embedders may bring their own.
#pragma once

#include <atomic>
#include <cstddef>

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
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  // Counts a block that lies within something else, as `allocate` and `deallocate` count theirs.
  void count(size_t bytes);
  void uncount(size_t bytes) noexcept;
  size_t live_bytes() const { return live_.load(); }
  size_t peak_bytes() const { return peak_.load(); }
  size_t live_blocks() const { return blocks_.load(); }
  // Number of allocate calls so far.
  size_t calls() const { return calls_.load(); }
  void reset_peak() { peak_ = live_.load(); }

 private:
  std::atomic<size_t> live_{0}, peak_{0}, blocks_{0}, calls_{0};
};

}  // namespace gradus
