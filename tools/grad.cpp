// gradus grad, jvp, hvp, laplacian, jacobian, hessian
#include <algorithm>
#include <cctype>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tools/cli.h"
#include "tools/output.h"
#include "tools/program.h"

namespace gradus::cli {

namespace {

constexpr std::pair<std::string_view, ir::Graph (*)(const ir::Graph&, const ir::DirectionOptions&)>
    passes[] = {{"jvp", ir::jvp},
                {"hvp", ir::hvp},
                {"laplacian", ir::laplacian},
                {"jacobian", ir::jacobian},
                {"hessian", ir::hessian}};

void put_program(const ir::Graph& program, const std::string& out) {
  // With the graphs that it calls, where calls have derivatives of their own and stay.
  put_to(out, fmt::format("gradus {}\n\n{}", ir::text_version, ir::print(program)));
}

// "8", or the name of a size that the program has not.
ir::Dim size_of_batch(const std::string& text, const ir::Graph& program) {
  if (auto n = whole_number<int64_t>(text); n && *n >= 0) return *n;
  bool name = !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0]));
  for (char c : text) name = name && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
  if (!name)
    throw UsageError("--batch: expected a whole number of 0 or more, or a name, found '{}'", text);
  if (std::ranges::binary_search(program.dimension_names(), text) ||
      std::ranges::count(program.ranges, text, &ir::SizeRange::name) > 0)
    throw Error("--batch {0}: the program has a size '{0}' already; give another name", text);
  return ir::Dim::symbol(text);
}

}  // namespace

void grad(const GradCommand& command) {
  ir::Module module = load_program(command.program).module;
  ir::DifferentiateOptions options;
  options.order = command.order;
  if (!command.wrt.empty()) options.wrt = command.wrt;
  ir::Graph program = ir::differentiate(module.program(), options);
  if (!command.batch.empty())
    program = ir::batch_cotangents(program, size_of_batch(command.batch, program));
  put_program(program, command.out);
}

void directions(const DirectionCommand& command) {
  ir::Module module = load_program(command.program).module;
  ir::DirectionOptions options;
  if (!command.wrt.empty()) options.wrt = command.wrt;
  for (const auto& [name, pass] : passes) {
    if (name != command.kind) continue;
    const ir::Graph& one = module.program();
    if (!command.batch.empty()) {
      if (command.wrt.empty())
        throw UsageError("--batch needs --wrt, the inputs that differ between points");
      options.points = {command.wrt, size_of_batch(command.batch, one)};
    }
    put_program(pass(one, options), command.out);
  }
}

}  // namespace gradus::cli
