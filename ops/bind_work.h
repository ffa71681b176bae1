// Parts of work that the binding rules of several families share.
#pragma once

#include "gradus/bind.h"
#include "work/work.h"

namespace gradus::ops {

struct PointwiseInfo;

// The windows of operand i as it lies, and of result i (contiguous).
work::Window operand_window(const BindCall& call, size_t i);
work::Window result_window(const BindCall& call, size_t i = 0);
// Binds result 0 as a contiguous copy of operand 0, both of the operand's shape.
void bind_copy(BindCall& call);

// The work of a pointwise operator.
work::Pointwise pointwise_work(const PointwiseInfo& info, const BindCall& call);

}  // namespace gradus::ops
