// A context's kernels, compiled by LLVM: at once, or on a thread of their own.
#pragma once

#include "fusion/cpu/cache.h"
#include "fusion/kernel_store.h"

namespace gradus::fusion::cpu {

class CpuKernels final : public Kernels {
 public:
  // How many nests may wait for the thread.
  static constexpr size_t most_waiting = 1024;

  CpuKernels(const KernelOptions& options, LogSink log, int workers);
  // Ends what is being compiled, and leaves the rest.
  ~CpuKernels() override;

  uint64_t id() const override { return id_; }
  bool wants_places() const override { return options_.symbols; }
  void suit(Nest& nest, const StatedRows& rows) const override;
  bool wants(const Nest& nest, const Frame& frame) const override;
  Machine machine() const override;
  bool takes_columns(int64_t rows, int64_t columns, DType dtype) const override;
  bool reads_before_writing() const override { return true; }
  std::shared_ptr<const KernelSet> ready() override { return store_.ready(); }
  std::shared_ptr<const fusion::Kernel> get(const Nest& nest, const std::string& text) override;
  void request(const Nest& nest, const std::string& text) override;
  WholeStages whole_stages() const override;
  std::shared_ptr<const StageKernel> get_stage(const StageProgram& stage,
                                               const std::string& text) override;
  void request_stage(const StageProgram& stage, const std::string& text) override;
  void wait() override { store_.wait(); }
  KernelStatistics statistics() const override;

 private:
  KernelCache& cache();  // made on the first call
  void prepare();
  KernelStore::Made<fusion::Kernel> make(const Nest& nest) { return {cache().get(nest, *isa_)}; }
  KernelStore::Made<StageKernel> make(const StageProgram& stage) {
    return {cache().get(stage, *isa_)};
  }

  const uint64_t id_ = KernelStore::next_id();
  const KernelOptions options_;
  const LogSink log_;
  const std::optional<Isa> isa_;  // none: this machine runs no code of ours
  const int workers_;
  std::atomic<bool> told_{false};  // that there is no compiler

  mutable std::mutex mutex_;
  std::unique_ptr<KernelCache> cache_;  // made by the first who needs it, then never changed

  TaskQueue behind_;
  KernelStore store_;
};

}  // namespace gradus::fusion::cpu
