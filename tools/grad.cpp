// gradus grad
#include "ir/passes/passes.h"
#include "ir/text/printer.h"
#include "tools/cli.h"
#include "tools/output.h"
#include "tools/program.h"

namespace gradus::cli {

void grad(const GradCommand& command) {
  ir::Module module = load_program(command.program);
  ir::DifferentiateOptions options;
  options.order = command.order;
  if (!command.wrt.empty()) options.wrt = command.wrt;
  ir::Graph program = ir::differentiate(module.program(), options);
  // With the graphs that it calls, where calls have derivatives of their own and stay.
  std::string text = fmt::format("gradus {}\n\n{}", ir::text_version, ir::print(program));
  if (command.out.empty())
    put(text);
  else
    write_file(command.out, text);
}

}  // namespace gradus::cli
