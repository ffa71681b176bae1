// Imports a model: walks its nodes, folds what is known, and appends the rest to a program.
#pragma once

#include <map>
#include <string>

#include "io/node_lines.h"
#include "io/onnx/program.h"
#include "kernels/evaluate.h"

namespace onnx {
class FunctionProto;
}  // namespace onnx

namespace gradus::onnx {

// A value that importing has to know. Giving more inputs' values may help.
class NeedsValue : public Unsupported {
 public:
  using Unsupported::Unsupported;
};

// What folding gave up: the result would be large, or has a size that only the program knows.
struct TooLarge {};

// Runs operators on tensors, and only where what they give is small.
class FoldingWorld final : public ops::World {
 public:
  // Of a result; of all results of an import together, which unrolled loops may keep.
  static constexpr int64_t most_bytes = int64_t{1} << 20, most_made_bytes = int64_t{1} << 28;
  explicit FoldingWorld(Context& context) : eager_(context) {}
  Value value(Tensor tensor) { return eager_.value(std::move(tensor)); }
  SmallVector<Value, 2> emit(const ops::Operator& op, ir::Attributes attributes,
                             std::span<const Value> operands) override;

 private:
  ops::EagerWorld eager_;
  int64_t made_bytes_ = 0;
};

class Importer {
 public:
  // All are borrowed. `fix_all`: inputs that may decide structure are asked for at once.
  // `name` is the model's, for messages.
  Importer(const ::onnx::ModelProto& model, const Folder& folder, const ImportOptions& options,
           bool fix_all, const std::string& name);
  Import run();

  // For rules.
  Value in_program(Item& item) { return program_.in_program(item); }
  Tensor known(Item& item) { return program_.known(item); }
  Tensor read(const ::onnx::TensorProto& tensor, const std::string& what) const {
    return program_.read(tensor, what);
  }
  Dim fresh_size() { return program_.fresh_size(); }
  ImportedProgram& program() { return program_; }
  // Work that takes as long as so many nodes. Throws Error where all of it is too much.
  void count(size_t nodes);
  // Runs an inner graph: its inputs stand for `inputs`, and it sees what the node at hand sees.
  std::vector<ItemPtr> run_graph(const ::onnx::GraphProto& graph, std::vector<ItemPtr> inputs);
  // Tensors put together along an axis by "cat" or "stack"; known if all are.
  ItemPtr joined(const char* op, const std::vector<ItemPtr>& items, int64_t axis);
  // What a name stands for at the node at hand; null if nothing.
  ItemPtr find(const std::string& name) const;
  Context& context() { return *context_; }

 private:
  void check_versions();
  void run_nodes(const ::onnx::GraphProto& graph, Scope& scope);
  void run_node(const ::onnx::NodeProto& node, Scope& scope);
  std::vector<ItemPtr> apply(const ::onnx::NodeProto& node, const std::vector<ItemPtr>& inputs);
  std::vector<ItemPtr> apply_rule(const RuleEntry& rule, const ::onnx::NodeProto& node, int opset,
                                  const std::vector<ItemPtr>& inputs);
  // The same, where no input is of a narrow type, or the rule knows what that is.
  std::vector<ItemPtr> run_rule(const RuleEntry& rule, const ::onnx::NodeProto& node, int opset,
                                const std::vector<ItemPtr>& inputs);
  // Notes that the values of these inputs decide what is made of them.
  void note_fixed(const std::vector<ItemPtr>& inputs);
  std::vector<ItemPtr> apply_function(const ::onnx::FunctionProto& function,
                                      const ::onnx::NodeProto& node,
                                      const std::vector<ItemPtr>& inputs);
  void bind_outputs(const ::onnx::NodeProto& node, std::vector<ItemPtr> results, Scope& scope);

  const ::onnx::ModelProto& model_;
  std::shared_ptr<Context> context_ = Context::default_context();
  std::map<std::string, int> opsets_;  // by domain, of the graph or function at hand
  NodeLines lines_;
  ImportedProgram program_;
  FoldingWorld folding_;
  const Scope* scope_ = nullptr;  // of the node at hand
  int depth_ = 0;
  std::string module_;  // of the functions at hand, as in ir::Source::modules
  size_t applied_ = 0;  // nodes, those of unrolled loops and functions each time
};

}  // namespace gradus::onnx
