// Small segments as one function each (fusion/stage.h).
//
// Such a segment is planned with all that can be a nest in groups, single instructions too, whether
// or not they would be worth kernels of their own. The plan can be run step by step like any other:
// a group's step is the part of the function that is its loops.
#pragma once

#include "interpreter/plan.h"

namespace gradus::interpreter {

// Whether it is worth a try: its types name no sizes to come, its values are few and small, and the
// state wants such functions. A function for each size that comes would be none for all.
bool is_small_stage(const Code& code, size_t segment, std::span<const Tensor> inputs,
                    const KernelChoice& choice);

// What such a plan is made of: parts of one function for all that fits into one, and kernels.
KernelChoice parts_of(const KernelChoice& choice);

// Given    a plan of parts
// Execute  has the function compiled; with FusionMode::behind looks for it in the state's set
// Result   the plan's function. False where there is none, or the segment is too much for one, or
//          too little: the parts are no code then
bool join_parts(const Code& code, SegmentPlan& plan, const KernelChoice& choice);

// Has the function of a plan that may be whole compiled behind, for plans to come.
void request_whole(const Code& code, const SegmentPlan& plan, std::span<const Tensor> inputs,
                   const KernelChoice& choice);

// Notes that a plan that may be whole is run; has its function compiled behind when it has been
// often enough, for states to come.
void count_run(const Code& code, const SegmentPlan& plan, std::span<const Tensor> inputs,
               const KernelChoice& choice);

}  // namespace gradus::interpreter
