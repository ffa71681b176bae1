// Graphs -> program text.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

#pragma GCC visibility push(default)

namespace gradus::ir {

// What the values of a graph are called in its text: their own names where they have one that no
// other value has, else short ones that are not taken (v0, v1, … in the order of definition, or
// the name with a number behind it). The names do not depend on anything but the graph. Holds for
// any graph, valid or not. The graph is borrowed and must not change.
class NameTable {
 public:
  explicit NameTable(const Graph& graph);
  // The name alone.
  std::string name(ValueId v) const;
  // As program text: %x, %"onnx::Add_24".
  std::string shown(ValueId v) const;

 private:
  const Graph& graph_;
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

}  // namespace gradus::ir

#pragma GCC visibility pop
