#include "ir/passes/loops.h"

#include <algorithm>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "gradus/rewrite.h"
#include "gradus/rules.h"
#include "ir/passes/loop_step.h"
#include "ops/structural.h"

namespace gradus::ir {

std::vector<bool> dependent_results(const Graph& graph, const Node& loop,
                                    std::span<const bool> operands) {
  auto through = [](const Graph& step, size_t carries, std::span<const bool> own, bool certain) {
    Graph body = swept(step);
    return activity(body, carries, Flags(own.begin(), own.end()), certain).results;
  };
  if (const auto scan = ops::loop_in(loop))
    return through(*scan->body, scan->carries, operands, takes_a_step(graph, loop));
  if (const auto data = ops::data_loop_in(*loop.op, loop.attributes))
    return through(*data->body, data->carries, operands, false);
  std::vector<bool> results(loop.results.size());
  for (const ops::GraphName* named : ops::graphs_in(loop)) {
    const Flags branch = through(*named->graph, 0, operands.subspan(1), true);
    for (size_t i = 0; i < results.size(); ++i)
      if (branch[i]) results[i] = true;
  }
  return results;
}

std::vector<LoopGradient> differentiate_loop(Graph& graph, GraphWorld& world, Node& loop,
                                             const LoopCotangents& given) {
  GRADUS_CHECK(!ops::data_loop_in(*loop.op, loop.attributes));  // it is counted before a sweep
  if (!ops::loop_in(loop)) return differentiate_branch(world, loop, given);
  return differentiate_scan(graph, world, loop, given);
}

namespace {

// As graphs below know it: by the inputs that have it.
Dim inner_size(const Dim& size, const Node& node) {
  if (size.is_constant()) return size;
  std::string name = "batch";
  for (const ops::GraphName* named : ops::graphs_in(node)) {
    const DimensionNames taken = symbols_of(*named->graph);
    for (int n = 2; taken.contains(name); ++n) name = fmt::format("batch{}", n);
  }
  return Dim::symbol(name);
}

SmallVector<ops::Value, 2> batch_branch(const Node& node, const ops::BatchedCall& c) {
  if (c.batched[0])
    throw Error("{}: its predicate differs within the batch; compute both and choose by `where`",
                c.op.name);
  SmallVector<std::shared_ptr<const Graph>, 2> graphs;
  for (const ops::GraphName* named : ops::graphs_in(node)) {
    const Graph& g = *named->graph;
    std::vector<std::string> inputs;
    for (size_t i = 1; i < c.operands.size(); ++i)
      if (c.batched[i]) inputs.push_back(g[g.stages[0].inputs[i - 1]].name);
    graphs.push_back(std::make_shared<const Graph>(batch(g, inputs, inner_size(c.size, node))));
  }
  return c.world.emit(c.op, ops::with_graphs(node, graphs), c.operands);
}

// Of a call with a derivative of its own, which is batched, too. Inputs that all elements share
// have the sum of the elements' gradients.
SmallVector<ops::Value, 2> batch_call(const Node& node, const ops::BatchedCall& c) {
  const auto named = ops::graphs_in(node);
  const Graph &graph = *named[0]->graph, &vjp = *named[1]->graph;
  const Dim size = inner_size(c.size, node);
  auto name_of = [](const Graph& g, size_t input) { return g[g.stages[0].inputs[input]].name; };
  std::vector<std::string> inputs, inputs_of_vjp;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (!c.batched[i]) continue;
    inputs.push_back(name_of(graph, i));
    if (i < vjp.stages[0].inputs.size()) inputs_of_vjp.push_back(name_of(vjp, i));
  }
  for (size_t i = c.operands.size(); i < vjp.stages[0].inputs.size(); ++i)
    inputs_of_vjp.push_back(name_of(vjp, i));
  Graph gradients = batch(vjp, inputs_of_vjp, size);
  GraphWorld world(gradients, 0, gradients.stages[0].nodes);
  std::vector<Result>& results = gradients.stages[0].results;
  for (size_t i = 0, g = 0; i < c.operands.size() && g < results.size(); ++i) {
    if (!is_floating(c.operands[i].dtype())) continue;
    ValueId& gradient = results[g++].value;
    if (!c.batched[i] && gradient != no_value)
      gradient = GraphWorld::id_of(ops::sum(world.value(gradient), {0}, false));
  }
  const std::array graphs{std::make_shared<const Graph>(batch(graph, inputs, size)),
                          std::make_shared<const Graph>(std::move(gradients))};
  return c.world.emit(c.op, ops::with_graphs(node, graphs), c.operands);
}

// Where `each` holds, a row of `mine`, else that of `other`.
ops::Value choose(const ops::Value& each, const ops::Value& mine, const ops::Value& other) {
  Dims aligned(mine.dims().size(), Dim(1));
  aligned[0] = mine.dims()[0];
  return ops::where(ops::reshape(each, aligned), mine, other);
}

// Steps are taken until no element of the batch takes another; one that takes none more stays as it
// is. Where the others' step is computed, it takes that of the first of them: what a step does to
// an element that has ended may have no value, or no derivative.
Graph step_of_batch(const ops::BatchedCall& c, const Graph& condition, const Graph& body,
                    size_t carries) {
  Graph step;
  step.name = body.name;
  step.stages.resize(1);
  for (ValueId v : body.stages[0].inputs)
    step.stages[0].inputs.push_back(step.add_value(Type(body[v].type), body[v].name, 0));
  GraphWorld world(step, 0, step.stages[0].nodes);
  SmallVector<ops::Value, 4> in, taken;
  for (ValueId v : step.stages[0].inputs) in.push_back(world.value(v));
  const ops::Value goes_on = ops::emit_graph(world, c.op, condition, in)[0];
  // A batch may have no elements.
  const ops::Value each = ops::pad_zeros(ops::cast(goes_on, DType::i64), 0, 0, 1);
  const ops::Value first = ops::unsqueeze(ops::argmax(each), 0);
  for (size_t i = 0; i < in.size(); ++i) {
    if (i >= carries && !c.batched[i]) {
      taken.push_back(in[i]);
      continue;
    }
    const ops::Value row = ops::index_select(in[i], first, 0);
    taken.push_back(choose(goes_on, in[i], is_floating(row.dtype()) ? ops::detach(row) : row));
  }
  const auto next = ops::emit_graph(world, c.op, body, taken);
  for (size_t i = 0; i < carries; ++i)
    step.stages[0].results.push_back(
        {body.stages[0].results[i].name, GraphWorld::id_of(choose(goes_on, next[i], in[i]))});
  return step;
}

SmallVector<ops::Value, 2> batch_data_loop(const Node& node, const ops::BatchedCall& c) {
  const ops::DataLoop loop = *ops::data_loop_in(*node.op, node.attributes);
  const Dim size = inner_size(c.size, node);
  std::vector<std::string> condition_inputs, body_inputs;
  SmallVector<ops::Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const bool carry = i < loop.carries;
    operands.push_back(carry ? c.stretched(i) : c.operands[i]);
    if (!carry && !c.batched[i]) continue;
    condition_inputs.push_back((*loop.condition)[loop.condition->stages[0].inputs[i]].name);
    body_inputs.push_back((*loop.body)[loop.body->stages[0].inputs[i]].name);
  }
  const Graph holds = batch(*loop.condition, condition_inputs, size);
  Graph any = holds;
  {
    Stage& stage = any.stages[0];
    GraphWorld world(any, 0, stage.nodes);
    const ops::Value all = world.value(stage.results[0].value);
    const ops::Value any_of_them = ops::gt(ops::sum_all(ops::cast(all, DType::i64)), ops::num(0.0));
    stage.results[0].value = GraphWorld::id_of(any_of_them);
  }
  Graph step = step_of_batch(c, holds, batch(*loop.body, body_inputs, size), loop.carries);
  const std::array graphs{std::make_shared<const Graph>(std::move(any)),
                          std::make_shared<const Graph>(std::move(step))};
  return c.world.emit(c.op, ops::with_graphs(node, graphs), operands);
}

}  // namespace

