#include "tools/program.h"

#include <algorithm>

#include "gradus/files.h"
#include "gradus/messages.h"
#include "tools/ranks.h"

namespace gradus::cli {

namespace {

// Files of tensors by name, a later one before an earlier one.
class Files {
 public:
  explicit Files(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  void open(const std::string& path) { files_.push_back(std::make_unique<TensorFile>(path)); }
  std::optional<FoundTensor> find(std::string_view name) const {
    for (const auto& file : files_)
      if (file->contains(name)) return FoundTensor{file->read(name, *context_), file->path()};
    return std::nullopt;
  }

 private:
  std::shared_ptr<Context> context_;
  std::vector<std::unique_ptr<TensorFile>> files_;  // in the order in which they are asked
};

}  // namespace

DimSizes read_sizes(const std::vector<std::string>& settings, const ir::Graph& program) {
  DimSizes sizes;
  const std::vector<std::string> known = program.dimension_names();
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    std::optional<int64_t> size;
    if (equals != setting.npos) size = whole_number<int64_t>(setting.substr(equals + 1));
    if (name.empty() || !size || *size < 0)
      throw UsageError("--set {}: expected DIM=SIZE, such as N=3, with a size from 0 to 2^63 - 1",
                       printable(setting));
    if (!std::ranges::binary_search(known, name))
      throw Error("--set {}: the program has no dimension '{}'; {}", printable(setting),
                  printable(name),
                  known.empty() ? "none of its sizes is open"
                                : fmt::format("it has {}", fmt::join(known, ", ")));
    if (!sizes.emplace(name, *size).second)
      throw UsageError("--set {}: '{}' is set twice", printable(setting), name);
  }
  return sizes;
}

CompileOptions compile_options(std::optional<uint64_t> memory_budget, bool fast_functions,
                               const DimSizes& sizes) {
  CompileOptions options;
  options.fast_functions = fast_functions;
  if (!memory_budget) return options;
  if (*memory_budget > INT64_MAX)
    throw UsageError("--memory-budget {}: expected at most {} bytes", *memory_budget, INT64_MAX);
  options.memory_budget = {static_cast<int64_t>(*memory_budget), sizes};
  return options;
}

ImportedProgram load_program(const std::string& path, const InputOptions& from) {
  Files files(Context::default_context());
  if (importer_of(path).model)
    for (auto it = from.inputs.rbegin(); it != from.inputs.rend(); ++it) files.open(*it);
  auto value = [&](std::string_view name) {
    auto found = files.find(name);
    return found ? found->tensor : Tensor();
  };
  return import_program(path, {.value = value});
}

InputSources open_sources(const InputOptions& options, const ImportedProgram& program,
                          std::shared_ptr<Context> context) {
  InputSources sources;
  bind_ranks(*context, program.module.program(), options.ranks);
  if (options.random) sources = random_sources(*options.random, context);
  auto files = std::make_shared<Files>(std::move(context));
  for (auto it = options.inputs.rbegin(); it != options.inputs.rend(); ++it)
    files->open(file_of_rank(*it, options.ranks));
  const std::string weights = file_of_rank(options.weights, options.ranks);
  NamedTensors own = program.weights;
  std::string origin = "the model";
  if (const Importer* i = importer_by_ending(weights); i && i->model) {
    own = load_program(weights, options).weights;
    origin = weights;
  } else if (!weights.empty()) {
    files->open(weights);
  }
  sources.find = [files, own, origin](std::string_view name) -> std::optional<FoundTensor> {
    if (auto found = files->find(name)) return found;
    auto it = own.find(name);
    return it == own.end() ? std::nullopt : std::optional(FoundTensor{it->second, origin});
  };
  sources.sizes = read_sizes(options.set, program.module.program());
  share_inputs(sources, program.module.program(), options.ranks);
  return sources;
}

}  // namespace gradus::cli
