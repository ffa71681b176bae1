// Program text -> graphs.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/text/fixture.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Reads a program file. The graphs are verified and their types inferred; calls are resolved,
// whichever graph stands first. `file` is the name for messages. A fixture's cases are read too,
// and dropped. Throws Error with file, line, column and what was expected. Near-linear in the text.
Module parse(std::string text, std::string file = {});

// The same with the cases kept.
Fixture parse_fixture(std::string text, std::string file = {});
// Reads the file of that name. Throws Error if it cannot be read.
Fixture parse_file(const std::string& path);

}  // namespace gradus::ir

#pragma GCC visibility pop
