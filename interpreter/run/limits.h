// The run that goes on on this thread, for kernels that run long, and such as run states.
#pragma once

namespace gradus::interpreter {

struct StageRun;

// While it is there, this run is the current one: where it has limits, or loops whose steps are
// rounds of states.
class CurrentRun {
 public:
  explicit CurrentRun(const StageRun& run);
  ~CurrentRun();
  CurrentRun(const CurrentRun&) = delete;

 private:
  const StageRun* const before_;
};

// Null where there is none.
const StageRun* current_run();
// Throws as check_limits does, where a run on this thread has limits.
void check_current_limits();

}  // namespace gradus::interpreter
