// Ways to run a fixture by fused kernels.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

void fused(const ir::Fixture& fixture);

}  // namespace gradus::corpus
