// A world whose operations append nodes to a graph.
#pragma once

#include <vector>

#include "gradus/value.h"

namespace gradus::ir {

// Appends to `nodes`, defining values in `stage` of `graph`. Both are borrowed.
class GraphWorld final : public ops::World {
 public:
  GraphWorld(Graph& graph, size_t stage, std::vector<Node>& nodes)
      : graph_(graph), stage_(stage), nodes_(nodes) {}

  ops::Value value(ValueId id);
  // The operand of a node as a rule sees it.
  ops::Value value(const Operand& operand);
  // The graph's id of a value of this world.
  static ValueId id_of(const ops::Value& v) { return value_in(v.operand); }
  SmallVector<ops::Value, 2> emit(const Operator& op, Attributes attributes,
                                  std::span<const ops::Value> operands) override;
  SmallVector<ops::Value, 2> emit_results(const Operator& op, Attributes attributes,
                                          std::span<const ops::Value> operands,
                                          size_t results) override;
  // Nodes emitted from now on are said to come from this place of the source.
  void set_place(SourceLocation where) { where_ = where; }

 private:
  Graph& graph_;
  size_t stage_;
  std::vector<Node>& nodes_;
  SourceLocation where_;
};

// Throws Error where a stage has grown beyond `most_nodes`.
void refuse_too_many_nodes(size_t nodes);

}  // namespace gradus::ir
