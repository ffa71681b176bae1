// gradus import, export, check-onnx
#include "gradus/onnx.h"

#include <filesystem>
#include <map>

#include "base/file.h"
#include "gradus/files.h"
#include "gradus/text.h"
#include "tools/cli.h"
#include "tools/output.h"
#include "tools/program.h"

namespace gradus::cli {

namespace {

using Reasons = std::map<std::string, std::vector<std::string>>;  // what is not there -> tests

struct Counts {
  int passed = 0, failed = 0, unsupported = 0, right = 0, wrong = 0, unjudged = 0, exported = 0;
};

std::string listed(std::string_view what, const Reasons& reasons) {
  std::string text;
  for (const auto& [reason, names] : reasons)
    text += fmt::format("{}  {}: {} {}\n", what, reason, names.size(), fmt::join(names, " "));
  return text;
}

onnx::ExportOptions export_options(int opset) {
  onnx::ExportOptions options;
  if (opset != 0) options.opset = opset;
  return options;
}

}  // namespace

void import_model(const ImportCommand& command) {
  if (!importer_of(command.model).model)
    throw UsageError("gradus import {}: is no model; what can be imported is {}", command.model,
                     importable(true));
  if (!command.weights.empty() && !command.weights.ends_with(".npz") &&
      !command.weights.ends_with(".safetensors"))
    throw UsageError("--weights {}: weights are written as an .npz or a .safetensors",
                     command.weights);
  ImportedProgram program = load_program(command.model, command.from);
  if (!program.weights.empty() && command.weights.empty())
    throw UsageError(
        "the model has weights: say where they go, with --weights OUT.npz or OUT.safetensors");
  if (!command.out.empty()) AtomicFile probe(command.out);  // before anything is written
  if (!command.weights.empty())
    write_tensors(command.weights, std::vector<std::pair<std::string, Tensor>>(
                                       program.weights.begin(), program.weights.end()));
  put_to(command.out, ir::print(program.module));
}

void export_model(const ExportCommand& command) {
  if (!command.out.ends_with(".onnx"))
    throw UsageError("-o {}: a model is written as an .onnx file", command.out);
  ImportedProgram program = load_program(command.program, command.from);
  const ir::Graph& graph = program.module.program();
  InputOptions only_weights{.weights = command.from.weights};
  InputSources sources = open_sources(only_weights, program, Context::default_context());
  std::vector<std::pair<std::string, Tensor>> weights;
  for (ir::ValueId v : graph.stages[0].inputs)
    if (auto found = sources.find(graph[v].name))
      weights.emplace_back(graph[v].name, found->tensor);
  write_file(command.out, onnx::export_stage(graph, weights, export_options(command.opset)));
}

void check_onnx(const CheckOnnxCommand& command) {
  std::vector<std::string> tests;
  for (const std::string& folder : command.folders)
    for (std::string& t : onnx::find_tests(folder)) tests.push_back(std::move(t));
  if (tests.empty())
    throw Error("{}: holds no test: a folder with model.onnx and test_data_set_0",
                fmt::join(command.folders, ", "));
  Progress progress;
  const onnx::TestOptions options{.gradients = command.gradients,
                                  .exports = command.exports,
                                  .exported = export_options(command.opset)};
  Counts n;
  Reasons missing, not_exported;
  std::string failures;
  for (size_t i = 0; i < tests.size(); ++i) {
    std::string name = std::filesystem::path(tests[i]).filename().string();
    progress.show(static_cast<double>(i) / static_cast<double>(tests.size()), name);
    onnx::TestOutcome o = onnx::run_test(tests[i], options);
    n.right += o.right, n.wrong += o.wrong, n.unjudged += o.unjudged;
    if (o.kind == onnx::TestOutcome::Kind::passed) {
      ++n.passed;
      if (o.not_exported.empty())
        ++n.exported;
      else
        not_exported[o.not_exported].push_back(name);
    }
    if (o.kind == onnx::TestOutcome::Kind::failed) {
      ++n.failed;
      failures += fmt::format("failed  {}: {}\n", name, o.reason);
    }
    if (o.kind == onnx::TestOutcome::Kind::unsupported) {
      ++n.unsupported;
      missing[o.reason].push_back(name);
    }
  }
  progress.clear();
  std::string text = failures + listed("unsupported", missing);
  if (command.exports)
    text += listed("not exported", not_exported) + fmt::format("{} exported\n", n.exported);
  if (command.gradients > 0)
    text += fmt::format("gradients: {} agree, {} are off, {} could not be judged\n", n.right,
                        n.wrong, n.unjudged);
  text += fmt::format("{} passed, {} failed, {} unsupported\n", n.passed, n.failed, n.unsupported);
  put(text);
  if (n.failed > 0) throw Error("{} of {} tests failed", n.failed, tests.size());
  if (n.passed < command.least)
    throw Error("{} tests passed, at least {} are wanted", n.passed, command.least);
  if (command.exports && n.exported < command.least)
    throw Error("{} tests were exported, at least {} are wanted", n.exported, command.least);
}

}  // namespace gradus::cli
