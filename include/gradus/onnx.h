// ONNX models: read, imported as programs, and the backend tests that come with ONNX.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/import.h"

#pragma GCC visibility push(default)

namespace gradus::onnx {

// What the importer has no meaning for. `reason` names what is missing, without the place:
// "operator StringNormalizer", "dtype string".
class Unsupported : public Error {
 public:
  Unsupported(const std::string& message, std::string reason)
      : Error(message), reason_(std::move(reason)) {}
  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

// The newest version of ONNX's own operators that the rules were written for, and the oldest.
inline constexpr int newest_opset = 28, oldest_opset = 1;

using gradus::ImportOptions;

// A model as a one-stage program. Its inputs are those of the model, then its weights, under their
// own names; results have the names of the model's outputs. Dimensions that the model names keep
// their names.
struct Import {
  ir::Graph program;
  // The weights: values of inputs that nobody gives others. Tensors own their memory.
  std::vector<std::pair<std::string, Tensor>> weights;
  // The model's inputs whose values were asked for: what they decided is fixed in the program, and
  // where nothing else reads them they are no inputs of it.
  std::vector<std::string> fixed;
};

// Reads a model file, and the files of its folder that it keeps weights in; no others.
// Floating initializers (and constants of many elements) become weights; arithmetic on shapes and
// other constants is done here; loops of few rounds are unrolled, others are loops of the program.
// Throws Error, which names the node, for a model that is damaged or contradicts itself,
// Unsupported for what has no meaning here. Takes memory in proportion to the files' sizes.
// Thread-safe.
Import import_file(const std::string& path, const ImportOptions& options = {});
// The same for a model in memory. `name` is for messages; weights in other files are looked for in
// `folder`, and refused if it is empty.
Import import_bytes(std::string_view bytes, const std::string& name, const std::string& folder = {},
                    const ImportOptions& options = {});

// The versions of the operators that programs are written with.
inline constexpr int oldest_exported_opset = 17, newest_exported_opset = 23;

struct ExportOptions {
  int opset = oldest_exported_opset;  // Error for one that is not written
};

// The first stage of a program as a model, with the inputs that `weights` names as initializers of
// it. Sizes with names stay open, and what follows from them is computed from the
// inputs' shapes. Elementary functions are ONNX's: bits are those of whoever runs the model.
// Throws Unsupported, with the node's place, for what ONNX has no operator for (functions, random
// numbers, lgamma, cholesky), Error for a weight of another type. Thread-safe.
std::string export_stage(const ir::Graph& program,
                         std::span<const std::pair<std::string, Tensor>> weights = {},
                         const ExportOptions& options = {});

// What became of one backend test.
struct TestOutcome {
  enum class Kind { passed, failed, unsupported } kind = Kind::passed;
  std::string reason;  // what is missing, or what differs
  // Of gradient checks, where they were asked for: how many gradients agree, are off, and could not
  // be judged.
  int right = 0, wrong = 0, unjudged = 0;
  // Of exports, where they were asked for: why the program could not be written; empty if it was,
  // and what is read back gives the same results.
  std::string not_exported;
};

struct TestOptions {
  int gradients = 0;       // derivatives are held against differences up to this order
  bool exports = false;    // programs are written as models, which are read and run as the test is
  ExportOptions exported;  // what models are written with
};

// Runs one backend test: a folder with model.onnx and test_data_set_* folders of input_N.pb and
// output_N.pb. Results are held to a relative error of 1e-5, or of 1e-3, which ONNX's own runner
// has, for the few tests whose expected values are no more exact. Throws nothing for what is wrong
// with the test itself: that is a failure.
TestOutcome run_test(const std::string& folder, const TestOptions& options = {});
// The folders below `folder` (or it alone) that hold a model.onnx and test data, sorted.
std::vector<std::string> find_tests(const std::string& folder);

}  // namespace gradus::onnx

#pragma GCC visibility pop
