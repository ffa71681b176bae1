// Loops that keep their carries now and then, instead of what later loops read of every step.
#pragma once

#include "gradus/graph.h"

namespace gradus::ir {

// Given   a program whose loops are decomposed, in which scans may say `checkpoint = [k, ..]`
// Execute what such a scan stacks for other such scans of as many steps, and for nothing else, is
//         not stacked any more. The scan becomes a loop over segments of k steps, which gives the
//         carries before each segment, and one of the steps that are left over. What read the
//         stacks becomes a loop over segments, too: its step takes the steps of the segment again,
//         from the carries before it, and then its own. Loops within segments say the rest of the
//         list: they are treated the same when the segment's graph is lowered
// Result  the same values, bit for bit, at every order: each step computes what it did
// Throws Error, at the loop's place, for a `memory` that is too little, or that sizes with names do
// not tell the lengths for.
void checkpoint_loops(Graph& graph);

}  // namespace gradus::ir
