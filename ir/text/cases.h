// The cases of a fixture, read from where the graphs end.
#pragma once

#include "gradus/text.h"
#include "ir/text/cursor.h"

namespace gradus::ir {

// At the word `case`. Reads all cases up to the end of the text.
std::vector<Case> parse_cases(Cursor& cursor, const Module& module);

}  // namespace gradus::ir
