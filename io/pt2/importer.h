// Imports an exported program: walks its nodes and appends what they mean to a program.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "gradus/attributes.h"
#include "gradus/pt2.h"
#include "io/node_lines.h"
#include "io/pt2/archive.h"
#include "io/pt2/call.h"
#include "ir/passes/graph_world.h"

namespace gradus::pt2 {

// The tensors that a graph's names mean.
using Scope = std::unordered_map<std::string, TensorPtr>;

// The tensors that an argument names.
void for_each_name(const Argument& a, const std::function<void(const std::string&)>& f);

class Importer {
 public:
  // All are borrowed. Each node of the program becomes a line of `lines`.
  Importer(const ExportedProgram& program, const Archive& archive, NodeLines& lines);
  ImportedProgram run(OtherGuards other);

  // For rules and calls.
  TensorPtr find(const std::string& name) const;  // throws Error where there is none
  const TensorMeta& meta(const std::string& name) const;
  bool is_complex(const std::string& name) const;
  // A complex value's parts; the value of parts of one type.
  Pair parts(const Value& whole);
  Value joined(const Pair& parts);
  // Whether no derivative passes through what is made now.
  bool is_without_derivatives() const { return no_grad_ > 0; }
  bool is_read(const std::string& name) const { return read_.contains(name); }
  // The value of what follows from constants alone; undefined otherwise.
  Tensor known(const Value& value);
  // What a number of the graph is: a size, or what `item` gave, as a tensor.
  Value number(const std::string& name) const;
  Value number(const Dim& size) const;
  // What a write leaves in a tensor: where no derivative passes, the value without derivatives.
  // Throws Error where the old value has derivatives, which the write would have to keep.
  Value as_written(TensorValue& target, const Value& value);

 private:
  friend class Regions;
  // An input of the program, and what writes to it leave there is a result under its name.
  struct Input {
    std::string name;
    TensorPtr tensor;
  };

  void note_reads(const Subgraph& graph);
  void add_user_inputs(Scope& scope);
  // An integer among the user's inputs: a tensor without dimensions, as what `item` gives.
  void add_number_input(const std::string& name);
  void add_stored_inputs(Scope& scope);
  // The first name, in the model's order, of the same parameter.
  const StoredTensor& first_tied(const StoredTensor& tensor) const;
  TensorPtr stored_input(const InputSpec& spec);
  TensorPtr add_input(const std::string& name, const ir::Type& type);
  std::string free_name(const std::string& wanted);
  void run_nodes(const Subgraph& graph, Scope& scope);
  void run_node(const Node& node, Scope& scope);
  bool run_item(const Node& node);
  // A float that follows from other numbers, as a tensor of f64.
  void compute_number(const Node& node);
  Value float_of(const Argument& a);
  void apply(const Node& node, Scope& scope);
  void bind(const std::string& name, const TensorPtr& tensor, Scope& scope);
  void check_type(const std::string& name, const Value& value) const;
  bool follows_inputs(const Value& value);
  // The nodes that a value of the program follows from, in order.
  std::vector<size_t> sources(const Value& value, bool through_detach, bool& inputs) const;
  void add_result(const std::string& name, const Value& value);
  void add_results(const Scope& scope);
  void add_ranges();
  void add_conditions(OtherGuards other);
  // The tensor among the user's inputs that an argument of the model is.
  const std::string& input_at(const std::vector<std::string>& path) const;
  void finish(OtherGuards other);

  const ExportedProgram& program_;
  const Archive& archive_;
  NodeLines& lines_;
  ImportedProgram result_;
  ir::Graph graph_;
  ir::GraphWorld world_;
  std::vector<Input> inputs_;
  std::map<const StoredTensor*, TensorPtr> stored_;    // tied ones by the first
  std::map<ir::ValueId, Tensor> constants_;            // inputs whose values the archive fixes
  std::map<std::string, Value, std::less<>> numbers_;  // by name, and by the size's name
  std::map<ir::ValueId, Pair> pairs_;                  // what complex values were made of
  std::map<std::pair<ir::ValueId, ir::ValueId>, Value> wholes_;  // by the parts
  const Subgraph* subgraph_ = nullptr;                           // at hand, with its names
  const Scope* scope_ = nullptr;
  std::set<std::string, std::less<>> read_, names_, result_names_;
  int no_grad_ = 0;
};

}  // namespace gradus::pt2
