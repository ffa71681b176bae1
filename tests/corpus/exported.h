// Fixtures as ONNX models.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// Exported and imported again, a fixture's first stage gives what it gave, to the last digits but
// for few; or it is refused for one of the things that ONNX has no word for.
void exported(const ir::Fixture& fixture);

}  // namespace gradus::corpus
