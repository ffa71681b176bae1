// Programs and inputs named on the command line.
#pragma once

#include <memory>
#include <string>

#include "interpreter/inputs.h"
#include "ir/graph.h"
#include "tools/cli.h"

namespace gradus::cli {

// Reads and verifies a program. Throws Error with the place of what is wrong, UsageError for a kind
// of file that this build does not read.
ir::Module load_program(const std::string& path);

// Where inputs are found: the files are open as long as it lives, and read as far as they are asked
// for. Throws Error for files that cannot be read, UsageError for what --set cannot mean.
InputSources open_sources(const InputOptions& options, const ir::Graph& program,
                          std::shared_ptr<Context> context);

}  // namespace gradus::cli
