#include "tools/program.h"

#include <charconv>
#include <set>

#include "base/text.h"
#include "ir/text/parser.h"
#include "tensor/tensor_file.h"

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

std::set<std::string, std::less<>> dimension_names(const ir::Graph& program) {
  std::set<std::string, std::less<>> names;
  for (const ir::Value& v : program.values)
    for (const ir::Dim& d : v.type.dims)
      d.for_each_symbol([&](std::string_view s) { names.emplace(s); });
  return names;
}

DimSizes read_sizes(const std::vector<std::string>& settings, const ir::Graph& program) {
  DimSizes sizes;
  std::set<std::string, std::less<>> known = dimension_names(program);
  for (const std::string& setting : settings) {
    size_t equals = setting.find('=');
    std::string name = setting.substr(0, equals);
    int64_t size = -1;
    if (equals != setting.npos) {
      const char *first = setting.data() + equals + 1, *last = setting.data() + setting.size();
      auto [end, fault] = std::from_chars(first, last, size);
      if (fault != std::errc() || end != last) size = -1;
    }
    if (name.empty() || size < 0)
      throw UsageError("--set {}: write DIM=N, N a size", printable(setting));
    if (!known.contains(name)) {
      std::string list;
      for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
      throw Error("--set {}: the program has no dimension '{}'; {}", printable(setting),
                  printable(name), list.empty() ? "none of its sizes is open" : "it has " + list);
    }
    if (!sizes.emplace(name, size).second)
      throw UsageError("--set {}: '{}' is set twice", printable(setting), name);
  }
  return sizes;
}

}  // namespace

ir::Module load_program(const std::string& path) {
  if (path.ends_with(".onnx"))
    throw UsageError("{}: the reader of ONNX models is not in this build", path);
  return ir::parse_file(path).module;
}

InputSources open_sources(const InputOptions& options, const ir::Graph& program,
                          std::shared_ptr<Context> context) {
  InputSources sources;
  if (options.random) sources = random_sources(*options.random, context);
  auto files = std::make_shared<Files>(std::move(context));
  for (auto it = options.inputs.rbegin(); it != options.inputs.rend(); ++it) files->open(*it);
  const std::string& weights = options.weights;
  if (weights.ends_with(".onnx"))
    throw UsageError(
        "--weights {}: the reader of ONNX models is not in this build; give an .npz or a "
        ".safetensors",
        weights);
  if (!weights.empty()) files->open(weights);
  sources.find = [files](std::string_view name) { return files->find(name); };
  sources.sizes = read_sizes(options.set, program);
  return sources;
}

}  // namespace gradus::cli
