// Large blocks that were given back, for whoever asks for as much again. Fresh pages are filled
// with zeros by the system, which takes longer than most of what is computed in them.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace gradus {

// Thread-safe. In a child of fork() it may stay locked, and then keeps nothing more.
class KeptBlocks {
 public:
  static constexpr size_t least_bytes = size_t{128} << 10;
  static constexpr size_t most_bytes = size_t{128} << 20;  // in all
  using Free = void (*)(void* block, size_t bytes);

  explicit KeptBlocks(Free free) : free_(free) {}
  ~KeptBlocks() { drop(most_bytes); }
  KeptBlocks(const KeptBlocks&) = delete;
  // The block of exactly so many bytes that was given last, or null. Then as many bytes of others
  // are freed as their owner is about to allocate: together they never take more than was in use at
  // some time.
  void* take(size_t bytes) noexcept;
  // Keeps the block, if need be in place of those that were given first, or frees it.
  void give(void* block, size_t bytes) noexcept;
  // Frees blocks, those that were given first, until it is so many bytes or none is left.
  void free_oldest(size_t bytes) noexcept;

 private:
  struct Block {
    void* start;
    size_t bytes;
  };
  void drop(size_t bytes) noexcept;
  void remove(size_t at) noexcept;

  const Free free_;
  std::mutex mutex_;
  std::array<Block, 64> blocks_{};  // the first `count_`, in the order in which they were given
  size_t count_ = 0, bytes_ = 0;
};

}  // namespace gradus
