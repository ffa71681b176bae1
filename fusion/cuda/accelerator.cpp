#include "fusion/cuda/accelerator.h"

namespace gradus::fusion::cuda {

namespace {

Address address_of(const std::byte* p) { return reinterpret_cast<Address>(p); }

constexpr StreamNumber recording_stream = 1;

// The device whose launches this thread records; null: none.
const CudaAccelerator*& recording() {
  static constinit thread_local const CudaAccelerator* device = nullptr;
  return device;
}

}  // namespace

CudaAccelerator::CudaAccelerator(std::shared_ptr<Device> device,
                                 std::shared_ptr<const ObjectStore> store, bool atomics)
    : device_(std::move(device)),
      atomics_(atomics),
      compiler_(device_->facts().architecture(), std::move(store)),
      memory_(*device_) {}

CudaAccelerator::~CudaAccelerator() {
  for (const auto& [bytes, memory] : staging_) try {
      device_->free_host(memory);
    } catch (const ResourceError&) {
      // The device is gone.
    }
}

gradus::Device CudaAccelerator::device() const {
  return {DeviceKind::cuda, static_cast<uint16_t>(device_->facts().number)};
}

std::byte* CudaAccelerator::allocate(size_t bytes) {
  return reinterpret_cast<std::byte*>(memory_.allocate(bytes, stage_stream));
}

void CudaAccelerator::release(std::byte* address) noexcept {
  memory_.release(address_of(address), stage_stream);
}

void CudaAccelerator::to_device(std::byte* to, const std::byte* from, size_t bytes) {
  device_->copy_to_device(address_of(to), from, bytes, stage_stream);
}

void CudaAccelerator::to_host(std::byte* to, const std::byte* from, size_t bytes) {
  device_->copy_to_host(to, address_of(from), bytes, stage_stream);
}

StreamNumber CudaAccelerator::stream() const {
  return recording() == this ? recording_stream : stage_stream;
}

std::shared_ptr<const void> CudaAccelerator::record(FunctionRef<void()> work) {
  std::lock_guard guard(recording_mutex_);
  device_->begin_recording(recording_stream);
  recording() = this;
  std::exception_ptr fault;
  try {
    work();
  } catch (...) {
    fault = std::current_exception();
  }
  recording() = nullptr;
  // Also where the work failed: nobody could record again.
  std::shared_ptr<const LoadedGraph> graph;
  try {
    graph = device_->end_recording(recording_stream);
  } catch (...) {
    if (!fault) throw;
  }
  if (fault) std::rethrow_exception(fault);
  return graph;
}

void CudaAccelerator::replay(const std::shared_ptr<const void>& recorded) {
  device_->launch(*static_cast<const LoadedGraph*>(recorded.get()), stage_stream);
}

std::byte* CudaAccelerator::take_staging(size_t bytes) {
  bytes = MemoryCache::rounded(bytes);
  {
    std::lock_guard guard(mutex_);
    if (auto found = staging_.find(bytes); found != staging_.end()) {
      std::byte* memory = found->second;
      staging_.erase(found);
      return memory;
    }
  }
  return static_cast<std::byte*>(device_->allocate_host(bytes));
}

void CudaAccelerator::give_staging(std::byte* memory, size_t bytes) noexcept {
  std::lock_guard guard(mutex_);
  staging_.emplace(MemoryCache::rounded(bytes), memory);
}

}  // namespace gradus::fusion::cuda
