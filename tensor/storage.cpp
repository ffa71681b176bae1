#include "tensor/storage.h"

#include <new>

#include "base/error.h"

namespace gradus {

Storage::Storage(std::shared_ptr<Allocator> allocator, size_t bytes)
    : data_(static_cast<std::byte*>(allocator->allocate(bytes))),
      bytes_(bytes),
      allocator_(std::move(allocator)) {}

Storage::Storage(void* data, size_t bytes, Device device, std::function<void()> release)
    : device_(device),
      data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      release_(release ? std::make_unique<const std::function<void()>>(std::move(release))
                       : nullptr) {}

Storage::Storage(Pooled, const std::shared_ptr<Allocator>& allocator, size_t data_offset,
                 size_t bytes)
    : pooled_(true),
      data_(reinterpret_cast<std::byte*>(this) + data_offset),
      bytes_(bytes),
      allocator_(allocator) {}

Storage* Storage::make_pooled(const std::shared_ptr<Allocator>& allocator, HeapAllocator& heap,
                              size_t data_offset, size_t bytes) {
  void* block = nullptr;
  try {
    block = pool::take(data_offset + bytes);
  } catch (const std::bad_alloc&) {
    throw ResourceError("no memory for a tensor of {} bytes", bytes);
  }
  heap.count(bytes);
  return new (block) Storage(Pooled(), allocator, data_offset, bytes);
}

Storage::~Storage() {
  if (allocator_ && !pooled_) allocator_->deallocate(data_, bytes_);
  if (release_) (*release_)();
}

void Storage::dispose() const {
  if (!pooled_) {
    delete this;
    return;
  }
  auto* self = const_cast<Storage*>(this);
  size_t whole = static_cast<size_t>(data_ - reinterpret_cast<std::byte*>(self)) + bytes_;
  static_cast<HeapAllocator&>(*allocator_).uncount(bytes_);
  self->~Storage();
  pool::give(self, whole);
}

}  // namespace gradus
