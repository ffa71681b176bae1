// A stage as an ONNX model: walks its nodes, and appends what each becomes.
#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gradus/attributes.h"
#include "gradus/graph.h"
#include "gradus/onnx.h"

namespace onnx {
class GraphProto;
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace gradus::onnx {

using ir::Dim;
using ir::Dims;
using ops::Ints;

// What a node of control flow runs.
using InnerGraph = std::shared_ptr<const ::onnx::GraphProto>;

// An attribute of an ONNX node. Floating ones are of single precision there.
struct NodeAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, Ints, Tensor, InnerGraph> value;
};

// A tensor of the model that is made, by the name it has until `finish` finds its final one.
using Wire = std::string;

// What rules write with: each call appends a node (or finds that an equal constant, size or cast
// is there) and names what it gives. For one model and one thread.
class ModelWriter {
 public:
  // Of nodes as of a version of the operators.
  explicit ModelWriter(int opset);
  ~ModelWriter();
  int opset() const { return opset_; }

  Wire node(std::string_view op, std::vector<Wire> inputs,
            std::vector<NodeAttribute> attributes = {});
  std::vector<Wire> nodes(std::string_view op, std::vector<Wire> inputs,
                          std::vector<NodeAttribute> attributes, size_t outputs);
  Wire constant(const Tensor& value);
  Wire number(DType dtype, ir::Number value);      // 0-d
  Wire integers(const Ints& values);               // i64 [n]
  Wire cast(const Wire& x, DType from, DType to);  // itself if it has that dtype
  // Sizes as i64 [rank], [1] and []: constants where they are known, computed from inputs' shapes
  // where they have names. Throws Unsupported for a name that no input has.
  Wire sizes(std::span<const Dim> dims);
  Wire size(const Dim& dim);
  Wire scalar_size(const Dim& dim);
  // A new shape of x's elements.
  Wire reshape(const Wire& x, std::span<const Dim> dims);

  void input(const std::string& name, const ir::Type& type);
  // That a dimension of the tensor has this size: a name in it can be computed from there on.
  void know_size(const Dim& dim, const Wire& wire, int64_t dimension);
  void weight(const std::string& name, const Tensor& value, const ir::Type& type);
  // Appends an output; the name gets a number behind it where it is taken. Sizes that are names are
  // declared, other expressions are left open.
  void output(std::string name, const Wire& wire, const ir::Type& type);
  // Between the two, nodes go into an inner graph, which reads whatever there was before, too.
  // Sizes are known in it by what it is told, and what is made once is made for it.
  void begin_graph(const std::string& name);
  Wire graph_input(const ir::Type& type);
  InnerGraph end_graph(std::span<const Wire> outputs, std::span<const ir::Type> types);
  // Names of sizes mean others until `end_sizes`.
  void begin_sizes();
  void end_sizes();
  // Asks that the tensor be called like that in the model, if no other is.
  void suggest(const Wire& wire, const std::string& name);
  // The model's bytes, without what no output needs.
  std::string finish(const std::string& name);

 private:
  class SizeSteps;
  Wire fresh();
  // Made once: a constant, a size or a cast, by what it is.
  template <class Make>
  Wire once(std::string key, Make make) {
    if (auto it = made_.find(key); it != made_.end()) return it->second;
    Wire wire = make();
    return made_[std::move(key)] = wire;
  }
  Wire symbol(std::string_view name);
  Wire floor_div(const Wire& a, const Wire& b);
  void drop_unused();
  void give_names();

  const int opset_;
  std::unique_ptr<::onnx::ModelProto> model_;
  ::onnx::GraphProto* graph_;
  int wires_ = 0;
  std::map<std::string, Wire, std::less<>> made_;
  struct Source {  // (the dimension's size - rest) / coefficient
    Wire wire;
    int64_t dimension, coefficient, rest;
  };
  std::map<std::string, Source, std::less<>> symbols_;
  struct Outer {  // what a graph or sizes within others take the place of
    std::map<std::string, Wire, std::less<>> made;
    std::map<std::string, Source, std::less<>> symbols;
  };
  std::vector<Outer> outer_;
  std::vector<std::pair<::onnx::GraphProto*, std::shared_ptr<::onnx::GraphProto>>> graphs_;
  std::set<std::string, std::less<>> taken_;  // names of inputs, weights and outputs
  std::unordered_map<Wire, std::string> suggested_;
};

// 0, 1, .. rank - 1
inline Ints in_order(int64_t rank) {
  Ints order(static_cast<size_t>(rank), 0);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// ONNX's attributes are single.
inline float single(double value) { return static_cast<float>(value); }

// A node as the export rule of its operator sees it.
class ExportCall {
 public:
  ExportCall(ModelWriter& to, const ir::Graph& graph, const ir::Node& node,
             const std::unordered_map<uint32_t, Wire>& wires);

  ModelWriter& to;
  const ir::Node& node;
  std::string_view onnx;  // of the rule's entry

  size_t operands() const { return node.operands.size(); }
  bool given(size_t i) const { return i < operands() && !ir::is_none(node.operands[i]); }
  bool is_tensor(size_t i) const;
  ir::OperandType operand_type(size_t i) const { return graph_.type_of(node.operands[i]); }
  // Of a tensor operand.
  const ir::Type& type(size_t i = 0) const;
  int rank(size_t i = 0) const { return type(i).rank(); }
  const ir::Type& y_type(size_t i = 0) const;
  // Operand i, numbers as 0-d constants of the result's dtype; as another dtype; for an absent
  // optional input "".
  Wire x(size_t i = 0) { return x(i, is_tensor(i) ? type(i).dtype : y_type().dtype); }
  Wire x(size_t i, DType dtype);
  Wire optional(size_t i) { return given(i) ? x(i) : Wire(); }

  // Attributes, defaults included.
  const ir::Literal& attribute(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  double real(std::string_view name) const;
  std::string text(std::string_view name) const;
  Ints integers(std::string_view name) const;
  // As many; a list of one number holds for all.
  Ints integers(std::string_view name, size_t count) const;
  Dim dim(std::string_view name) const;
  Dims dims(std::string_view name) const;
  bool is_none(std::string_view name) const { return attribute(name).is_none(); }
  // A dimension of so many, from the front; of x, where 0-d counts as rank 1.
  int64_t axis_of(std::string_view name, int64_t rank) const;
  int64_t axis(std::string_view name) const { return axis_of(name, std::max(rank(), 1)); }
  // Dimensions, all where there are none.
  Ints axes(std::string_view name) const;

  // Whether arithmetic in the result's dtype sees no difference between the value and a single one.
  bool exact(double value) const;
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const ir::Graph& graph_;
  const std::unordered_map<uint32_t, Wire>& wires_;
  ir::LiteralList attributes_;
};

// The results; or none, where the operator has no counterpart for such attributes and is better
// taken apart. `onnx` tells operators apart that one rule serves.
using Wires = std::vector<Wire>;
struct ExportEntry {
  std::string_view name;
  Wires (*rule)(ExportCall&);
  std::string_view onnx = {};
};

// By operator, in families; an operator in none is taken apart into what it is composed of, or
// refused.
using ExportRules = std::span<const ExportEntry>;
extern const ExportRules pointwise_exports, shape_exports, reduction_exports, network_exports,
    indexing_exports, window_exports, control_exports;

// Writes the nodes of a graph of one stage, of which these are the inputs; its results.
Wires export_graph(const ir::Graph& graph, ModelWriter& to, std::span<const Wire> inputs);

// Pointwise operators: their scalar rules, written as nodes. None for one without a rule.
Wires export_pointwise(ExportCall& call);

}  // namespace gradus::onnx
