// A counted block of memory with a version.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/allocator.h"
#include "base/pool.h"
#include "base/ref.h"
#include "tensor/device.h"

#pragma GCC visibility push(default)

namespace gradus {

// Counts are thread-safe, the bytes are not. The version rises with every write made through a
// tensor's `mutable_data`; foreign writers (DLPack, NumPy) cannot be watched.
class Storage final : public RefCounted, public pool::Object {
 public:
  // Uninitialised memory from `allocator`. Throws ResourceError.
  Storage(std::shared_ptr<Allocator> allocator, size_t bytes);
  // Foreign memory: `release` is called once, on the thread that drops the last reference.
  Storage(void* data, size_t bytes, Device device, std::function<void()> release);
  ~Storage() override;

  // In a pooled block of `block_bytes`: the storage lies `offset` after its start, `bytes` of
  // elements (counted by `heap`) `data_offset` after it, and what whoever makes it puts between
  // them. The block goes with the storage. Throws ResourceError.
  struct Block {
    size_t block_bytes, offset, data_offset, bytes;
  };
  static Storage* make_pooled(HeapAllocator& heap, const Block& block);
  // Frees a pooled block to which the caller has the only reference, which is gone then.
  void free_pooled() noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  void bump_version() { version_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  Storage(HeapAllocator& heap, std::byte* start, const Block& block);
  void dispose() const override;

  Device device_;
  std::byte* data_;
  size_t bytes_;
  std::atomic<uint64_t> version_{0};
  HeapAllocator::Counts* const counts_ = nullptr;  // of a pooled one
  const uint32_t block_bytes_ = 0, offset_ = 0;    // likewise
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<const std::function<void()>> release_;
};

}  // namespace gradus

#pragma GCC visibility pop
