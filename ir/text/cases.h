// The cases of a fixture, read from where the graphs end.
#pragma once

#include "ir/text/cursor.h"
#include "ir/text/fixture.h"

namespace gradus::ir {

// At the word `case`. Reads all cases up to the end of the text.
std::vector<Case> parse_cases(Cursor& cursor, const Module& module);

}  // namespace gradus::ir
