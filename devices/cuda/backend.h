// A CUDA device as a backend.
#pragma once

#include <map>

#include "devices/backend.h"
#include "devices/cuda/exchanges.h"
#include "devices/cuda/memory_cache.h"
#include "fusion/cuda/compiler.h"
#include "fusion/kernel_store.h"

namespace gradus::fusion::cuda {

class CudaBackend final : public devices::Backend,
                          public std::enable_shared_from_this<CudaBackend> {
 public:
  // `store`, which may be null, keeps code for other processes; `log` is told of what cannot be
  // compiled behind. `atomics`: see KernelOptions.
  CudaBackend(std::shared_ptr<Device> device, std::shared_ptr<const ObjectStore> store,
              LogSink log = nullptr, bool atomics = false);
  ~CudaBackend() override;

  size_t count() const override;
  Stream stream() const override;
  void set_stream(Stream stream) override;
  std::shared_ptr<const void> mark(Stream stream) override;
  void wait(Stream stream, const std::shared_ptr<const void>& mark) override;
  uintptr_t native_stream(Stream stream) override;
  void let_wait(uintptr_t native, Stream for_what) override;
  void synchronize(Stream stream) override;
  void record_use(const std::byte* address, Stream stream) override;
  std::byte* allocate(size_t bytes) override;
  void release(std::byte* address) noexcept override;
  void to_device(std::byte* to, const std::byte* from, size_t bytes) override;
  void to_host(std::byte* to, const std::byte* from, size_t bytes) override;
  bool copy_from(devices::Backend& other, std::byte* to, const std::byte* from,
                 size_t bytes) override;
  std::byte* take_staging(size_t bytes) override;
  void give_staging(std::byte* memory, size_t bytes) noexcept override;
  std::shared_ptr<const void> record(FunctionRef<void()> work) override;
  void replay(const std::shared_ptr<const void>& recorded) override;
  devices::ExchangeOffer exchange_offer(const std::shared_ptr<Communicator>& ranks) override;
  void join_exchange(std::string_view group, const std::shared_ptr<Communicator>& ranks,
                     std::span<const devices::ExchangeOffer> offers) override;
  devices::DeviceCode make(const work::Work& work, int arguments, bool wait) override;
  bool is_settled(const std::string& code) const override { return stock_.is_settled(code); }

  // Where this thread's kernels are launched: on its current stream, or one that is recorded.
  StreamNumber launch_stream() const;
  bool atomics() const { return atomics_; }
  Device& device_code() const { return *device_; }
  Compiler& compiler() { return compiler_; }
  // Code of a source that is no nest's, loaded once. Null where none can be made, which the log is
  // told once. Nothing while it is compiled behind, where it is not to wait for that.
  std::optional<std::shared_ptr<const LoadedCode>> stock(const Source& source, bool wait);
  // Its threads compile.
  TaskQueue& behind() { return behind_; }
  Exchanges& exchanges() { return exchanges_; }
  MemoryCache::Statistics memory() const { return memory_->statistics(); }

 private:
  KernelStore::Made<LoadedCode> load(const Source& source);

  const std::shared_ptr<Device> device_;
  const bool atomics_;
  Compiler compiler_;
  const std::shared_ptr<MemoryCache> memory_;
  Exchanges exchanges_;
  mutable std::mutex mutex_;
  std::mutex recording_mutex_;
  std::multimap<size_t, std::byte*> staging_;  // waiting, by size
  TaskQueue behind_;
  KernelStore stock_;
};

}  // namespace gradus::fusion::cuda
