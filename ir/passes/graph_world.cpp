#include "ir/passes/graph_world.h"

#include "gradus/passes.h"
#include "gradus/registry.h"

namespace gradus::ir {

void refuse_too_many_nodes(size_t nodes) {
  if (nodes >= most_nodes)
    throw Error(
        "the program grows beyond {} nodes in a stage; ask for a lower order of "
        "derivatives, or of fewer inputs",
        most_nodes);
}

ops::Value GraphWorld::value(ValueId id) {
  ops::Value v;
  v.world = this;
  v.operand = id;
  v.type = graph_[id].type;
  return v;
}

ops::Value GraphWorld::value(const Operand& operand) {
  if (const ValueId* id = std::get_if<ValueId>(&operand)) return value(*id);
  ops::Value v;
  v.operand = operand;
  return v;
}

SmallVector<ops::Value, 2> GraphWorld::emit(const Operator& op, Attributes attributes,
                                            std::span<const ops::Value> operands) {
  return emit_results(op, std::move(attributes), operands, any_results);
}

SmallVector<ops::Value, 2> GraphWorld::emit_results(const Operator& op, Attributes attributes,
                                                    std::span<const ops::Value> operands,
                                                    size_t count) {
  refuse_too_many_nodes(nodes_.size());
  Node node{&op, std::move(attributes), {}, {}, where_};
  SmallVector<OperandType, 4> types;
  for (const ops::Value& v : operands) {
    node.operands.push_back(v.operand);
    types.push_back(v.operand_type());
  }
  SmallVector<ops::Value, 2> results;
  for (Type& t : ops::infer(op, types, node.attributes, nullptr, count)) {
    node.results.push_back(graph_.add_value(std::move(t), {}, stage_));
    results.push_back(value(node.results.back()));
  }
  nodes_.push_back(std::move(node));
  return results;
}

}  // namespace gradus::ir
