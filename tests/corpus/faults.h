// Runs that end before they are done.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// At every instruction, also those of the steps of loops, the run throws: everything is released,
// the state refuses to go on, and the clone taken before gives the right bits.
void failing_anywhere(const ir::Fixture& fixture);
void failing_in_groups(const ir::Fixture& fixture);
// The run is cancelled while an instruction of a loop's step runs: it ends before the next one.
void cancelled_anywhere(const ir::Fixture& fixture);

}  // namespace gradus::corpus
