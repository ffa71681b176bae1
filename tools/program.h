// Programs and inputs named on the command line.
#pragma once

#include <memory>
#include <string>

#include "gradus/import.h"
#include "gradus/inputs.h"
#include "tools/cli.h"

namespace gradus::cli {

// Reads and verifies a program. Where the value of a model's input decides its structure, the value
// is taken from `from`'s files. Throws Error with the place of what is wrong.
ImportedProgram load_program(const std::string& path, const InputOptions& from = {});

// What --set says. Throws UsageError for what it cannot mean, Error for a name that the program has
// not.
DimSizes read_sizes(const std::vector<std::string>& settings, const ir::Graph& program);

// What the options of these names say; the budget is for these sizes. Throws UsageError for more
// bytes than can be counted.
CompileOptions compile_options(std::optional<uint64_t> memory_budget, bool fast_functions,
                               const DimSizes& sizes);

// Where inputs are found, the weights of the program itself last: the files are open as long as it
// lives, and read as far as they are asked for. Throws Error for files that cannot be read,
// UsageError for what --set cannot mean.
InputSources open_sources(const InputOptions& options, const ImportedProgram& program,
                          std::shared_ptr<Context> context);

}  // namespace gradus::cli
