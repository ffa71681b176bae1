// Loops and branches as ONNX's Scan, Loop and If, whose graphs read what is around them.
#include "io/onnx/exporter.h"
#include "ops/control_flow.h"
#include "ops/structural.h"

namespace gradus::onnx {

namespace {

const ir::Type round_type(DType::i64, {}), condition_type(DType::boolean, {});

std::vector<ir::Type> types_of_inputs(const ir::Graph& g) {
  std::vector<ir::Type> types;
  for (ir::ValueId v : g.stages[0].inputs) types.push_back(g[v].type);
  return types;
}
std::vector<ir::Type> types_of_results(const ir::Graph& g) {
  std::vector<ir::Type> types;
  for (const ir::Result& r : g.stages[0].results) types.push_back(g[r.value].type);
  return types;
}

Wires operands_of(ExportCall& c) {
  Wires all;
  for (size_t i = 0; i < c.operands(); ++i) all.push_back(c.x(i));
  return all;
}

Wire turned(ModelWriter& to, const Wire& x) {
  return to.node("Slice", {x, to.integers({-1}), to.integers({INT64_MIN}), to.integers({0}),
                           to.integers({-1})});
}

Wires scan_sequences(ExportCall& c, const ops::Loop& loop) {
  ModelWriter& to = c.to;
  const Wires all = operands_of(c);
  const std::vector<ir::Type> types = types_of_inputs(*loop.body);
  to.begin_graph(loop.body->name);
  Wires in = all;
  for (size_t i = 0; i < loop.first_constant(); ++i) in[i] = to.graph_input(types[i]);
  const Wires out = export_graph(*loop.body, to, in);
  const InnerGraph body = to.end_graph(out, types_of_results(*loop.body));
  const int64_t backwards = loop.form->reverse;
  return to.nodes("Scan",
                  Wires(all.begin(), all.begin() + static_cast<ptrdiff_t>(loop.first_constant())),
                  {{"body", body},
                   {"num_scan_inputs", static_cast<int64_t>(loop.sequences)},
                   {"scan_input_directions", Ints(loop.sequences, backwards)},
                   {"scan_output_directions", Ints(out.size() - loop.carries, backwards)}},
                  out.size());
}

// Scan wants a sequence.
Wires scan_rounds(ExportCall& c, const ops::Loop& loop) {
  ModelWriter& to = c.to;
  const Wires all = operands_of(c);
  const std::vector<ir::Type> types = types_of_inputs(*loop.body);
  Wires given{to.scalar_size(*loop.form->length), Wire()};
  given.insert(given.end(), all.begin(), all.begin() + static_cast<ptrdiff_t>(loop.carries));
  to.begin_graph(loop.body->name);
  to.graph_input(round_type);
  Wires out{to.graph_input(condition_type)};
  Wires in = all;
  for (size_t i = 0; i < loop.carries; ++i) in[i] = to.graph_input(types[i]);
  const Wires found = export_graph(*loop.body, to, in);
  out.insert(out.end(), found.begin(), found.end());
  std::vector<ir::Type> given_types{condition_type};
  for (const ir::Type& t : types_of_results(*loop.body)) given_types.push_back(t);
  const InnerGraph body = to.end_graph(out, given_types);
  Wires results = to.nodes("Loop", given, {{"body", body}}, found.size());
  for (size_t i = loop.carries; loop.form->reverse && i < results.size(); ++i)
    results[i] = turned(to, results[i]);
  return results;
}

Wires loop_of_scan(ExportCall& c) {
  const ops::Loop loop = *ops::loop_in(c.node);
  return loop.sequences ? scan_sequences(c, loop) : scan_rounds(c, loop);
}

// Its condition is asked before, and at the end of every round.
Wires loop_of_while(ExportCall& c) {
  const ops::DataLoop loop = *ops::data_loop_in(*c.node.op, c.node.attributes);
  if (*loop.max_trips) c.refuse("max_trips");
  ModelWriter& to = c.to;
  const Wires all = operands_of(c);
  const std::vector<ir::Type> types = types_of_inputs(*loop.body);
  to.begin_sizes();
  Wires given{Wire(), export_graph(*loop.condition, to, all)[0]};
  to.end_sizes();
  given.insert(given.end(), all.begin(), all.begin() + static_cast<ptrdiff_t>(loop.carries));
  to.begin_graph(loop.body->name);
  to.graph_input(round_type);
  to.graph_input(condition_type);
  Wires in = all;
  for (size_t i = 0; i < loop.carries; ++i) in[i] = to.graph_input(types[i]);
  const Wires next = export_graph(*loop.body, to, in);
  std::copy(next.begin(), next.end(), in.begin());
  to.begin_sizes();
  Wires out = export_graph(*loop.condition, to, in);
  to.end_sizes();
  out.insert(out.end(), next.begin(), next.end());
  std::vector<ir::Type> given_types{condition_type};
  for (const ir::Type& t : types_of_results(*loop.body)) given_types.push_back(t);
  const InnerGraph body = to.end_graph(out, given_types);
  return to.nodes("Loop", given, {{"body", body}}, next.size());
}

Wires branch(ExportCall& c) {
  const Wires all = operands_of(c);
  const Wires in(all.begin() + 1, all.end());
  std::vector<NodeAttribute> branches;
  for (const char* name : {"then_branch", "else_branch"}) {
    const ir::Graph& branch = *ops::graphs_in(c.node)[branches.size()]->graph;
    c.to.begin_graph(branch.name);
    const Wires out = export_graph(branch, c.to, in);
    branches.push_back({name, c.to.end_graph(out, types_of_results(branch))});
  }
  return c.to.nodes("If", {all[0]}, std::move(branches), c.node.results.size());
}

// Its size is known by it from there on.
Wires counted_range(ExportCall& c) {
  const Wire zero = c.to.number(DType::i64, ir::Number::of(int64_t{0})),
             one = c.to.number(DType::i64, ir::Number::of(int64_t{1}));
  const Wire y = c.to.node("Range", {zero, c.x(), one});
  c.to.know_size(c.y_type().dims[0], y, 0);
  return {y};
}

constexpr ExportEntry loop_exports[] = {
    {"scan", loop_of_scan},
    {"while", loop_of_while},
    {"if", branch},
    {"range", counted_range},
};

}  // namespace

constinit const ExportRules control_exports = loop_exports;

}  // namespace gradus::onnx
