#include "tensor/storage.h"

namespace gradus {

Storage::Storage(std::shared_ptr<Allocator> allocator, size_t bytes)
    : data_(static_cast<std::byte*>(allocator->allocate(bytes))),
      bytes_(bytes),
      allocator_(std::move(allocator)) {}

Storage::Storage(void* data, size_t bytes, Device device, std::function<void()> release)
    : data_(static_cast<std::byte*>(data)),
      bytes_(bytes),
      device_(device),
      release_(std::move(release)) {}

Storage::~Storage() {
  if (allocator_) allocator_->deallocate(data_, bytes_);
  if (release_) release_();
}

}  // namespace gradus
