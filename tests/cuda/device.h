// Devices for tests: one behind the PTX interpreter, which counts what it is asked for.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "devices/cuda/device.h"
#include "tests/ptx/launch.h"

namespace gradus::fusion::test {

// The launch that a plan gives, by a module's kernel.
ptx::LaunchCounts launch_interpreted(const ptx::Module& module,
                                     const cuda::LaunchPlan::Launch& launch, ptx::Memory& memory,
                                     bool backwards = false);

// What it is asked for is done at once, whatever the stream.
class InterpretedDevice : public cuda::Device {
 public:
  // With so many bytes of memory, of which every allocation takes what it asks for.
  explicit InterpretedDevice(size_t memory_bytes = size_t{1} << 30, int number = 0);

  const cuda::DeviceFacts& facts() const override { return facts_; }
  cuda::Address allocate(size_t bytes) override;
  void free(cuda::Address address) override;
  void* allocate_host(size_t bytes) override;
  void free_host(void* memory) override;
  void copy_to_device(cuda::Address to, const void* from, size_t bytes,
                      cuda::StreamNumber) override;
  void copy_to_host(void* to, cuda::Address from, size_t bytes, cuda::StreamNumber) override;
  bool copy_from(cuda::Device& other, cuda::Address to, cuda::Address from, size_t bytes,
                 cuda::StreamNumber) override;
  void synchronize(cuda::StreamNumber) override { ++synchronized; }
  std::shared_ptr<const cuda::StreamMark> mark(cuda::StreamNumber) override {
    return std::make_shared<cuda::StreamMark>();
  }
  void wait(cuda::StreamNumber, const cuda::StreamMark&) override { ++waits; }
  uintptr_t native(cuda::StreamNumber n) override { return first_native + n; }
  void let_wait(uintptr_t, cuda::StreamNumber) override { ++waits; }
  bool is_done(const cuda::StreamMark&) override { return true; }
  static constexpr uintptr_t first_native = 4096;
  std::shared_ptr<const cuda::LoadedCode> load(const cuda::Code& code) override;
  void launch(const cuda::LoadedCode& code, const cuda::LaunchPlan::Launch& launch,
              cuda::StreamNumber) override;

  void begin_recording(cuda::StreamNumber) override;
  std::shared_ptr<const cuda::LoadedGraph> end_recording(cuda::StreamNumber) override;
  void launch(const cuda::LoadedGraph& graph, cuda::StreamNumber) override;
  // Null, unless a test puts a library's double here.
  const cuda::Products* products() override { return library.get(); }
  void multiply(const cuda::Product& product, cuda::Address a, cuda::Address b, cuda::Address row,
                cuda::Address c, cuda::Address workspace, cuda::StreamNumber) override;
  std::unique_ptr<const cuda::Products> library;
  const cuda::Convolutions* convolutions() override { return convolution_library.get(); }
  void convolve(const cuda::Convolution& convolution, cuda::Address first, cuda::Address second,
                cuda::Address result, cuda::Address workspace, cuda::StreamNumber) override;
  std::unique_ptr<const cuda::Convolutions> convolution_library;
  const cuda::ExchangeTable* exchange_table() override { return nullptr; }
  ptx::Memory& memory() { return memory_; }
  bool backwards = false;                   // see ptx::Launch
  std::function<void()> loading = [] {};    // called by load()
  std::function<void()> replaying = [] {};  // called before what is recorded is launched

  std::atomic<size_t> launches{0}, synchronized{0}, allocations{0}, frees{0};
  std::atomic<size_t> recordings{0}, replays{0};
  std::atomic<size_t> waits{0};
  std::atomic<size_t> most_threads{0};                         // of one launch
  std::atomic<size_t> copies_in{0}, copies_out{0}, pinned{0};  // pinned: blocks there are
  std::atomic<size_t> copies_between{0};                       // from other devices

 protected:
  bool records(cuda::StreamNumber n);
  // Now, or when what is recorded of the stream is replayed.
  void call(cuda::StreamNumber n, std::function<void()> work);
  struct Recording;

  std::mutex mutex_;  // of the memory
  cuda::DeviceFacts facts_;

 private:
  ptx::Memory memory_;
  size_t left_;
  std::map<cuda::Address, size_t> sizes_;
  std::map<cuda::StreamNumber, std::shared_ptr<Recording>> recording_;
};

// Launches with their parameters' bytes, as a driver keeps them.
struct InterpretedDevice::Recording final : cuda::LoadedGraph,
                                            std::enable_shared_from_this<Recording> {
  std::vector<std::function<void()>> launches;
};

}  // namespace gradus::fusion::test
