// A counted block of memory with a version.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/allocator.h"
#include "base/pool.h"
#include "base/ref.h"
#include "tensor/device.h"

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

  // Head of a pooled block: `bytes` of elements lie `data_offset` after its start, counted by
  // `heap`, and what whoever made it put between them. The block goes with the storage. Throws
  // ResourceError.
  static Storage* make_pooled(const std::shared_ptr<Allocator>& allocator, HeapAllocator& heap,
                              size_t data_offset, size_t bytes);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  void bump_version() { version_.fetch_add(1, std::memory_order_acq_rel); }

 private:
  struct Pooled {};
  Storage(Pooled, const std::shared_ptr<Allocator>& allocator, size_t data_offset, size_t bytes);
  void dispose() const override;

  Device device_;
  const bool pooled_ = false;
  std::byte* data_;
  size_t bytes_;
  std::atomic<uint64_t> version_{0};
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<const std::function<void()>> release_;
};

}  // namespace gradus
