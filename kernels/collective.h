// A call of ranks as a run makes it: the group that the context binds, and what the group is asked.
#pragma once

#include "gradus/communicator.h"
#include "kernels/make.h"

namespace gradus::kernels {

struct RankCall {
  std::shared_ptr<Communicator> ranks;
  CollectiveCall call;
};

// Throws Error where no group is bound to the name, or the group has another number of ranks.
RankCall rank_call(const Collective& w, KernelScope& scope);

// Whether operand 0 is rearranged before the call.
bool copies_operand(const Collective& w);

}  // namespace gradus::kernels