SmallVector<ops::Value, 2> batch_graphs(const Node& node, const ops::BatchedCall& c) {
  if (ops::is_call(node)) return batch_call(node, c);
  if (ops::data_loop_in(*node.op, node.attributes)) return batch_data_loop(node, c);
  if (!ops::loop_in(node)) return batch_branch(node, c);
  const ops::Loop loop = *ops::loop_in(node);
  const Stage& stage = loop.body->stages[0];
  const Dim size = inner_size(c.size, node);
  std::vector<std::string> inputs;
  SmallVector<ops::Value, 4> operands;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const bool carry = i < loop.carries, sequence = !carry && i < loop.first_constant();
    if (carry || c.batched[i]) inputs.push_back((*loop.body)[stage.inputs[i]].name);
    ops::Value x = carry ? c.stretched(i) : c.operands[i];
    operands.push_back(sequence && c.batched[i] ? ops::transpose(x, 0, 1) : std::move(x));
  }
  ops::LoopForm attributes = *loop.form;
  if (!attributes.length) {
    const size_t first = loop.carries;
    attributes.length = c.operands[first].dims()[c.batched[first] ? 1 : 0];
  }
  auto results = c.world.emit(
      ops::scan_operator(),
      scan_of(attributes, loop.body->name + "_batch", batch(*loop.body, inputs, size)), operands);
  for (size_t i = loop.carries; i < results.size(); ++i)
    results[i] = ops::transpose(results[i], 0, 1);
  return results;
}

