// A double of NCCL whose ranks are devices of the interpreter's, each of which a thread uses. A
// call is done when all ranks have made it, not before: until then it is in progress, as on a GPU.
// It checks what it is given as the library's header says it must be.
#pragma once

#include <condition_variable>
#include <map>
#include <string>
#include <vector>

#include "devices/cuda/exchanges.h"
#include "tests/cuda/device.h"

namespace gradus::fusion::test {

struct ExchangeDouble {
  std::mutex mutex;  // of all below, of communicators and of what devices have in progress
  std::condition_variable changed;
  std::vector<std::string> calls;   // that all ranks of a group have made: "all_gather"
  std::vector<std::string> faults;  // what of a call the library would not take
  int open = 0;                     // communicators that nobody has ended
  int aborted = 0;
  // What goes wrong, by the number of the device: the status of its next call, or of its
  // communicator from then on.
  std::map<int, int> status_of_call, status_of_group;
  int status_of_join = 0;
  int status_of_id = 0;
};

// The one that the table's functions work on. Tests run one at a time.
ExchangeDouble& exchange_double();
// Its functions.
const cuda::ExchangeTable& exchange_double_table();

// A device whose streams wait for calls of the double that they were given.
class RankDevice final : public InterpretedDevice {
 public:
  explicit RankDevice(int number, bool has_nccl = true);

  const cuda::ExchangeTable* exchange_table() override {
    return has_nccl_ ? &exchange_double_table() : nullptr;
  }
  void set_id(uint64_t id) { facts_.id = {id, 0}; }
  // The calling thread's current device is the one that was last asked for a stream's name.
  uintptr_t native(cuda::StreamNumber n) override;
  std::shared_ptr<const cuda::StreamMark> mark(cuda::StreamNumber) override;
  bool is_done(const cuda::StreamMark&) override;
  void copy_to_device(cuda::Address to, const void* from, size_t bytes,
                      cuda::StreamNumber n) override;
  void copy_to_host(void* to, cuda::Address from, size_t bytes, cuda::StreamNumber n) override;
  void synchronize(cuda::StreamNumber n) override;
  using InterpretedDevice::launch;
  void launch(const cuda::LoadedCode& code, const cuda::LaunchPlan::Launch& launch,
              cuda::StreamNumber n) override;

  // Of the double, which copies beside the streams.
  std::vector<std::byte> read(cuda::Address from, size_t bytes);
  void write(cuda::Address to, const std::vector<std::byte>& bytes);
  size_t given = 0, done = 0;         // calls
  std::atomic<bool> computes{false};  // streams are at work that is before all marks

 private:
  void finish_calls();
  const bool has_nccl_;
};

}  // namespace gradus::fusion::test
