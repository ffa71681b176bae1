// Program text: read, printed, checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gradus/graph.h"

#pragma GCC visibility push(default)

// A program file with its cases: what to feed it, and what comes out.

namespace gradus::ir {

// Uniform in [low, high), of the declared type and sizes, from the seed and the input's name.
struct RandomInput {
  double low = 0, high = 1;
  uint64_t seed = 0;
};

struct CaseInput {
  std::string name;                         // of an input of any stage
  std::variant<Tensor, RandomInput> value;  // an undefined tensor is an absent cotangent
  SourceLocation where;
};

struct CaseExpectation {
  enum class Kind : uint8_t { value, none, undefined } kind = Kind::value;
  std::string name;             // of a result
  std::optional<size_t> stage;  // where several stages have a result of that name
  Tensor value;
  // |got - expected| <= tolerance * max(1, |expected|); 0 asks for the same bits.
  double tolerance = 0;
  SourceLocation where;
};

struct CaseDifferentiation {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  bool total = false;
};

struct CaseGradcheck {
  int order = 1;
  std::optional<std::vector<std::string>> wrt;
  uint64_t seed = 0;
  std::optional<double> tolerance;
};

struct Case {
  std::string name;
  size_t graph = 0;  // index into Module::graphs
  SourceLocation where;
  std::vector<std::pair<std::string, int64_t>> sizes;  // of dimensions, where inputs do not say
  std::vector<CaseInput> inputs;                       // those left out are drawn at random
  std::vector<CaseExpectation> expectations;
  std::optional<CaseDifferentiation> differentiate;  // stages appended before it runs
  std::optional<CaseGradcheck> gradcheck;
  std::optional<std::string> error;  // it fails with a message that holds this
};

struct Fixture {
  Module module;
  std::vector<Case> cases;
};

// How far a result of this dtype may be off where a case does not say: 1e-12 for f64, 1e-5 for f32,
// 1e-3 and 1e-2 for f16 and bf16, 0 for integers.
double default_tolerance(DType dtype);

// Program text -> graphs.

// Reads a program file. The graphs are verified and their types inferred; calls are resolved,
// whichever graph stands first. `file` is the name for messages. A fixture's cases are read too,
// and dropped. Throws Error with file, line, column and what was expected. Near-linear in the text.
Module parse(std::string text, std::string file = {});

// The same with the cases kept.
Fixture parse_fixture(std::string text, std::string file = {});
// Reads the file of that name. Throws Error if it cannot be read.
Fixture parse_file(const std::string& path);

// Graphs -> program text.

// What the values of a graph are called in its text: their own names where they have one that no
// other value has, else short ones that are not taken (v0, v1, … in the order of definition, or
// the name with a number behind it). The names do not depend on anything but the graph. Holds for
// any graph, valid or not. The graph is borrowed and must not change.
using GraphNames = std::unordered_map<const Graph*, std::string>;
class NameTable {
 public:
  // `called`: what the graphs that it calls are called, where that is not their own name; borrowed.
  explicit NameTable(const Graph& graph, const GraphNames* called = nullptr);
  // The name alone.
  std::string name(ValueId v) const;
  // As program text: %x, %"onnx::Add_24".
  std::string shown(ValueId v) const;
  std::string name(const Graph& called) const;

 private:
  const Graph& graph_;
  const GraphNames* called_;
  std::vector<std::string> given_;  // by value; empty: its own name
};

// Texts that parse back to the same graphs, and print again as the same texts. Near-linear in the
// number of nodes. A graph that calls others is printed behind those.
std::string print(const Graph& graph);
// With the version line of this release.
std::string print(const Module& module);
// One node, without indentation or end of line.
std::string print(const Node& node, const Graph& graph, const NameTable& names);

// The newest version of the language, which is what is printed.
inline constexpr int text_version = 1;

// A name as program text: quoted if it must be.
std::string name_text(std::string_view name);

// What holds for every graph that anything but the parser and the passes sees.

// The invariants. Messages end in the number of the one that does not hold: "[V4]".
//
//   V1   There is at least one stage.
//   V2   Every value that is named somewhere is in the graph's table.
//   V3   A value is defined once: as an input or as a node's result.
//   V4   It is used only after its definition: in the same stage or in a later one.
//   V5   The table says in which stage it is defined.
//   V6   A node's operator is one of the table, and its attributes are there.
//   V7   A node has the operands its operator takes; only optional ones are `none`.
//   V8   A handle is no input, no result, and no operand but the last one of `eval`.
//   V9   The operator's type rule accepts the node; it gives as many results as the node has, of
//        the types that the graph's table says. (Among others: numbers stand only where the rule
//        allows them, and `grad` differentiates a 0-d floating value, or one with a cotangent of
//        its type, with respect to floating values.)
//   V10  An input has a name, which no other input of the graph has. A result has one, which no
//        other result of the stage has, `none` included.
//   V11  Sizes are never negative, names of dimensions can be written in a program, and the number
//        of elements can be counted.
//   V12  Names of dimensions that inputs, attributes and operands use are settled by inputs of the
//        same stage or of an earlier one, or by the `count` of an earlier node.
//   V13  Inputs that lie on a device lie on the same one.
//   V14  A `call` knows its graph, which has one stage and does not call itself, not even through
//        others, and is valid itself. It has no size that data decides.
//   V15  A range is of a name that can be written, which no other range has, and is not empty.

// Throws Error, with the node's place where the graph has a source, for the first invariant that
// does not hold. Any graph can be given, however broken, as long as its pointers can be followed.
// Near-linear in the number of nodes; does not recurse.
void verify(const Graph& graph);

// The same without V9 and without the graphs that are called, for who has just made the types by
// the type rules and has verified those graphs.
void verify_but_types(const Graph& graph);

// Why a program cannot have an input of this type: "would be a handle…"; empty if it can (V8, V11,
// V13).
std::string why_no_input(const Type& type);

// Why an operator cannot have these operands, by their number (V7); empty if it can.
std::string why_wrong_operands(const Operator& op, std::span<const Operand> operands);

// Calls may be nested this deep.
inline constexpr size_t deepest_call = 100;

}  // namespace gradus::ir

#pragma GCC visibility pop
