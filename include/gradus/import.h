// Reads programs from files of every format that Gradus supports.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gradus/files.h"
#include "gradus/text.h"

#pragma GCC visibility push(default)

namespace gradus {

// Values that some models require from their importer. A program text requires none.
struct ImportOptions {
  // Returns the value of a model's input. Called only if the value determines the structure of the
  // program (the shape of a Reshape, a trip count). An undefined tensor, or a null function, means
  // that the value is not known.
  std::function<Tensor(std::string_view name)> value;
  // Returns the number of tensors in an input that is a sequence or an optional (nullopt: it is
  // empty). The tensors of a sequence s become the inputs s.0, s.1, …, with the sizes that `value`
  // gives. If the function is null, such inputs are an error.
  std::function<std::optional<int64_t>(std::string_view name)> length;
};

// A program, and the other contents of its file.
struct ImportedProgram {
  ir::Module module;
  NamedTensors weights;         // values of inputs of stage 0; they own their memory
  std::vector<ir::Case> cases;  // inputs, and the expected results that the file contains
  // Names of the weights that the model trains, if the format states them.
  std::vector<std::string> trainable;
  // Further names of weights that a model has under several names: the other name, and the
  // weight's.
  std::map<std::string, std::string, std::less<>> tied;
  // Other texts of the file by name: the extra files of an archive of torch.export.
  std::map<std::string, std::string, std::less<>> metadata;
};

// A format of program files.
struct Importer {
  std::string_view ending;  // of the names of its files: ".onnx"
  std::string_view what;    // a noun for one of its files: "an ONNX model"
  bool model;               // its files have weights, and use the options
  // Whether a file that begins with these bytes (all, or the first 4096) may have this format.
  // Called if the file's name has no known ending.
  bool (*recognises)(std::string_view head);
  // Reads and verifies a file. Throws Error with the location of the fault. The memory that it
  // takes is proportional to the size of the file. Thread-safe.
  ImportedProgram (*read)(const std::string& path, const ImportOptions& options);
};

// All importers.
std::span<const Importer* const> importers();

// Returns the importer of a file: the one of the ending of its name, otherwise the first that
// recognises its first bytes. Throws Error, with a list of the formats, if there is none.
const Importer& importer_of(const std::string& path);
// Returns the importer of the ending of the name, or null. Opens no file.
const Importer* importer_by_ending(std::string_view path);
// Returns a list of all formats, or of those of models, as text: "a program text (.ir) or an ONNX
// model (.onnx)".
std::string importable(bool models_only = false);

// Reads and verifies the program of a file. Throws like importer_of and Importer::read.
ImportedProgram import_program(const std::string& path, const ImportOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
