// The graph: values, nodes, stages. Data only; ir/passes changes it, ir/text prints it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gradus/operator.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// Index into Graph::values.
enum class ValueId : uint32_t {};
inline constexpr ValueId no_value = static_cast<ValueId>(UINT32_MAX);
constexpr uint32_t index_of(ValueId v) { return static_cast<uint32_t>(v); }

// `none`, a value, a number, or a dimension expression standing as an integer number.
using Operand = std::variant<std::monostate, ValueId, Number, Dim>;
inline bool is_none(const Operand& o) { return std::holds_alternative<std::monostate>(o); }
inline ValueId value_in(const Operand& o) {
  const ValueId* v = std::get_if<ValueId>(&o);
  return v ? *v : no_value;
}

struct Node {
  const Operator* op = nullptr;
  Attributes attributes;
  SmallVector<Operand, 2> operands;
  SmallVector<ValueId, 2> results;
  SourceLocation where;  // in Graph::source
};

struct Value {
  std::string name;  // empty: the printer finds one
  Type type;
  uint32_t stage = 0;  // where it is defined
};

// What a stage returns. `value == no_value` is the structural zero `none`.
struct Result {
  std::string name;
  ValueId value = no_value;
};

struct Stage {
  std::vector<ValueId> inputs;
  std::vector<Node> nodes;  // each uses only values defined before it
  std::vector<Result> results;
};

// The text a graph came from, for messages. Shared by the graphs of a file.
struct Source {
  std::string file;  // name, may be empty
  std::string text;
  // The line (without its end) that a place lies in.
  std::string_view line(SourceLocation where) const;
};

// Which sizes a name may stand for. A stage refuses others when it is run.
struct SizeRange {
  std::string name;
  int64_t least = 0;
  std::optional<int64_t> most;
  std::string group;  // not empty: the name is the number of this group's ranks
};

struct Graph {
  std::string name;
  std::vector<SizeRange> ranges;
  std::vector<Value> values;
  std::vector<Stage> stages;
  std::shared_ptr<const Source> source;  // may be null
  bool written_inline = false;           // its text stands in the instruction that runs it

  Value& operator[](ValueId v) { return values[index_of(v)]; }
  const Value& operator[](ValueId v) const { return values[index_of(v)]; }
  ValueId add_value(Type type, std::string name, size_t stage) {
    values.push_back({std::move(name), std::move(type), static_cast<uint32_t>(stage)});
    return static_cast<ValueId>(values.size() - 1);
  }
  // The operand as type rules see it. Valid while the graph's values are not changed.
  OperandType type_of(const Operand& o) const;
  // An Error at a node's place in the source.
  Error error_at(SourceLocation where, std::string_view message) const;
};

// A program file: graphs, one of which is the program, and a fixture's cases as text positions.
// "gradus/text.h" makes one.
struct Module {
  int version = 1;
  std::vector<std::shared_ptr<const Graph>> graphs;
  // The graph that is run: the first one that no other graph calls.
  size_t main = 0;
  const Graph& program() const { return *graphs[main]; }
};

}  // namespace gradus::ir

#pragma GCC visibility pop
