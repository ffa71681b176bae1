// A model.json of torch.export as data: what the archive says, names resolved to sizes, no meaning
// yet. The format is torch/_export/serde/schema.py, major version 8; fields that it does not know
// are passed over.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gradus/type.h"

namespace gradus::pt2 {

using ir::Dim;
using ir::Dims;

struct Subgraph;

// A torch dtype by its number.
struct ScalarType {
  int64_t number = 0;
};
// A tensor of the graph by its name; a list of them, of which some may be left out.
struct TensorName {
  std::string name;
};
using TensorNames = std::vector<std::optional<std::string>>;
// A number that the program computes, by its name: what `item` gives, a size as an output.
struct NumberName {
  std::string name;
};
// What says where and how memory lies: no meaning here.
struct Ignored {};
struct ComplexNumber {
  double real = 0, imaginary = 0;
};
// A kind of argument that nothing here takes: "as_custom_obj".
struct OtherKind {
  std::string kind;
};

// An argument of a node, an input or an output of a graph. Integers are sizes: with names in them
// where the program's are.
using Argument =
    std::variant<std::monostate, TensorName, TensorNames, Dim, Dims, double, std::vector<double>,
                 bool, std::vector<bool>, std::string, std::vector<std::string>, ScalarType,
                 std::shared_ptr<Subgraph>, NumberName, Ignored, OtherKind, ComplexNumber>;

struct NamedArgument {
  std::string name;  // as the operator's schema has it; empty for operands of higher-order ones
  Argument value;
};

struct Node {
  std::string target;  // "torch.ops.aten.add.Tensor"
  std::string name;
  std::string trace;   // lines of the model's source, where the archive kept them
  std::string module;  // as in ir::Source::modules
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
};

// What is known of a tensor without running anything. A size may be of a name that only data
// decide ("u0").
struct TensorMeta {
  DType dtype = DType::f32;
  Dims sizes;
  Dims strides;  // how it lies in memory, where the archive says so: which reshapes are views
  // Its elements are pairs of that dtype. Its value here has them along a last dimension, which
  // stands in no list of sizes.
  bool complex = false;
};
// The type of its value.
ir::Type type_of(const TensorMeta& meta);
// As torch calls its dtype where it is complex: "complex64".
std::string_view complex_name(DType of_parts);

struct Subgraph {
  std::string name;
  std::vector<Argument> inputs, outputs;
  std::vector<Node> nodes;
  // Types of dtypes that are not here are left out, and refused where one is asked for.
  std::map<std::string, TensorMeta, std::less<>> tensors;
  std::map<std::string, int64_t, std::less<>> foreign;  // tensors of such dtypes, by torch's number
  std::map<std::string, Dim, std::less<>> integers;     // sizes, and what `item` gives
};

struct InputSpec {
  enum class Kind { parameter, buffer, constant, user } kind = Kind::user;
  Argument argument;   // in the graph
  std::string target;  // name in the state_dict, or of the constant
  // Of a user's input: the argument's name, then keys and indices within it. Empty where the
  // archive does not say.
  std::vector<std::string> path = {};
};

struct OutputSpec {
  // A mutation: the new value of what `target` names.
  enum class Kind { user, buffer_mutation, input_mutation, parameter_mutation } kind = Kind::user;
  Argument argument;
  std::string target;
};

struct Range {
  std::optional<int64_t> min, max;
};

struct ExportedProgram {
  Subgraph graph;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, Range, std::less<>> ranges;  // of named sizes
  std::vector<std::string> guards;                   // conditions of inputs' sizes, in Python
  std::string torch_version;
};

// Throws Error, which says where in the document something is wrong, for what is no such program.
// Takes memory in proportion to the text.
ExportedProgram read_exported_program(std::string_view json);

// A tensor of a weights or constants configuration.
struct StoredTensor {
  std::string name, member;  // in the state_dict; of the archive
  bool parameter = false, requires_grad = false;
  DType dtype = DType::f32;
  Sizes sizes, strides;
  int64_t offset = 0;  // in elements
  bool complex = false;

  // Whether both are the same elements of one storage.
  bool is_tied_to(const StoredTensor& o) const {
    return parameter == o.parameter && member == o.member && offset == o.offset &&
           sizes == o.sizes && strides == o.strides && dtype == o.dtype && complex == o.complex;
  }
};
std::vector<StoredTensor> read_stored_tensors(std::string_view json);

// Of torch's number of a dtype; of a complex one that of its parts. Throws Error for one that is
// not here.
DType dtype_of(int64_t number);
std::string dtype_name(int64_t number);  // as torch calls it: "complex64"

// sizes.cpp: "Add(Mul(Integer(2), Symbol('s7')), Integer(-1))", as sympy's srepr writes sizes.
// Throws Error for what is no such expression, or has no meaning for sizes.
Dim read_size_expression(std::string_view text);

}  // namespace gradus::pt2
