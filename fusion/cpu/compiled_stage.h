// A small stage's code in this process. No header of LLVM is needed to use it.
#pragma once

#include <exception>

#include "fusion/cpu/lower_stage.h"

namespace gradus::fusion::cpu {

// Where the time of a compilation went, in seconds.
struct CompileTimes {
  double lower = 0, verify = 0, optimize = 0, generate = 0, link = 0;
  double total() const { return lower + verify + optimize + generate + link; }
};

// What a stage's function needs for its calls, while it runs.
struct StageCalls {
  std::byte* const* args;
  std::span<const OuterCall> calls;
  work::KernelScope scope;
  std::byte* scratch;
  std::exception_ptr error = nullptr;

  // 0, or 1 after an exception, which goes no further: generated code does not know of any.
  int64_t run(int64_t number) noexcept;
};

class CompiledStage : public StageKernel {
 public:
  void run(std::byte* const* args, std::span<const OuterCall> calls, WorkerPool& workers,
           std::byte* scratch, size_t& item) const override;
  Loops loops(size_t index) const override { return loops_[index]; }
  const CompileTimes& times() const { return times_; }

 protected:
  CompiledStage(const CompileTimes& times, StageEntry entry, std::vector<Loops> loops)
      : times_(times), entry_(entry), loops_(std::move(loops)) {}

 private:
  CompileTimes times_;
  StageEntry entry_;
  std::vector<Loops> loops_;
};

}  // namespace gradus::fusion::cpu
