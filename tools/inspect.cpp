// gradus verify, print, disasm
#include <algorithm>

#include "gradus/devices.h"
#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tools/cli.h"
#include "tools/device.h"
#include "tools/output.h"
#include "tools/program.h"
#include "tools/ranks.h"

namespace gradus::cli {

namespace {

void check_step(const std::string& name) {
  const auto steps = ir::pipeline_steps();
  if (std::ranges::find(steps, name) == steps.end())
    throw UsageError("--dump-after {}: there is no such step; the steps are {}", printable(name),
                     fmt::join(steps, ", "));
}

}  // namespace

// Compiling says more than reading: operators without a derivative inside a `grad`, say.
void verify(const std::string& program) {
  ir::Module module = load_program(program).module;
  for (const auto& graph : module.graphs) Code::compile(*graph);
}

void print(const std::string& program, const std::string& dump_after) {
  if (!dump_after.empty()) check_step(dump_after);
  ir::Module module = load_program(program).module;
  if (dump_after.empty()) {
    put(ir::print(module));
    return;
  }
  std::string text;
  ir::lower(module.program(), [&](std::string_view step, const ir::Graph& graph) {
    if (step == dump_after) text = ir::print(graph);
  });
  put(text);
}

void disasm(const DisasmCommand& command) {
  const auto loaded = load_program(command.program);
  const ir::Graph& graph = loaded.module.program();
  const DimSizes sizes = read_sizes(command.set, graph);
  const std::optional<int> number = device_number("disasm", command.device, graph);
  auto code =
      Code::compile(graph, compile_options(command.memory_budget, command.fast_functions, sizes));
  bool opaque = false;
  for (size_t s = 0; s < code->segments(); ++s)
    opaque |= code->segment(s).opaque || code->segment(s).counts;
  const bool first = command.fusion == "first", peaks = !command.dump_after.empty();
  if (first && !number) open_compiler("--fusion off plans without");
  auto context = std::make_shared<Context>();
  bind_ranks(*context, graph, nullptr);
  if (number) plan_for_device(*context, cuda_device(*number));
  std::string planned;
  if (opaque && !number && (!command.set.empty() || first || peaks)) {
    planned =
        "memory: what the stages take is known when the program runs: functions and counts decide "
        "about sizes\n";
  } else if (!opaque && (!command.set.empty() || first || peaks || code->dimensions().empty())) {
    State state(code, context, {.fusion = first || number ? FusionMode::first : FusionMode::off});
    planned = describe_memory(state.prepare(sizes));
    if (peaks) planned += describe_peaks(state);
    if (number) planned += host_report(state);
  } else if (number) {
    planned = opaque
                  ? "host: what a device leaves to it is known when the program runs (gradus run "
                    "--stats): functions and counts decide about sizes\n"
                  : "host: say sizes with --set for what a device leaves to it\n";
  }
  put(disassemble(*code) + planned);
}

}  // namespace gradus::cli
