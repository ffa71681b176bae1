#include "gradus/builder.h"

#include "gradus/text.h"
#include "ir/passes/graph_world.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus::ir {

// Emits into the last stage that there is, wherever the operands come from.
class Builder::StageWorld final : public ops::World {
 public:
  explicit StageWorld(std::string name) {
    graph.name = std::move(name);
    graph.stages.emplace_back();
  }
  ops::Value value(ValueId id) {
    ops::Value v;
    v.world = this;
    v.operand = id;
    v.type = graph[id].type;
    return v;
  }
  SmallVector<ops::Value, 2> emit(const Operator& op, Attributes attributes,
                                  std::span<const ops::Value> operands) override {
    return emit_results(op, std::move(attributes), operands, any_results);
  }
  SmallVector<ops::Value, 2> emit_results(const Operator& op, Attributes attributes,
                                          std::span<const ops::Value> operands,
                                          size_t results) override {
    const size_t stage = graph.stages.size() - 1;
    GraphWorld world(graph, stage, graph.stages[stage].nodes);
    for (const ops::Value& v : operands)
      if (v.world && v.world != this)
        throw Error("{}: an operand is a value of another builder", op.name);
    auto out = world.emit_results(op, std::move(attributes), operands, results);
    for (ops::Value& v : out) v.world = this;
    return out;
  }
  Graph graph;
};

Builder::Builder(std::string name) : world_(std::make_unique<StageWorld>(std::move(name))) {}
Builder::~Builder() = default;

ops::Value Builder::input(std::string name, Type type) {
  if (std::string why = why_no_input(type); !why.empty()) throw Error("input '{}' {}", name, why);
  Graph& g = world_->graph;
  ValueId id = g.add_value(std::move(type), std::move(name), g.stages.size() - 1);
  g.stages.back().inputs.push_back(id);
  return world_->value(id);
}

ops::Value Builder::constant(const Tensor& value) {
  if (!value.defined()) throw Error("a constant is a defined tensor");
  return ops::emit_constant(*world_, value.copy());
}

SmallVector<ops::Value, 2> Builder::emit(std::string_view name,
                                         std::initializer_list<ops::Value> operands,
                                         const LiteralList& attributes, size_t results) {
  const Operator* op = ops::find(name);
  if (!op) throw Error("there is no operator '{}'{}", name, ops::advice(name));
  return world_->emit_results(*op, op->read(attributes),
                              std::span(operands.begin(), operands.size()), results);
}

SmallVector<ops::Value, 2> Builder::call(std::string_view function,
                                         std::initializer_list<ops::Value> operands) {
  auto known = ops::find_function(function);  // one that is not there is refused by the type rule
  return emit(known ? known->caller() : ops::cpp_caller, operands,
              {{"name", std::string(function), {}}});
}

void Builder::result(std::string name, const ops::Value& value) {
  if (value.world && value.world != world_.get())
    throw Error("result '{}' is a value of another builder", name);
  if (value.is_number()) throw Error("result '{}' is a number; results are tensors", name);
  ValueId id = value.defined() ? GraphWorld::id_of(value) : no_value;
  world_->graph.stages.back().results.push_back({std::move(name), id});
}

void Builder::next_stage() { world_->graph.stages.emplace_back(); }

Graph Builder::take() {
  Graph graph = std::exchange(world_->graph, {});
  world_->graph.stages.emplace_back();
  verify(graph);
  return graph;
}

}  // namespace gradus::ir
