// gradus view
#include <algorithm>

#include "gradus/passes.h"
#include "tools/cli.h"
#include "tools/device.h"
#include "tools/output.h"
#include "tools/program.h"
#include "tools/view/scene.h"

namespace gradus::cli {

void view(const ViewCommand& command) {
  const bool page = command.out.ends_with(".html");
  if (!page && !command.out.empty() && !command.out.ends_with(".svg"))
    throw UsageError("gradus view -o {}: a drawing is an .svg or an .html file", command.out);
  const char* as_is = command.modules ? "--modules" : command.written ? "--written" : nullptr;
  for (auto [option, given] : {std::pair("--profile", !command.profile.empty()),
                               {"--memory-budget", command.memory_budget.has_value()},
                               {"--set", !command.from.set.empty()},
                               {"--device", !command.device.empty()}})
    if (as_is && given)
      throw UsageError("gradus view: {} is about what runs; leave {} out", option, as_is);
  ImportedProgram loaded = load_program(command.program, command.from);
  const ir::Graph& program = loaded.module.program();
  gradus::view::Picture picture;
  if (command.modules) {
    if (!program.source || std::ranges::all_of(program.source->modules, &std::string::empty))
      throw UsageError(
          "gradus view --modules: {} names no modules; archives of torch.export and the ONNX "
          "models "
          "of PyTorch do",
          command.program);
    ir::Graph outlined = program;
    ir::outline_modules(outlined);
    gradus::view::Overlay overlay;
    for (const auto& weight : loaded.weights) overlay.weights.insert(weight.first);
    picture = gradus::view::picture_of(outlined, overlay);
  } else if (command.written) {
    picture = gradus::view::picture_of(program, {});
  } else {
    const DimSizes sizes = read_sizes(command.from.set, program);
    auto code = Code::compile(program, compile_options(command.memory_budget, false, sizes));
    gradus::view::Overlay overlay =
        gradus::view::overlay_of(*code, sizes, device_number("view", command.device, program));
    if (!command.profile.empty())
      gradus::view::add_profile(overlay, *code, read_trace(command.profile), command.profile);
    picture = gradus::view::picture_of(code->graph(), overlay);
  }
  gradus::view::arrange(picture);
  put_to(command.out, page ? to_page(picture) : to_svg(picture));
}

}  // namespace gradus::cli
