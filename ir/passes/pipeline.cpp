#include "gradus/passes.h"
#include "ir/passes/checkpoint_loops.h"
#include "ir/passes/hoist_invariants.h"
#include "ir/passes/join_parts.h"

namespace gradus::ir {

namespace {

struct Step {
  std::string_view name;
  void (*run)(Graph&);
};

constexpr Step steps[] = {
    {"expand_grad", [](Graph& g) { expand_grad(g); }},
    {"decompose", [](Graph& g) { decompose(g, false); }},
    {"checkpoint_loops", [](Graph& g) { checkpoint_loops(g); }},
    {"hoist_invariants", [](Graph& g) { hoist_invariants(g); }},
    {"eliminate_identities", [](Graph& g) { eliminate_identities(g); }},
    {"join_parts", [](Graph& g) { join_parts(g); }},
    {"eliminate_common_subexpressions", [](Graph& g) { eliminate_common_subexpressions(g); }},
    {"fold_constants", [](Graph& g) { fold_constants(g); }},  // equal constants would stay apart
    {"eliminate_dead_code", [](Graph& g) { eliminate_dead_code(g); }},
    {"compact", [](Graph& g) { compact(g); }},
};

}  // namespace

std::vector<std::string_view> pipeline_steps() {
  std::vector<std::string_view> names;
  for (const Step& s : steps) names.push_back(s.name);
  return names;
}

Graph lower(Graph graph, const DumpHook& dump) {
  for (const Step& step : steps) {
    step.run(graph);
    if (dump) dump(step.name, graph);
  }
  return graph;
}

}  // namespace gradus::ir
