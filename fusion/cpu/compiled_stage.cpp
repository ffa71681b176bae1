#include "fusion/cpu/compiled_stage.h"

namespace gradus::fusion::cpu {

int64_t StageCalls::run(int64_t number) noexcept {
  const OuterCall& call = calls[static_cast<size_t>(number)];
  scope.scratch = scratch + call.scratch;
  try {
    call.run(call.parameters, args + call.args, scope);
    return 0;
  } catch (...) {
    error = std::current_exception();
    return 1;
  }
}

void CompiledStage::run(std::byte** args, Rounds& rounds, std::span<const OuterCall> calls,
                        WorkerPool& workers, std::byte* scratch, size_t& item) const {
  StageCalls needs{rounds.left, args, calls, {workers, nullptr}, scratch};
  item = static_cast<size_t>(
      entry_(args, &needs, rounds.moves.data(), static_cast<int64_t>(rounds.moves.size())));
  rounds.left = needs.left;
  if (needs.error) std::rethrow_exception(needs.error);
}

}  // namespace gradus::fusion::cpu
