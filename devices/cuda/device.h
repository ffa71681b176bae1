// A device as kernels see it: memory, streams, code and launches. One behind the driver, and in
// tests one behind an interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "devices/cuda/convolutions.h"
#include "devices/cuda/devices.h"
#include "devices/cuda/products.h"
#include "fusion/cuda/compiler.h"
#include "fusion/cuda/launch.h"

namespace gradus::fusion::cuda {

using Address = uint64_t;  // in a device's memory

// Of a pointer that a plan has: a device's address that nobody follows.
inline Address address_of(const std::byte* p, int64_t offset = 0) {
  return reinterpret_cast<Address>(p) + static_cast<Address>(offset);
}

// Work on one stream is done in order. 0 is one that every device has.
using StreamNumber = uint32_t;

// Code on a device, as long as it is kept.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
};

// Launches that were recorded, as one. It may be let go while the device does them.
class LoadedGraph {
 public:
  virtual ~LoadedGraph() = default;
};

// What a stream had been given at some moment.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
};

// Thread-safe. Whatever fails throws ResourceError that names the device and what was tried.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;

  // Memory of the device itself, aligned to 256 bytes. Slow: MemoryCache keeps what is freed.
  // OutOfMemory where there is none left. Freeing waits for nothing.
  virtual Address allocate(size_t bytes) = 0;
  virtual void free(Address address) = 0;

  // Memory of the host, pinned, so that copies from and to it are fast; aligned to 64 bytes.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void free_host(void* memory) = 0;

  // In the stream's order. The host's memory is read before copy_to_device returns, and written
  // when copy_to_host does.
  virtual void copy_to_device(Address to, const void* from, size_t bytes, StreamNumber) = 0;
  virtual void copy_to_host(void* to, Address from, size_t bytes, StreamNumber) = 0;
  // From another device, in the order of this one's stream. The host does not wait. False where it
  // is none that this one can copy from.
  virtual bool copy_from(Device& other, Address to, Address from, size_t bytes, StreamNumber) = 0;
  virtual void synchronize(StreamNumber) = 0;

  // What a stream is given from now on waits for a mark, which may be of another device of this
  // kind. The host does not wait.
  virtual std::shared_ptr<const StreamMark> mark(StreamNumber) = 0;
  virtual void wait(StreamNumber, const StreamMark& mark) = 0;
  // Whether the stream has done what it had been given. Returns at once.
  virtual bool is_done(const StreamMark& mark) = 0;
  // The driver's own name of a stream (CUstream), for other libraries: the device is the calling
  // thread's current one from then on. And the same of a stream that is theirs: it waits for what
  // ours has been given.
  virtual uintptr_t native(StreamNumber) = 0;
  virtual void let_wait(uintptr_t native, StreamNumber for_what) = 0;

  virtual std::shared_ptr<const LoadedCode> load(const Code& code) = 0;
  virtual void launch(const LoadedCode& code, const LaunchPlan::Launch& launch, StreamNumber) = 0;

  // Between the two, what this thread launches on the stream is recorded and not run; nothing else
  // is asked of the device by it. The stream is nobody else's. Code is kept by who recorded it.
  virtual void begin_recording(StreamNumber) = 0;
  virtual std::shared_ptr<const LoadedGraph> end_recording(StreamNumber) = 0;
  virtual void launch(const LoadedGraph& graph, StreamNumber) = 0;

  // NVIDIA's library for products, loaded when first asked for; null where there is none.
  virtual const Products* products() = 0;
  // One of its products, see Product::run; the workspace is aligned to 256 bytes.
  virtual void multiply(const Product& product, Address a, Address b, Address row, Address c,
                        Address workspace, StreamNumber) = 0;
  // The same of its library for convolutions; pointers are aligned as Convolution::run wants them.
  virtual const Convolutions* convolutions() = 0;
  virtual void convolve(const Convolution& convolution, Address first, Address second,
                        Address result, Address workspace, StreamNumber) = 0;
  // The functions of NCCL, loaded when first asked for; null where there is no NCCL.
  virtual const ExchangeTable* exchange_table() = 0;
};

class OutOfMemory : public ResourceError {
 public:
  using ResourceError::ResourceError;
};

// The device cuda:`number` behind NVIDIA's driver, the same for all who keep it at a time: so their
// streams are, too. ResourceError where there is none that can be used: it says why, and what to
// do.
std::shared_ptr<Device> open_device(int number);

}  // namespace gradus::fusion::cuda
