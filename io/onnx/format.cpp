// ONNX models, as files are imported.
#include "gradus/onnx.h"
#include "io/importers.h"

namespace gradus {

namespace {

// ModelProto begins with ir_version, a small number, as every writer of protobuf orders fields;
// then comes a field that is bytes, or the model's version.
bool is_model(std::string_view head) {
  constexpr char version_field = 0x08, bytes_type = 2, model_version = 0x28;
  return head.size() > 2 && head[0] == version_field && head[1] > 0 && head[1] < 0x20 &&
         ((head[2] & 7) == bytes_type || head[2] == model_version);
}

ImportedProgram read_model_file(const std::string& path, const ImportOptions& options) {
  onnx::Import model = onnx::import_file(path, options);
  ImportedProgram program;
  program.module.graphs.push_back(std::make_shared<const ir::Graph>(std::move(model.program)));
  program.weights.insert(model.weights.begin(), model.weights.end());
  return program;
}

}  // namespace

constinit const Importer onnx_importer{.ending = ".onnx",
                                       .what = "an ONNX model",
                                       .model = true,
                                       .recognises = is_model,
                                       .read = read_model_file};

}  // namespace gradus
