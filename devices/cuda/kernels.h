// A context's kernels where they run on a CUDA device.
#pragma once

#include "devices/cuda/backend.h"

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
  std::shared_ptr<const KernelSet> ready() override { return store_.ready(); }
  std::shared_ptr<const fusion::Kernel> get(const Nest& nest, const std::string& text) override;
  void request(const Nest& nest, const std::string& text) override;
  // For what single instructions wait for, too.
  void wait() override { store_.wait(); }
  KernelStatistics statistics() const override { return store_.statistics(); }

 private:
  KernelStore::Made<fusion::Kernel> make(const Nest& nest) const;

  const uint64_t id_ = KernelStore::next_id();
  const std::shared_ptr<CudaBackend> backend_;
  KernelStore store_;  // threads of the backend's compile
};

// From now on the context's new states run on cuda:`number`, those with FusionMode::off excepted.
// Throws ResourceError where that cannot be used.
void use_device(Context& context, int number, const KernelOptions& options = {});

}  // namespace gradus::fusion::cuda
