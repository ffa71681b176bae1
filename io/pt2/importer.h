// Imports an exported program: walks its nodes and appends what they mean to a program.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "gradus/import.h"
#include "io/pt2/archive.h"
#include "io/pt2/call.h"
#include "ir/passes/graph_world.h"

namespace gradus::pt2 {

// The tensors that a graph's names mean.
using Scope = std::unordered_map<std::string, TensorPtr>;

class Importer {
 public:
  // Both are borrowed.
  Importer(const ExportedProgram& program, const Archive& archive);
  ImportedProgram run();

  // For rules and calls.
  TensorPtr find(const std::string& name) const;
  const TensorMeta& meta(const std::string& name) const;
  bool is_read(const std::string& name) const { return read_.contains(name); }
  // The value of what follows from constants alone; undefined otherwise.
  Tensor known(const Value& value);
  // Runs an inner graph on these tensors.
  std::vector<TensorPtr> run_graph(const Subgraph& graph, std::vector<TensorPtr> inputs);
  // Within it no derivative passes.
  std::vector<TensorPtr> run_without_grad(const Subgraph& graph, std::vector<TensorPtr> inputs);
  bool in_no_grad() const { return no_grad_ > 0; }

 private:
  struct Bound;
  void add_inputs();
  Value add_input(const std::string& name, ir::Type type);
  std::string free_name(const std::string& wanted);
  void run_nodes(const Subgraph& graph, Scope& scope);
  void run_node(const Node& node, Scope& scope);
  void apply(const Node& node, Scope& scope);
  void check_result(const Node& node, const std::string& name, const Value& value) const;
  void add_results();
  void note_reads(const Subgraph& graph);
  void finish();

  const ExportedProgram& program_;
  const Archive& archive_;
  ImportedProgram result_;
  ir::Graph graph_;
  ir::GraphWorld world_;
  std::vector<Bound> inputs_;
  std::vector<const Subgraph*> graphs_;  // from the outermost to the one at hand
  Scope* scope_ = nullptr;
  std::set<std::string, std::less<>> read_, names_;
  int no_grad_ = 0;
};

}  // namespace gradus::pt2
