// A context's kernels, compiled by LLVM: at once, or on a thread of their own.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "fusion/cpu/cache.h"
#include "fusion/kernels.h"
#include "fusion/task_queue.h"

namespace gradus::fusion::cpu {

class CpuKernels final : public Kernels {
 public:
  // How many nests may wait for the thread.
  static constexpr size_t most_waiting = 1024;

  CpuKernels(const KernelOptions& options, LogSink log);
  // Ends what is being compiled, and leaves the rest.
  ~CpuKernels() override;

  uint64_t id() const override { return id_; }
  bool wants_places() const override { return options_.symbols; }
  bool wants(const Nest& nest, const Frame& frame) const override;
  bool takes_columns(int64_t columns) const override;
  bool reads_before_writing() const override { return true; }
  std::shared_ptr<const KernelSet> ready() override;
  std::shared_ptr<const fusion::Kernel> get(const Nest& nest, const std::string& text) override;
  void request(const Nest& nest, const std::string& text) override;
  WholeStages whole_stages() const override;
  std::shared_ptr<const StageKernel> get_stage(const StageProgram& stage,
                                               const std::string& text) override;
  void request_stage(const StageProgram& stage, const std::string& text) override;
  void wait() override;
  KernelStatistics statistics() const override;

 private:
  // In the child of a fork, where a mutex may be held by a thread that is not there.
  bool forked() const;
  KernelCache& cache();  // made on the first call
  void prepare();
  // Of a nest, or of a stage.
  template <class Source>
  auto get_one(const Source& source, const std::string& text);
  template <class Source>
  void request_one(const Source& source, const std::string& text);
  template <class Source>
  auto compile(const Source& source, const std::string& text);
  template <class Source, class Code>
  void publish(const Source& source, const std::string& text, const Code& code);

  const uint64_t id_;
  const KernelOptions options_;
  const LogSink log_;
  const std::optional<Isa> isa_;     // none: this machine runs no code of ours
  std::atomic<int64_t> process_{0};  // that has used the compiler; 0: none yet
  std::atomic<bool> told_{false};    // that there is none

  mutable std::mutex mutex_;
  // Guarded by the mutex.
  std::unique_ptr<KernelCache> cache_;      // made by the first who needs it, then never changed
  std::shared_ptr<const KernelSet> ready_;  // never null
  std::deque<std::string> order_;           // of what is ready: the oldest first
  std::unordered_set<std::string> failed_;
  uint64_t reused_ = 0;

  std::unique_ptr<TaskQueue> behind_;  // the last: its thread uses the others
};

}  // namespace gradus::fusion::cpu
