// Ways to run a fixture by fused kernels.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// Whether kernels with registers of so many bits run on this machine.
bool has_kernels(unsigned vector_bits);

// A context that fuses whatever can be grouped, kept for the process: what one program has compiled
// serves the next. 0 bits: the widest there are.
std::shared_ptr<Context> fusing_context(int workers, unsigned vector_bits = 0);

// All stages, their kernels compiled first; and with no kernels at all.
Results run_fused(const Subject& subject, const std::shared_ptr<Context>& context);
Results run_unfused(const Subject& subject);

// Fixtures: by kernels of both widths, and by kernels that come from a folder.
void fused(const ir::Fixture& fixture);
void fused_from_disk(const ir::Fixture& fixture);

}  // namespace gradus::corpus
