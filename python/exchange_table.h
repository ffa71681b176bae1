// Tensors of a library whose type brings DLPack's functions in C (torch): in some hundred
// nanoseconds each, where __dlpack__ takes microseconds.
#pragma once

#include "gradus/state.h"
#include "python/convert.h"

namespace gradus::python {

// Runs the state's next stage on tensors of `type`, None for an absent one, in the order of its
// inputs. Gives a list with a tensor of that type, or None, for each result. Nothing is copied but
// results whose memory somebody else has too: an input, a later stage, another result. So each may
// be written by whoever gets it. Throws Error where the type brings no such functions.
nb::list run_exchanged(State& state, nb::handle tensors, nb::handle type);

}  // namespace gradus::python
