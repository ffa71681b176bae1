// Programs for many inputs at once.
#include "ir/passes/stage_builder.h"

namespace gradus::ir {

namespace {

Type with_size_in_front(const Type& type, const Dim& size) {
  Type more = type;
  more.dims.insert(more.dims.begin(), size);
  return more;
}

// The last stage again, with a dimension `size` in front of the inputs that `chosen` says, and of
// all results.
Graph batch_last_stage(const Graph& graph, const Dim& size,
                       const std::function<bool(const Value&)>& chosen) {
  StageBuilder b(graph);
  std::unordered_map<ValueId, ValueId> by;
  for (ValueId v : std::exchange(b.stage().inputs, {})) {
    if (chosen(b.graph()[v]))
      by.emplace(v, b.replace_input(v, with_size_in_front(b.type(v), size)));
    else
      b.stage().inputs.push_back(v);
  }
  StageBuilder::Values wanted;
  for (const Result& r : b.stage().results) wanted.push_back(r.value);
  wanted = b.batch(0, std::move(by), size, std::move(wanted));
  for (size_t i = 0; i < wanted.size(); ++i) b.stage().results[i].value = wanted[i];
  return b.finish();
}

}  // namespace

Graph batch_cotangents(const Graph& graph, const Dim& size) {
  if (graph.stages.size() < 2)
    throw Error(
        "'{}' has one stage, and no cotangents; append derivative stages first (gradus grad: "
        "--order 1 or more)",
        graph.name);
  return batch_last_stage(graph, size, [](const Value&) { return true; });
}

Graph batch(const Graph& graph, const std::vector<std::string>& inputs, const Dim& size) {
  if (graph.stages.size() != 1)
    throw Error("batch takes a program of one stage; '{}' has {}", graph.name, graph.stages.size());
  std::unordered_set<std::string_view> left(inputs.begin(), inputs.end());
  Graph batched =
      batch_last_stage(graph, size, [&left](const Value& x) { return left.erase(x.name) != 0; });
  if (!left.empty()) throw Error("there is no input '{}' to batch", *left.begin());
  return batched;
}

}  // namespace gradus::ir
