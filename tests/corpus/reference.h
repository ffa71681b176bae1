// A second way to run a program: node by node as written, without passes, plans or registers.
#pragma once

#include "tests/corpus/subject.h"

namespace gradus::corpus {

// What the subject's stages return. Calls and grads are taken apart first; everything else is
// evaluated as it stands in the program.
Results evaluate_node_by_node(const Subject& subject);

}  // namespace gradus::corpus
