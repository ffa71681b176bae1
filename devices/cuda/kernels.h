// A context's kernels where they run on a CUDA device.
#pragma once

#include <mutex>
#include <unordered_set>

#include "base/log.h"
#include "devices/cuda/backend.h"
#include "fusion/kernels.h"

namespace gradus::fusion::cuda {

// Kernels for operands in the device's memory, and the device: states that have them run there.
// Threads compile what is requested, several kernels at a time. A device is not there in a forked
// child: new states run on the CPU, and old ones throw.
class CudaKernels final : public Kernels {
 public:
  // Of the options, `folder`, its bound and `atomics` are heeded. A kernel is wanted for whatever
  // has an element: who names a device is not asked whether it is worth it.
  CudaKernels(std::shared_ptr<Device> device, const KernelOptions& options, LogSink log);
  // Ends what is being compiled behind, and leaves the rest.
  ~CudaKernels() override;

  uint64_t id() const override { return id_; }
  std::shared_ptr<devices::Backend> backend() override;
  bool wants(const Nest& nest, const Frame& frame) const override;
  std::shared_ptr<const KernelSet> ready() override;
  std::shared_ptr<const fusion::Kernel> get(const Nest& nest, const std::string& text) override;
  void request(const Nest& nest, const std::string& text) override;
  // For what single instructions wait for, too.
  void wait() override;
  KernelStatistics statistics() const override;

 private:
  bool forked() const;

  const uint64_t id_;
  const int64_t process_;  // that has opened the device
  const KernelOptions options_;
  const LogSink log_;
  const std::shared_ptr<CudaBackend> backend_;
  mutable std::mutex mutex_;
  std::shared_ptr<const KernelSet> ready_;  // never null
  std::unordered_set<std::string> failed_;
  KernelStatistics statistics_;
};

// From now on the context's new states run on cuda:`number`, those with FusionMode::off excepted.
// Throws ResourceError where that cannot be used.
void use_device(Context& context, int number, const KernelOptions& options = {});

}  // namespace gradus::fusion::cuda
