// Plans without a run and without kernels: inspect.cpp.
#pragma once

#include <functional>

#include "gradus/inspect.h"
#include "interpreter/plan.h"

namespace gradus::interpreter {

// The kernels that the default context would have. None is made.
KernelChoice imagined_kernels();

// Plans the segments of a code in turn. `planned` is told of each. Throws Error for a size that is
// not there or does not fit.
void plan_segments(const Code& code, const DimSizes& sizes, const KernelChoice& choice,
                   const std::function<void(const Segment&, const SegmentPlan&)>& planned);

}  // namespace gradus::interpreter
