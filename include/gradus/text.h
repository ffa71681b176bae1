// Parses, prints and verifies program text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gradus/graph.h"

#pragma GCC visibility push(default)

// The parts of a fixture: a program file with cases, which give inputs and expected results.

namespace gradus::ir {

// A random input: uniform in [low, high), with the declared type and sizes. The elements depend on
// the seed and the name of the input.
struct RandomInput {
  double low = 0, high = 1;
  uint64_t seed = 0;
};

// A line `input` of a case.
struct CaseInput {
  std::string name;                         // name of an input of any stage
  std::variant<Tensor, RandomInput> value;  // an undefined tensor is an absent cotangent
  SourceLocation where;
};

// A line `expect` of a case.
struct CaseExpectation {
  enum class Kind : uint8_t { value, none, undefined } kind = Kind::value;
  std::string name;             // name of a result
  std::optional<size_t> stage;  // given if several stages have a result of this name
  Tensor value;
  // |got - expected| <= tolerance * max(1, |expected|). 0 requires equal bits.
  double tolerance = 0;
  SourceLocation where;
};

// The derivative stages that a case appends (gradus/passes.h).
struct CaseDifferentiation {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  bool total = false;
};

// A gradient check of a case (gradus/gradcheck.h).
struct CaseGradcheck {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  uint64_t seed = 0;
  std::optional<double> tolerance;
};

// One case of a fixture.
struct Case {
  std::string name;
  size_t graph = 0;  // index into Module::graphs
  SourceLocation where;
  // Sizes of dimensions that inputs do not determine.
  std::vector<std::pair<std::string, int64_t>> sizes;
  std::vector<CaseInput> inputs;  // inputs that are not listed are random
  std::vector<CaseExpectation> expectations;
  std::optional<CaseDifferentiation> differentiate;  // derivative stages to append before the run
  std::optional<CaseGradcheck> gradcheck;
  std::optional<std::string> error;  // the case must fail with a message that contains this text
};

// A program file with its cases.
struct Fixture {
  Module module;
  std::vector<Case> cases;
};

// The tolerance of results of a dtype for cases that state none: 1e-12 for f64, 1e-5 for f32, 1e-3
// for f16, 1e-2 for bf16, 0 for integers.
double default_tolerance(DType dtype);

// Parsing.

// Parses a program file, verifies its graphs and infers their types. Calls may name graphs in any
// order. `file` is the name for messages. Cases are parsed and dropped. Throws Error with file,
// line and column, and what the parser expected there. The time is nearly linear in the length of
// the text.
Module parse(std::string text, std::string file = {});

// The same, with the cases.
Fixture parse_fixture(std::string text, std::string file = {});
// Parses a file with its cases. Throws Error if the file cannot be read or is invalid.
Fixture parse_file(const std::string& path);

// Printing.

// The names of a graph's values in its text. A value with a unique name keeps it. The other values
// get names that are not in use: v0, v1, … in the order of definition, or their name with a number
// appended. The names depend on the graph only. The graph may be invalid. It is borrowed and must
// not change while the table exists.
using GraphNames = std::unordered_map<const Graph*, std::string>;
class NameTable {
 public:
  // `called` has the names of called graphs that differ from the graphs' own names. It is borrowed.
  explicit NameTable(const Graph& graph, const GraphNames* called = nullptr);
  // The name, without the percent sign.
  std::string name(ValueId v) const;
  // The name as program text: %x, %"onnx::Add_24".
  std::string shown(ValueId v) const;
  // The name of a called graph.
  std::string name(const Graph& called) const;

 private:
  const Graph& graph_;
  const GraphNames* called_;
  std::vector<std::string> given_;  // by value; empty: its own name
};

// Returns the graph as program text. Parsing the text gives the same graph, and printing that graph
// gives the same text. The graphs that it calls are printed first. The time is nearly linear in the
// number of nodes.
std::string print(const Graph& graph);
// Returns all graphs of a module, after the version line of this release.
std::string print(const Module& module);
// Returns one node, without indentation and end of line.
std::string print(const Node& node, const Graph& graph, const NameTable& names);

// The newest version of the language. The printer writes this version.
inline constexpr int text_version = 1;

// Returns a name as program text, with quotes if it needs them.
std::string name_text(std::string_view name);

// Verification.

// The invariants of graphs. The parser and the passes keep them. An error message ends with the
// number of the violated invariant: "[V4]".
//
//   V1   There is at least one stage.
//   V2   Every value that is used is in the graph's table of values.
//   V3   A value is defined once: as an input or as a result of a node.
//   V4   A value is used only after its definition, in the same stage or in a later one.
//   V5   The table contains the stage that defines the value.
//   V6   The operator of a node is in the table of operators, and the node has its attributes.
//   V7   A node has the operands that its operator requires; only optional ones are `none`.
//   V8   A handle is no input, no result, and no operand except the last one of `eval`.
//   V9   The operator's type rule accepts the node. The number and the types of its results are
//        those in the graph's table. (The rule also decides where numbers may be operands. `grad`
//        differentiates a 0-d floating value, or a value with a cotangent of its type, with respect
//        to floating values.)
//   V10  An input has a name that is unique in the graph. A result has a name that is unique in its
//        stage, also if it is `none`.
//   V11  Sizes are not negative, names of dimensions can be written in a program, and the number of
//        bytes, without the named sizes, fits an int64.
//   V12  Dimension names in inputs, attributes and operands are determined by inputs of the same or
//        an earlier stage, or by the `count` of an earlier node.
//   V13  All inputs on a device are on the same device.
//   V14  The graph of a `call` is known and valid, and has one stage. It does not call itself, also
//        not through other graphs. It has no size that data determine.
//   V15  A range has a name that can be written and that no other range has. It is not empty.
//        The bounds of a condition of sizes are not negative, and hold for some number.

// Throws Error for the first violated invariant, with the node's location if the graph has a
// source. `graph` may be arbitrary data, as long as its pointers are valid. The time is nearly
// linear in the number of nodes. Does not recurse.
void verify(const Graph& graph);

// Like `verify`, without V9 and without the called graphs. For callers that inferred the types with
// the type rules and have verified the called graphs.
void verify_but_types(const Graph& graph);

// Returns the reason why an input cannot have this type ("would be a handle…"), or an empty string
// if it can (V8, V11, V13).
std::string why_no_input(const Type& type);

// Returns the reason why an operator cannot have these operands, by their number (V7), or an empty
// string.
std::string why_wrong_operands(const Operator& op, std::span<const Operand> operands);

// The deepest nesting of calls that is allowed.
inline constexpr size_t deepest_call = 100;

}  // namespace gradus::ir

#pragma GCC visibility pop
