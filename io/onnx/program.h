// The program that a model becomes: its inputs, weights and results.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "io/onnx/call.h"
#include "io/onnx/model.h"
#include "ir/passes/graph_world.h"

namespace onnx {
class ModelProto;
class TypeProto;
}  // namespace onnx

namespace gradus::onnx {

// The names that can be seen from a node. A subgraph sees those around it.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_map<std::string, ItemPtr> items;
  const ItemPtr* find(const std::string& name) const;
};

class ImportedProgram {
 public:
  // All are borrowed. `fix_all`: inputs that may decide structure are asked for at once.
  ImportedProgram(const ::onnx::ModelProto& model, const Folder& folder,
                  const ImportOptions& options, bool fix_all);
  ir::Graph& graph() { return result_.program; }
  ir::GraphWorld& world() { return world_; }

  // Those of inner graphs are weights as well, under names of their own.
  void add_weights(const ::onnx::GraphProto& graph, Scope& scope, bool outermost);
  void add_inputs(Scope& scope);
  Value in_program(Item& item);
  // Its value, where that is known or can be asked for; else undefined.
  Tensor known(Item& item);
  // The value of this input decides what is made of it.
  void fix(const Item& input) { fixed_.insert(input.name); }
  Tensor read(const ::onnx::TensorProto& tensor, const std::string& what) const;
  // A name for an unnamed size.
  Dim fresh_size();
  // With the model's outputs, and without what nothing uses.
  Import finish(const Scope& scope);

 private:
  ir::Type type_of_input(const std::string& name, const ::onnx::TypeProto& type);
  ItemPtr make_input(const std::string& name, const ::onnx::TypeProto& type);
  ItemPtr make_tensor_input(const std::string& name, const ::onnx::TypeProto& type);
  void drop_unused_inputs();

  const ::onnx::ModelProto& model_;
  const Folder& folder_;
  const ImportOptions& options_;
  const bool fix_all_;
  Import result_;
  ir::GraphWorld world_;
  std::vector<ir::ValueId> inputs_, weights_;
  std::set<std::string, std::less<>> fixed_, dimensions_;
  std::set<std::string, std::less<>> used_names_;  // of inputs and weights
  // Of all graphs, and the names that they have in the program.
  std::unordered_map<const ::onnx::TensorProto*, ItemPtr> initializers_;
  std::set<std::string, std::less<>> weight_names_;
  int fresh_ = 0;
};

}  // namespace gradus::onnx
