// Planning: code for work, and for groups at their frames.
#include "interpreter/plan/make.h"

#include "interpreter/plan/steps.h"
#include "kernels/make.h"

namespace gradus::interpreter {

const work::Kernel& CpuCode::of(const work::WorkRef& work) {
  auto [made, first] = made_.try_emplace(work.get());
  if (first) {
    made->second = kernels::make(*work);
    plan_.kernels.push_back(work);
    if (made->second.parameters) plan_.kernels.push_back(made->second.parameters);
  }
  return made->second;
}

void make(Draft& d) {
  CpuCode code(*d.plan);
  for (Bound& b : d.bound) {
    if (!b.kernel) continue;
    work::Kernel ready = b.kernel->bind(std::get<work::Loops>(*b.work).frame);
    b.set_code(ready);
    if (ready.parameters) d.plan->kernels.push_back(std::move(ready.parameters));
  }
  if (d.choice.device) return make_on_device(d, code);
  for (Bound& b : d.bound)
    if (b.work && !b.kernel) b.set_code(code.of(b.work));
  for (SharedPacking& c : d.copies) c.kernel = code.of(c.copy);
}

}  // namespace gradus::interpreter
