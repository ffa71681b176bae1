// A context's kernels where they run on a CUDA device.
#pragma once

#include <mutex>
#include <unordered_set>

#include "base/log.h"
#include "fusion/cuda/device.h"
#include "fusion/cuda/memory_cache.h"
#include "fusion/kernels.h"

namespace gradus::fusion::cuda {

// Kernels for operands in the host's memory: a run copies them to the device, launches, and copies
// the results back before it returns; unlike the CPU's kernels it allocates. So what is not a
// kernel runs on the CPU as ever, with the same bits. Kernels are compiled where they are asked
// for. A device is not there in a forked child: it has no kernels for new states, and old ones
// throw.
class CudaKernels final : public Kernels {
 public:
  // Of the options, `folder` and its bound are heeded. A kernel is wanted for whatever has an
  // element: who names a device is not asked whether it is worth it.
  CudaKernels(std::shared_ptr<Device> device, const KernelOptions& options, LogSink log);

  uint64_t id() const override { return id_; }
  bool wants(const Nest& nest, const Frame& frame) const override;
  std::shared_ptr<const KernelSet> ready() override;
  std::shared_ptr<const fusion::Kernel> get(const Nest& nest, const std::string& text) override;
  // Compiles at once.
  void request(const Nest& nest, const std::string& text) override { get(nest, text); }
  void wait() override {}
  KernelStatistics statistics() const override;

  // A device with what kernels keep there.
  struct Place {
    explicit Place(std::shared_ptr<Device> d) : device(std::move(d)), memory(*device) {}
    const std::shared_ptr<Device> device;
    MemoryCache memory;
  };

 private:
  bool forked() const;

  const uint64_t id_;
  const int64_t process_;  // that has opened the device
  const KernelOptions options_;
  const LogSink log_;
  const std::shared_ptr<Place> place_;
  Compiler compiler_;
  mutable std::mutex mutex_;
  std::shared_ptr<const KernelSet> ready_;  // never null
  std::unordered_set<std::string> failed_;
  KernelStatistics statistics_;
};

// From now on the context's new states run their fused kernels on cuda:`number`. Throws
// ResourceError where that cannot be used.
void use_device(Context& context, int number, const KernelOptions& options = {});

}  // namespace gradus::fusion::cuda
