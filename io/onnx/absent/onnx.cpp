// In the place of the importer and the exporter, in builds without ONNX: all is refused.
#include "gradus/onnx.h"

#include "gradus/build.h"

namespace gradus::onnx {

namespace {

[[noreturn]] void refuse(std::string_view what) {
  throw Error("{}: {}", what, why_missing(Part::onnx));
}

}  // namespace

Import import_file(const std::string& path, const ImportOptions&) { refuse(path); }
Import import_bytes(std::string_view, const std::string& name, const std::string&,
                    const ImportOptions&) {
  refuse(name);
}
std::string export_stage(const ir::Graph&, std::span<const std::pair<std::string, Tensor>>,
                         const ExportOptions&) {
  refuse("no program is written as an ONNX model");
}
TestOutcome run_test(const std::string& folder, const TestOptions&) { refuse(folder); }
std::vector<std::string> find_tests(const std::string& folder) { refuse(folder); }

}  // namespace gradus::onnx
