// Limits of the run that goes on on this thread, for kernels that run long.
#pragma once

namespace gradus::interpreter {

struct StageRun;

// While it is there, check_current_limits asks for this run.
class LimitedRun {
 public:
  explicit LimitedRun(const StageRun& run);
  ~LimitedRun();
  LimitedRun(const LimitedRun&) = delete;

 private:
  const StageRun* const before_;
};

// Throws as check_limits does, where a run on this thread has limits.
void check_current_limits();

}  // namespace gradus::interpreter
