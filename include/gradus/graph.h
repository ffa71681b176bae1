// The graph of a program: values, nodes and stages. It is data only. The functions of
// gradus/passes.h change graphs, those of gradus/text.h parse, print and verify them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gradus/operator.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// An index into Graph::values.
enum class ValueId : uint32_t {};
inline constexpr ValueId no_value = static_cast<ValueId>(UINT32_MAX);
constexpr uint32_t index_of(ValueId v) { return static_cast<uint32_t>(v); }

// An operand of a node: `none`, a value, a number, or a dimension expression that is used as an
// integer.
using Operand = std::variant<std::monostate, ValueId, Number, Dim>;
inline bool is_none(const Operand& o) { return std::holds_alternative<std::monostate>(o); }
// The operand's value, or no_value.
inline ValueId value_in(const Operand& o) {
  const ValueId* v = std::get_if<ValueId>(&o);
  return v ? *v : no_value;
}

// An operator with operands, attributes and results.
struct Node {
  const Operator* op = nullptr;
  Attributes attributes;
  SmallVector<Operand, 2> operands;
  SmallVector<ValueId, 2> results;
  SourceLocation where;  // in Graph::source
};

// An input of a stage or a result of a node.
struct Value {
  std::string name;  // empty: the printer generates a name
  Type type;
  // the stage that defines the value
  uint32_t stage = 0;
};

// A result of a stage. `value == no_value` is the structural zero `none`.
struct Result {
  std::string name;
  ValueId value = no_value;
};

// A part of a graph that runs in one call.
struct Stage {
  std::vector<ValueId> inputs;
  std::vector<Node> nodes;  // each uses only values that are defined before it
  std::vector<Result> results;
};

// The text from which a graph was parsed, for messages. The graphs of one file share it. The text
// of an imported model has a line for each node of the model.
struct Source {
  std::string file;  // the name of the file; may be empty
  std::string text;
  // Of a model, by line: the module that the node is part of, such as "encoder/layers.0/norm". Each
  // component is the name of a module within the one before. Empty for a parsed text.
  std::vector<std::string> modules;
  // The line of a location, without its end.
  std::string_view line(SourceLocation where) const;
};

// The sizes that a dimension name may have. Running a stage with another size is an error.
struct SizeRange {
  std::string name;
  int64_t least = 0;
  std::optional<int64_t> most;
  std::string group;  // if not empty, the name is the number of ranks of this group
};

// A condition of sizes: what is computed from them, `value`, is at least `least` and at most
// `most`. Running a stage with other sizes is an error. The condition is checked where all of its
// names are known.
struct SizeCondition {
  Dim value;
  int64_t least = 0;
  std::optional<int64_t> most;
  std::string words;  // the condition for messages; may be empty
};

// A straight-line list of nodes, cut into stages.
struct Graph {
  std::string name;
  std::vector<SizeRange> ranges;
  std::vector<SizeCondition> conditions;
  std::vector<Value> values;
  std::vector<Stage> stages;
  std::shared_ptr<const Source> source;  // may be null
  bool written_inline = false;           // its text is part of the instruction that runs it

  Value& operator[](ValueId v) { return values[index_of(v)]; }
  const Value& operator[](ValueId v) const { return values[index_of(v)]; }
  // Adds a value that `stage` defines.
  ValueId add_value(Type type, std::string name, size_t stage) {
    values.push_back({std::move(name), std::move(type), static_cast<uint32_t>(stage)});
    return static_cast<ValueId>(values.size() - 1);
  }
  // The type of an operand, for type rules. Valid until the graph's values change.
  OperandType type_of(const Operand& o) const;
  // The dimension names in the types of the values, each once, in alphabetical order.
  std::vector<std::string> dimension_names() const;
  // Makes an Error with a location in the graph's source.
  Error error_at(SourceLocation where, std::string_view message) const;
};

// The graphs of a program file. gradus/text.h parses files.
struct Module {
  int version = 1;
  std::vector<std::shared_ptr<const Graph>> graphs;
  // Index of the main graph, which is run: the first one that no other graph calls.
  size_t main = 0;
  const Graph& program() const { return *graphs[main]; }
};

}  // namespace gradus::ir

#pragma GCC visibility pop