void unroll(Graph& graph) {
  Substitute substitute(graph);
  auto has_length = [&](const Node& node) {
    const auto loop = ops::loop_in(node);
    if (!loop || settles_by_data(*loop->body)) return false;  // each step has sizes of its own
    SmallVector<OperandType, 4> types;
    for (const Operand& o : node.operands) types.push_back(graph.type_of(o));
    return ops::steps_of(*loop->form, types).is_constant();
  };
  for (size_t s = 0; s < graph.stages.size(); ++s) {
    std::vector<Node> done, pending;  // a stack
    for (Node& next : graph.stages[s].nodes) {
      pending.push_back(std::move(next));
      while (!pending.empty()) {
        Node node = std::move(pending.back());
        pending.pop_back();
        substitute.apply(node);
        if (!has_length(node)) {
          refuse_too_many_nodes(done.size());
          done.push_back(std::move(node));
          continue;
        }
        std::vector<Node> steps;
        take_apart(graph, s, node, steps, substitute);
        for (; !steps.empty(); steps.pop_back()) pending.push_back(std::move(steps.back()));
      }
    }
    graph.stages[s].nodes = std::move(done);
    substitute.apply(graph.stages[s].results);
  }
}

void prune_loop(const Graph& graph, Node& node, const std::vector<bool>& used) {
  if (!ops::loop_in(node)) return;
  const ops::Loop loop = *ops::loop_in(node);
  Graph body = *loop.body;
  Stage& stage = body.stages[0];
  const std::vector<Result> all = stage.results;
  const std::vector<ValueId> inputs = stage.inputs;
  const std::vector<Node> nodes = stage.nodes;
  Flags live(all.size());
  for (size_t i = 0; i < all.size(); ++i) live[i] = used[i];
  Flags read(body.values.size());
  for (bool grew = true; grew;) {
    stage.results.clear();
    stage.nodes = nodes;
    for (size_t i = 0; i < all.size(); ++i)
      if (live[i]) stage.results.push_back(all[i]);
    eliminate_dead_code(body);
    read.assign(body.values.size(), false);
    for (const Node& n : stage.nodes)
      for (const Operand& o : n.operands)
        if (value_in(o) != no_value) read[index_of(value_in(o))] = true;
    for (const Result& r : stage.results) read[index_of(r.value)] = true;
    grew = false;
    for (size_t i = 0; i < loop.carries; ++i)
      if (!live[i] && read[index_of(inputs[i])]) live[i] = grew = true;
  }
  Flags stays(inputs.size());
  std::vector<ValueId> left;
  for (size_t i = 0; i < inputs.size(); ++i) {
    stays[i] = i < loop.carries ? live[i] : read[index_of(inputs[i])];
    if (stays[i]) left.push_back(inputs[i]);
  }
  for (size_t i = inputs.size(); i-- > loop.carries;) {  // that say sizes
    if (stays[i]) continue;
    stage.inputs = left;
    const DimensionNames missing = unsettled(body, left);
    if (missing.empty()) break;
    if (!names_one(body[inputs[i]].type, missing)) continue;
    stays[i] = true;
    left.push_back(inputs[i]);
  }
  stage.inputs = left;
  if (!unsettled(body, left).empty()) return;  // a carry that goes says a size: all stays
  if (std::ranges::count(live, false) == 0 && std::ranges::count(stays, false) == 0 &&
      stage.nodes.size() == nodes.size())
    return;
  ops::LoopForm attributes = *loop.form;
  SmallVector<OperandType, 4> types;
  for (const Operand& o : node.operands) types.push_back(graph.type_of(o));
  attributes.length = ops::steps_of(*loop.form, types);
  attributes.carries = attributes.sequences = 0;
  stage.inputs.clear();
  SmallVector<Operand, 2> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!stays[i]) continue;
    stage.inputs.push_back(inputs[i]);
    operands.push_back(node.operands[i]);
    attributes.carries += i < loop.carries;
    attributes.sequences += i >= loop.carries && i < loop.first_constant();
  }
  SmallVector<ValueId, 2> results;
  for (size_t i = 0; i < all.size(); ++i)
    if (live[i]) results.push_back(node.results[i]);
  compact(body);
  node.attributes = scan_of(std::move(attributes), loop.body->name, std::move(body));
  node.operands = std::move(operands);
  node.results = std::move(results);
}

}  // namespace gradus::ir
