// The table that `gradus run --profile` prints.
#pragma once

#include <string>
#include <vector>

#include "gradus/code.h"
#include "tools/json.h"

namespace gradus::cli {

// Where the time of these events went: by operator, and by line of the program (by instruction
// where it has no text). A kernel is one row that names what it computes, and its lines: nobody
// knows how its time falls on them.
std::string profile_report(const std::vector<TraceEvent>& events, const Code& code);

}  // namespace gradus::cli
