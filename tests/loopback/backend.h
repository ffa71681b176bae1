// A backend for tests. Its memory is the host's, at addresses that fault when they are followed
// there; its streams are threads that wait a little, at random, before each piece of work. Work
// that nobody ordered meets memory that is not written yet, or was overwritten after it was let go:
// a missing synchronisation shows as a wrong number.
#pragma once

#include <map>
#include <mutex>
#include <random>
#include <set>

#include "devices/backend.h"
#include "fusion/kernels.h"

namespace gradus::loopback {

class Arena;
class Queue;

// What a backend does by chance follows from its seed.
class LoopbackBackend final : public devices::Backend,
                              public std::enable_shared_from_this<LoopbackBackend> {
 public:
  static constexpr size_t devices = 2;
  LoopbackBackend(uint16_t number, uint64_t seed);
  ~LoopbackBackend() override;

  size_t count() const override { return devices; }
  Stream stream() const override;
  void set_stream(Stream stream) override;
  std::shared_ptr<const void> mark(Stream stream) override;
  void wait(Stream stream, const std::shared_ptr<const void>& mark) override;
  // Streams of other libraries are numbers that ours have not.
  uintptr_t native_stream(Stream stream) override { return stream; }
  void let_wait(uintptr_t native, Stream for_what) override { wait(native, mark(for_what)); }
  void synchronize(Stream stream) override;
  void record_use(const std::byte* address, Stream stream) override;
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* address) noexcept override;
  void to_device(std::byte* to, const std::byte* from, size_t bytes) override;
  void to_host(std::byte* to, const std::byte* from, size_t bytes) override;
  bool copy_from(Backend& other, std::byte* to, const std::byte* from, size_t bytes) override;
  std::byte* take_staging(size_t bytes) override;
  void give_staging(std::byte* memory, size_t bytes) noexcept override;
  std::shared_ptr<const void> record(FunctionRef<void()> work) override;
  void replay(const std::shared_ptr<const void>& recorded) override;
  // For some work, by chance, there is no code, or not at once; some is done by the reference
  // evaluator.
  devices::DeviceCode make(const work::Work& work, int arguments, bool wait) override;
  bool is_settled(const std::string& code) const override;

  // A kernel that is run as work of the current stream, with so many pointers.
  work::Kernel later(work::Kernel kernel, size_t pointers, bool may_fail = false);
  // Queues work on the current stream.
  void enqueue(std::function<void()> work);
  // Waits for all streams. Throws what a kernel threw without a place to say so.
  void drain();
  bool chance(int one_in) const;

 private:
  struct Launch;
  struct Block {
    Stream home;
    std::set<Stream> uses;  // by others
  };
  struct Recording;
  static void launch(const void* parameters, std::byte* const* args, work::KernelScope& scope);
  std::byte* real(std::byte* address) const;
  Queue& queue(Stream stream);
  int64_t note(const char* message);

  const std::unique_ptr<Arena> arena_;
  const std::shared_ptr<Context> context_;  // of one worker
  mutable std::mutex mutex_;
  mutable std::mt19937_64 random_;
  std::map<Stream, std::unique_ptr<Queue>> queues_;
  std::map<std::byte*, Block> blocks_;
  std::vector<std::string> messages_;  // of faults that kernels met
  std::string failure_;
  mutable std::map<std::string, bool> made_later_;  // by key: whether it is there
};

// Nests by their reference evaluator, on such a backend.
class LoopbackKernels final : public fusion::Kernels {
 public:
  explicit LoopbackKernels(std::shared_ptr<LoopbackBackend> backend);
  uint64_t id() const override { return id_; }
  bool wants(const fusion::Nest& nest, const fusion::Frame& frame) const override;
  bool takes_columns(int64_t, int64_t, DType) const override { return true; }
  std::shared_ptr<devices::Backend> backend() override { return backend_; }
  std::shared_ptr<const fusion::KernelSet> ready() override;
  std::shared_ptr<const fusion::Kernel> get(const fusion::Nest& nest,
                                            const std::string& text) override;
  void request(const fusion::Nest& nest, const std::string& text) override { get(nest, text); }
  void wait() override {}
  KernelStatistics statistics() const override { return {}; }

 private:
  const uint64_t id_;
  const std::shared_ptr<LoopbackBackend> backend_;
  std::mutex mutex_;
  std::shared_ptr<const fusion::KernelSet> ready_;
};

}  // namespace gradus::loopback
