#include "tests/corpus/sizes.h"

#include <algorithm>

#include "ops/structural.h"
#include "tests/corpus/eager.h"

namespace gradus::corpus {

ir::Dim with_sizes(const ir::Dim& d, const SizeOf& size_of) {
  return d.substitute([&](std::string_view name) -> std::optional<ir::Dim> {
    if (auto n = size_of(name)) return ir::Dim(*n);
    return std::nullopt;
  });
}

bool set_sizes(ir::Literal& l, const SizeOf& size_of) {
  bool any = false;
  if (auto* d = std::get_if<ir::Dim>(&l.value); d && !d->is_constant()) {
    *d = with_sizes(*d, size_of);
    any = true;
  }
  if (auto* list = std::get_if<std::vector<ir::Literal>>(&l.value))
    for (ir::Literal& item : *list) any |= set_sizes(item, size_of);
  return any;
}

Subject with_known_sizes(const Subject& subject) {
  State state(subject.code);
  state.run(subject.inputs[0]);
  SizeOf size_of = [&](std::string_view name) { return state.dimension(name); };
  ir::Graph graph = subject.graph;
  graph.stages.resize(1);
  ir::compact(graph);
  for (ir::Value& v : graph.values)
    for (ir::Dim& d : v.type.dims) d = with_sizes(d, size_of);
  for (ir::Node& node : graph.stages[0].nodes) {
    ir::LiteralList attributes = node.op->write(node.attributes);
    bool any = false;
    for (ir::NamedLiteral& a : attributes) any |= set_sizes(a.value, size_of);
    if (any) node.attributes = ops::with_literals(node, attributes);
    for (ir::Operand& o : node.operands)
      if (auto* d = std::get_if<ir::Dim>(&o)) o = ir::Number::of(with_sizes(*d, size_of).value());
  }
  return derived(subject, graph);
}

bool can_know_sizes(const Subject& subject) {
  return is_derived(subject) && std::ranges::all_of(subject.graph.values, [](const ir::Value& v) {
           return v.type.is_tensor();
         });
}

}  // namespace gradus::corpus
