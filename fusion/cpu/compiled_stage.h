// A small stage's code in this process.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "fusion/cpu/lower_stage.h"

namespace gradus::fusion::cpu {

// Where the time of a compilation went, in seconds.
struct CompileTimes {
  double lower = 0, verify = 0, optimize = 0, generate = 0, link = 0;
  double total() const { return lower + verify + optimize + generate + link; }
};

// What a stage's function needs while it runs.
struct StageCalls {
  int64_t left;  // rounds; generated code knows that it comes first
  std::byte* const* args;
  std::span<const OuterCall> calls;
  work::KernelScope scope;
  std::byte* scratch;
  std::exception_ptr error = nullptr;

  // 0, or 1 after an exception, which goes no further: generated code does not know of any.
  int64_t run(int64_t number) noexcept;
};

class LoadedCode;  // fusion/cpu/code_maker.h

class CompiledStage final : public StageKernel {
 public:
  CompiledStage(std::shared_ptr<const LoadedCode> code, const CompileTimes& times, StageEntry entry,
                std::vector<Loops> pieces)
      : code_(std::move(code)), times_(times), entry_(entry), pieces_(std::move(pieces)) {}

  void run(std::byte** args, Rounds& rounds, std::span<const OuterCall> calls, WorkerPool& workers,
           std::byte* scratch, size_t& item) const override;
  Loops loops(size_t piece) const override { return pieces_[piece]; }
  const CompileTimes& times() const { return times_; }

 private:
  const std::shared_ptr<const LoadedCode> code_;
  const CompileTimes times_;
  const StageEntry entry_;
  const std::vector<Loops> pieces_;
};

}  // namespace gradus::fusion::cpu
