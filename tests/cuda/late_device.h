// A device that does as late as it may what its streams are given: when the host wants something of
// a stream, or a stream that the host wants something of waits for another. Work that nobody
// ordered is therefore not done when it is needed, and memory that was let go too early is
// another's by then: a missing synchronisation shows as a wrong number.
#pragma once

#include <deque>
#include <functional>

#include "tests/cuda/device.h"

namespace gradus::fusion::test {

class LateDevice final : public InterpretedDevice {
 public:
  explicit LateDevice(int number) : InterpretedDevice(size_t{1} << 30, number) {}

  void copy_to_device(cuda::Address to, const void* from, size_t bytes,
                      cuda::StreamNumber) override;
  void copy_to_host(void* to, cuda::Address from, size_t bytes, cuda::StreamNumber) override;
  bool copy_from(cuda::Device& other, cuda::Address to, cuda::Address from, size_t bytes,
                 cuda::StreamNumber) override;
  void synchronize(cuda::StreamNumber) override;
  std::shared_ptr<const cuda::StreamMark> mark(cuda::StreamNumber) override;
  void wait(cuda::StreamNumber, const cuda::StreamMark&) override;
  bool is_done(const cuda::StreamMark&) override;
  // Streams of other libraries are numbers that ours have not.
  void let_wait(uintptr_t native, cuda::StreamNumber) override;
  void launch(const cuda::LoadedCode& code, const cuda::LaunchPlan::Launch& launch,
              cuda::StreamNumber) override;
  void launch(const cuda::LoadedGraph& graph, cuda::StreamNumber) override;
  void multiply(const cuda::Product& product, cuda::Address a, cuda::Address b, cuda::Address row,
                cuda::Address c, cuda::Address workspace, cuda::StreamNumber) override;
  void convolve(const cuda::Convolution& convolution, cuda::Address first, cuda::Address second,
                cuda::Address result, cuda::Address workspace, cuda::StreamNumber) override;

  // How many launches a stream was given so far.
  size_t launches_on(cuda::StreamNumber n);

 private:
  struct Queue {
    std::deque<std::function<void()>> waiting;
    size_t given = 0, done = 0, launches = 0;
  };
  struct Mark;
  void give(cuda::StreamNumber n, std::function<void()> work);
  void run(cuda::StreamNumber n, size_t up_to);
  void run_all(cuda::StreamNumber n) { run(n, SIZE_MAX); }
  std::map<cuda::StreamNumber, Queue> queues_;
};

}  // namespace gradus::fusion::test
