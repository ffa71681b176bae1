// gradus gradcheck
#include "gradus/gradcheck.h"

#include <algorithm>

#include "tools/cli.h"
#include "tools/output.h"
#include "tools/program.h"

namespace gradus::cli {

namespace {

std::string line_of(const GradcheckEntry& e) {
  std::string line = fmt::format("stage {}  {}  {}", e.stage, e.input, e.verdict());
  if (e.passed || e.checked > 0) line += fmt::format("  worst error {:.3g}", e.error);
  return e.why.empty() ? line : fmt::format("{}  ({})", line, e.why);
}

}  // namespace

void gradcheck(const GradcheckCommand& command) {
  ImportedProgram loaded = load_program(command.program, command.from);
  const ir::Graph& program = loaded.module.program();
  auto context = std::make_shared<Context>();
  InputSources sources = open_sources(command.from, loaded, context);
  Progress progress;
  GradcheckOptions options;
  options.order = command.order.value_or(std::max(1, static_cast<int>(program.stages.size()) - 1));
  if (!command.wrt.empty()) options.wrt = command.wrt;
  options.seed = command.from.random.value_or(0);
  options.progress = [&](int stage, double fraction) {
    progress.show((stage - 1 + fraction) / options.order,
                  fmt::format("stage {} of {}", stage, options.order));
  };
  GradcheckReport report = gradus::gradcheck(program, sources, options, context);
  progress.clear();
  std::string text;
  size_t off = 0, all = report.entries.size();
  for (const GradcheckEntry& e : report.entries) {
    text += line_of(e) + "\n";
    off += !e.passed;
  }
  put(text);
  if (all == 0) throw Error("there is no derivative to check: stage 0 has no floating input");
  if (off)
    throw Error("{} of {} gradients failed the check: see the lines marked WRONG or UNCHECKED", off,
                all);
}

}  // namespace gradus::cli
