// A device's memory, kept for whoever wants it next.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "devices/cuda/device.h"
#include "gradus/small_vector.h"

namespace gradus::fusion::cuda {

// What is given back serves later work of the same stream at once, since that comes after all that
// still uses it (where other streams do, it waits for them); no other stream gets it. Sizes are
// rounded up, so that blocks are found again. Of several the one with the lowest address is given:
// who asks alike again gets the same. Thread-safe; the device outlives it.
class MemoryCache {
 public:
  explicit MemoryCache(Device& device) : device_(device) {}
  // Gives everything back to the device. Nothing is in use any more.
  ~MemoryCache();
  MemoryCache(const MemoryCache&) = delete;

  // For work on the stream. Where the device has nothing left, what is kept of other streams and
  // sizes goes back to it first, after a call of `before`: the host then waits for all that use it.
  // Throws OutOfMemory. 0 bytes give an address that nobody may touch.
  Address allocate(
      size_t bytes, StreamNumber stream, FunctionRef<void()> before = [] {});
  // Another stream, too, uses what lies there, until what it has been given when it is released is
  // done. False where this cache has not given out such an address.
  bool record_use(Address address, StreamNumber stream);
  // Of an address that allocate gave.
  void release(Address address);

  struct Statistics {
    size_t used_bytes = 0, kept_bytes = 0;  // given out; waiting
    size_t allocations = 0, reused = 0;     // asked of the device; not
  };
  Statistics statistics() const;

  // What a block of so many bytes takes.
  static size_t rounded(size_t bytes);

 private:
  void give_back_kept();
  Address ask_device(size_t bytes, std::unique_lock<std::mutex>& lock, FunctionRef<void()> before);

  Device& device_;
  mutable std::mutex mutex_;
  struct Used {
    size_t bytes;
    StreamNumber stream;
    SmallVector<StreamNumber, 2> others;
  };
  std::map<Address, Used> used_;
  struct Kept {
    StreamNumber stream;
    size_t bytes;
    Address address;
    auto operator<=>(const Kept&) const = default;
  };
  std::set<Kept> kept_;
  Statistics statistics_;
};

}  // namespace gradus::fusion::cuda
