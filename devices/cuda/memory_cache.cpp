#include "devices/cuda/memory_cache.h"

#include <algorithm>
#include <bit>

namespace gradus::fusion::cuda {

// Eighths of a power of two, at least 512 bytes: an eighth is lost at most.
size_t MemoryCache::rounded(size_t bytes) {
  constexpr size_t least = 512;
  if (bytes <= least) return least;
  const size_t step = std::max(std::bit_floor(bytes - 1) / 8, least);
  return (bytes + step - 1) / step * step;
}

MemoryCache::~MemoryCache() {
  for (const Kept& k : kept_) try {
      device_.free(k.address);
    } catch (const ResourceError&) {
      // The device is gone, and its memory with it.
    }
}

// Each stream's work on it is waited for.
void MemoryCache::give_back_kept() {
  std::set<StreamNumber> streams;
  for (const Kept& k : kept_) streams.insert(k.stream);
  for (StreamNumber s : streams) device_.synchronize(s);
  for (const Kept& k : kept_) {
    device_.free(k.address);
    statistics_.kept_bytes -= k.bytes;
  }
  kept_.clear();
}

// `before` may wait for other ranks, and these for threads of this process that release memory.
Address MemoryCache::ask_device(size_t bytes, std::unique_lock<std::mutex>& lock,
                                FunctionRef<void()> before) {
  ++statistics_.allocations;
  try {
    return device_.allocate(bytes);
  } catch (const OutOfMemory&) {
    if (kept_.empty()) throw;
  }
  lock.unlock();
  before();
  lock.lock();
  give_back_kept();
  return device_.allocate(bytes);
}

Address MemoryCache::allocate(size_t bytes, StreamNumber stream, FunctionRef<void()> before) {
  bytes = rounded(bytes);
  std::unique_lock lock(mutex_);
  Address address;
  const auto found = kept_.lower_bound({stream, bytes, 0});
  if (found != kept_.end() && found->stream == stream && found->bytes == bytes) {
    address = found->address;
    kept_.erase(found);
    statistics_.kept_bytes -= bytes;
    ++statistics_.reused;
  } else {
    address = ask_device(bytes, lock, before);
  }
  used_.emplace(address, Used{bytes, stream, {}});
  statistics_.used_bytes += bytes;
  return address;
}

bool MemoryCache::record_use(Address address, StreamNumber stream) {
  std::lock_guard guard(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) return false;
  Used& used = found->second;
  if (stream != used.stream && !std::ranges::count(used.others, stream))
    used.others.push_back(stream);
  return true;
}

void MemoryCache::release(Address address) {
  std::lock_guard guard(mutex_);
  const auto found = used_.find(address);
  GRADUS_CHECK(found != used_.end());
  const Used used = std::move(found->second);
  used_.erase(found);
  statistics_.used_bytes -= used.bytes;
  try {
    for (StreamNumber other : used.others) device_.wait(used.stream, *device_.mark(other));
  } catch (const ResourceError&) {
    return;  // the device is gone, and its memory with it
  }
  kept_.insert({used.stream, used.bytes, address});
  statistics_.kept_bytes += used.bytes;
}

MemoryCache::Statistics MemoryCache::statistics() const {
  std::lock_guard guard(mutex_);
  return statistics_;
}

}  // namespace gradus::fusion::cuda
