// What a backend is: memory, streams, events, and code for work. The CPU and every device that
// stages run on implement it once; planning and running know no other place.
#pragma once

#include <array>

#include "gradus/communicator.h"
#include "gradus/tensor.h"
#include "work/work.h"

namespace gradus::devices {

// Code for one piece of work, called with its pointers and, where it may find faults, with that of
// 16 bytes of the device's for each, which are 0 before. A fault that is met leaves there a 1 and
// the value that it is about, 64 bits each, and the results mean nothing.
struct DeviceCode {
  using Fault = std::function<Error(int64_t value)>;
  work::Kernel kernel;  // `run` is null where there is none; scratch memory is the device's
  std::vector<Fault> faults;
  // Names of what is being compiled for it: until all of it is there, it is no code.
  std::vector<std::string> later;
  // Whether the code does a call with such parameters; the host does the others. Null: it does all.
  bool (*applies)(const void* parameters, work::KernelScope& scope) = nullptr;
};

// What plans for a backend are made of, and what a run need not do there.
struct PlanTraits {
  // Pointers may be followed here, and work is done, or has thrown, when its call returns: nothing
  // is copied, recorded or waited for. States take memory of their contexts.
  bool host_memory = false;
  bool compiles_ahead = true;  // what is asked for together is compiled on several threads
  bool shares_copies = true;   // an operand that several products rearrange is copied once
  bool reads_edges = true;     // nests read what is joined, padded or picked
  bool has_loops = true;       // a pointwise instruction needs no nest
  bool joins_rows = false;     // a product and the sum of a row may be one call
};

// What the device of a rank tells the devices of the other ranks of its group. Zeros: it exchanges
// nothing without the host.
using ExchangeOffer = std::array<uint64_t, 3>;

// Work of one stream is done in the order in which it is asked for; that of two streams is ordered
// by waiting alone. What a thread asks for is work of its current stream. `std::byte*` of its
// memory is an address there: a number, which nobody follows here. Thread-safe. Whatever fails
// throws ResourceError.
class Backend {
 public:
  // 0 is a stream that every device has, and the current one of a thread that chose no other; 1 is
  // nobody's but the backend's.
  using Stream = uint64_t;

  virtual ~Backend() = default;
  Device device() const { return device_; }
  const PlanTraits& traits() const { return traits_; }
  // How many devices of its kind this machine has.
  virtual size_t count() const = 0;

  virtual Stream stream() const = 0;  // the calling thread's
  virtual void set_stream(Stream stream) = 0;
  // What a stream has been given so far; and what another one, maybe of another device of this
  // kind, is given from now on waits for it. The host does not wait.
  virtual std::shared_ptr<const void> mark(Stream stream) = 0;
  virtual void wait(Stream stream, const std::shared_ptr<const void>& mark) = 0;
  // A stream in the words of other libraries (CUDA: its CUstream), and one of theirs, which waits
  // for what ours has been given so far.
  virtual uintptr_t native_stream(Stream stream) = 0;
  virtual void let_wait(uintptr_t native, Stream for_what) = 0;
  virtual void synchronize(Stream stream) = 0;

  // Memory there, aligned to 256 bytes, for work of the current stream, and of others that are
  // recorded as users. Releasing waits for nothing: work of theirs that was asked for before may
  // still use it. Nothing is recorded of memory that is not this device's own.
  virtual void record_use(const std::byte* address, Stream stream) = 0;
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void release(std::byte* address) noexcept = 0;
  // The host's memory is read before to_device returns, and written when to_host does.
  virtual void to_device(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void to_host(std::byte* to, const std::byte* from, size_t bytes) = 0;
  // From another device's memory: after what this thread's current stream of that was given so far,
  // before what it is given from now on, and in the order of this one's. The host does not wait.
  // False where these two cannot: nothing was done.
  virtual bool copy_from(Backend& other, std::byte* to, const std::byte* from, size_t bytes) = 0;

  // Memory of the host that copies are fast from and to, aligned to 64 bytes.
  virtual std::byte* take_staging(size_t bytes) = 0;
  virtual void give_staging(std::byte* memory, size_t bytes) noexcept = 0;

  // What the work launches, to be launched as one, with the same addresses; null where calls
  // launch nothing. Nothing is run. The work throws nothing but what launches throw, and only
  // launches. Its kernels outlive what is recorded, which may be let go before a replay is done.
  virtual std::shared_ptr<const void> record(FunctionRef<void()> work) = 0;
  virtual void replay(const std::shared_ptr<const void>& recorded) = 0;

  // Exchanges with the devices of other ranks. All ranks of a group make their offers to each
  // other, then call join_exchange with the offers of all ranks, in the order of ranks. From then
  // on `applies` of code for calls of ranks says the same on every rank.
  virtual ExchangeOffer exchange_offer(const std::shared_ptr<Communicator>& ranks) {
    static_cast<void>(ranks);
    return {};
  }
  virtual void join_exchange(std::string_view group, const std::shared_ptr<Communicator>& ranks,
                             std::span<const ExchangeOffer> offers) {
    static_cast<void>(group), static_cast<void>(ranks), static_cast<void>(offers);
  }

  // Code for work of so many arguments. What is not there is compiled before make returns where it
  // is to `wait`; else it is compiled behind, and named.
  virtual DeviceCode make(const work::Work& work, int arguments, bool wait) = 0;
  // Whether what `later` has named is there, or will never be.
  virtual bool is_settled(const std::string& code) const = 0;

 protected:
  Backend(Device device, const PlanTraits& traits) : device_(device), traits_(traits) {}

 private:
  const Device device_;
  const PlanTraits traits_;
};

// The CPU. Its one stream is the calling thread.
const std::shared_ptr<Backend>& cpu();

// Memory of a device's, which the storage keeps.
Ref<Storage> device_storage(const std::shared_ptr<Backend>& device, size_t bytes);
// Uninitialised, contiguous.
Tensor device_tensor(const std::shared_ptr<Backend>& device, const Layout& layout);

// A copy there. `exactly`: with the same strides; else contiguous where that takes less memory.
Tensor to_device(const std::shared_ptr<Backend>& device, const Tensor& t, bool exactly = false);
// A copy of another device's tensor, with the same strides, without the host; see copy_from.
// Undefined where the two cannot, or where it has gaps.
Tensor to_device(const std::shared_ptr<Backend>& device, Backend& other, const Tensor& t);
// A copy in memory of the context's, with the same strides; itself if it is there.
Tensor to_host(Backend& device, const Tensor& t, Context& context);

}  // namespace gradus::devices
