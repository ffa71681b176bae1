// How many launches a loop on a device is, and how a long one is given to the device in chunks of
// steps.
#pragma once

#include "interpreter/run/loop.h"

namespace gradus::interpreter {

// Code that moves elements. Nothing where the backend has none.
std::optional<LoopCode::Transfer> transfer(devices::Backend& backend, work::Move move);
// From elements that lie like this to the same without gaps.
std::optional<LoopCode::Transfer> transfer(devices::Backend& backend, const Layout& from,
                                           const Layout& to);

// Whether some instruction of a step runs on the host.
bool asks_host(const SegmentPlan& step);
// As SegmentPlan::loop_launches counts them.
std::optional<size_t> launches_of(const LoopCode& loop);
// Whether a loop on a device is too many launches to be recorded with its stage.
bool is_long(const LoopCode& loop);
// Whether the elements of a slice of a sequence lie otherwise than in a copy without gaps. What
// repeats an element does not; nor does a sequence of the same slice for all steps.
bool lies_with_gaps(const LoopCode& loop, size_t sequence);
// Of a long loop, without places in the scratch memory; nothing where it saves too little. Where a
// step is so many launches that two cannot be recorded, its own loops have chunks, if they are
// long: so there are none within a chunk.
std::optional<LoopCode::Chunk> chunk_of(const LoopCode& loop);

}  // namespace gradus::interpreter
