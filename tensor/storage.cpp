#include <new>

#include "gradus/error.h"
#include "gradus/tensor.h"

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

Storage::Storage(HeapAllocator& heap, std::byte* start, const Block& block)
    : data_(start + block.data_offset),
      bytes_(block.bytes),
      counts_(&heap.counts()),
      block_bytes_(static_cast<uint32_t>(block.block_bytes)),
      offset_(static_cast<uint32_t>(block.offset)) {}

Storage* Storage::make_pooled(HeapAllocator& heap, const Block& block) {
  std::byte* start = nullptr;
  try {
    start = static_cast<std::byte*>(pool::take(block.block_bytes));
  } catch (const std::bad_alloc&) {
    throw ResourceError("no memory for a tensor of {} bytes", block.bytes);
  }
  heap.counts().add(block.bytes);
  return new (start + block.offset) Storage(heap, start, block);
}

Storage::~Storage() {
  if (allocator_) allocator_->deallocate(data_, bytes_);
  if (release_) (*release_)();
}

void Storage::dispose() const {
  if (counts_)
    const_cast<Storage*>(this)->free_pooled();
  else
    delete this;
}

// Such a storage owns nothing but its block.
void Storage::free_pooled() noexcept {
  counts_->remove(bytes_);
  pool::give(reinterpret_cast<std::byte*>(this) - offset_, block_bytes_);
}

}  // namespace gradus
