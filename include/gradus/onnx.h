// ONNX: imports models as programs, exports programs as models, and runs ONNX's backend tests.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/import.h"

#pragma GCC visibility push(default)

namespace gradus::onnx {

// An ONNX feature that the importer or exporter does not support. `reason` names the feature
// without the location: "operator StringNormalizer", "dtype string".
class Unsupported : public Error {
 public:
  Unsupported(const std::string& message, std::string reason)
      : Error(message), reason_(std::move(reason)) {}
  // Takes the message and location of `error`.
  Unsupported(const Error& error, std::string reason) : Error(error), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// The newest and the oldest version of ONNX's operator set that the importer supports.
inline constexpr int newest_opset = 28, oldest_opset = 1;

using gradus::ImportOptions;

// A model as a program of one stage. The inputs are the inputs of the model, then its weights,
// under their names in the model. The results have the names of the model's outputs. Named
// dimensions keep their names.
struct Import {
  ir::Graph program;
  // The values of the inputs that are weights. The tensors own their memory.
  std::vector<std::pair<std::string, Tensor>> weights;
  // The inputs of the model whose values `ImportOptions::value` gave. The program depends on these
  // values. Such an input is an input of the program only if other nodes read it.
  std::vector<std::string> fixed;
};

// Reads a model file, and the files of weights in its folder; no other files. Floating
// initializers, and constants of many elements, become weights. Arithmetic on shapes and other
// constants is computed by the importer. Loops of few steps are unrolled; other loops become loops
// of the program. Throws Error, which names the node, for a model that is damaged or inconsistent,
// and Unsupported for a feature that Gradus does not have. The memory that it takes is proportional
// to the size of the files. Thread-safe.
Import import_file(const std::string& path, const ImportOptions& options = {});
// Imports a model in memory. `name` is for messages. Weights in other files are searched in
// `folder`; if it is empty, such weights are an error.
Import import_bytes(std::string_view bytes, const std::string& name, const std::string& folder = {},
                    const ImportOptions& options = {});

// The versions of the operator set that the exporter writes.
inline constexpr int oldest_exported_opset = 17, newest_exported_opset = 23;

// Options of an export.
struct ExportOptions {
  int opset = oldest_exported_opset;  // another version than the above is an Error
};

// Returns the first stage of a program as a model. The inputs that `weights` names become
// initializers. Named sizes remain open; sizes that follow from them are computed from the shapes
// of the inputs. Elementary functions become ONNX operators, so their results have the bits of the
// runtime that executes the model. Throws Unsupported, with the node's location, for nodes without
// an ONNX operator (opaque functions, random numbers, lgamma, cholesky), and Error for a weight of
// another type. Thread-safe.
std::string export_stage(const ir::Graph& program,
                         std::span<const std::pair<std::string, Tensor>> weights = {},
                         const ExportOptions& options = {});

// The outcome of one backend test.
struct TestOutcome {
  enum class Kind { passed, failed, unsupported } kind = Kind::passed;
  std::string reason;  // the missing feature, or the difference
  // If gradient checks were requested: the number of gradients that agree, that differ, and for
  // which the check has no result.
  int right = 0, wrong = 0, unjudged = 0;
  // If exports were requested: the reason why the program was not exported. Empty if it was
  // exported and the imported model gives the same results.
  std::string not_exported;
};

// Options of a backend test.
struct TestOptions {
  int gradients = 0;  // gradients are checked against differences up to this order
  // Programs are exported as models, which are imported again and run like the test.
  bool exports = false;
  ExportOptions exported;  // options of the exports
};

// Runs one backend test: a folder with model.onnx and test_data_set_* folders of input_N.pb and
// output_N.pb. The relative error of results must be at most 1e-5, or 1e-3 (the limit of ONNX's own
// runner) for the few tests whose expected values are less exact. A fault of the test itself is an
// outcome `failed`, not an exception.
TestOutcome run_test(const std::string& folder, const TestOptions& options = {});
// Returns the folders under `folder`, or `folder` itself, that contain a model.onnx and test data,
// sorted.
std::vector<std::string> find_tests(const std::string& folder);

}  // namespace gradus::onnx

#pragma GCC visibility pop
