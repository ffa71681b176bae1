// Programs from files, of every format that Gradus reads.
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

// What a model leaves to whoever imports it. A program text asks for none of it.
struct ImportOptions {
  // The value of a model's input, asked for only where it decides the program's structure (the
  // shape of a Reshape, a trip count); an undefined tensor, or no function: it is not known.
  std::function<Tensor(std::string_view name)> value;
  // How many tensors an input holds that is a sequence, or an optional (none: it holds nothing).
  // Those of a sequence s become the inputs s.0, s.1, …, of sizes as `value` has them. Without it
  // such inputs are refused.
  std::function<std::optional<int64_t>(std::string_view name)> length;
};

struct ImportedProgram {
  ir::Module module;
  NamedTensors weights;         // values of inputs of stage 0; they own their memory
  std::vector<ir::Case> cases;  // inputs, and the results that the file has for them
  // Names of the weights that the model trains, where its format says so.
  std::vector<std::string> trainable;
  // Further names of weights, where a model has one under several: the name, and the weight's.
  std::map<std::string, std::string, std::less<>> tied;
  // What else the file says by name: the extra files of an archive of torch.export, as text.
  std::map<std::string, std::string, std::less<>> metadata;
};

// A format of programs.
struct Importer {
  std::string_view ending;  // of its files' names: ".onnx"
  std::string_view what;    // one of its files: "an ONNX model"
  bool model;               // its files bring weights, and ask for options
  // Whether a file may be one that begins with these bytes (the whole file, or its first 4096).
  // Asked for names without an ending of the table.
  bool (*recognises)(std::string_view head);
  // Throws Error with the place of what is wrong. Takes memory in proportion to the file's size.
  // Thread-safe.
  ImportedProgram (*read)(const std::string& path, const ImportOptions& options);
};

// All of them. An importer is a folder of io/, and a line in io/importers.h.
std::span<const Importer* const> importers();

// The importer of a file: the one whose ending its name has, or else the first that recognises
// what it begins with. Throws Error, which lists what can be read, where there is none.
const Importer& importer_of(const std::string& path);
// The one whose ending the name has; null: none. Opens no file.
const Importer* importer_by_ending(std::string_view path);
// "a program text (.ir) or an ONNX model (.onnx)": all formats, or those of models alone.
std::string importable(bool models_only = false);

// Reads and verifies the program of a file. Throws as importer_of and its `read` do.
ImportedProgram import_program(const std::string& path, const ImportOptions& options = {});

}  // namespace gradus

#pragma GCC visibility pop
