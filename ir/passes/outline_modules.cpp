// `outline_modules`: the modules of a model as graphs that the program calls.
#include <map>
#include <unordered_map>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

// Further modules stay part of the one at this depth: calls of calls do not nest without end.
constexpr size_t deepest = 50;

// The module's name up to that component: "m.h.0" of "m/h.0/attention", 2.
std::string name_up_to(std::string_view module, size_t depth) {
  std::string name;
  for (char c : module) {
    if (c == '/' && depth-- == 1) break;
    name += c == '/' ? '.' : c;
  }
  return name;
}

// Component `depth` of the module, counted from 0; empty: it has fewer.
std::string_view component(std::string_view module, size_t depth) {
  for (; depth && !module.empty(); --depth) {
    const size_t slash = module.find('/');
    module = slash == module.npos ? std::string_view() : module.substr(slash + 1);
  }
  return module.substr(0, module.find('/'));
}

class Outliner {
 public:
  Outliner(Graph& graph, Stage& stage) : graph_(graph), nodes_(stage.nodes) {
    last_read_.assign(graph.values.size(), 0);
    for (size_t n = 0; n < nodes_.size(); ++n)
      for (const Operand& o : nodes_[n].operands)
        if (value_in(o) != no_value) last_read_[index_of(value_in(o))] = n;
    for (const Stage& s : graph.stages) {
      if (&s != &stage)
        for (const Node& node : s.nodes)
          for (const Operand& o : node.operands) read_outside(value_in(o));
      for (const Result& r : s.results) read_outside(r.value);
    }
  }
  std::vector<Node> run() { return outlined(0, nodes_.size(), 0); }

 private:
  void read_outside(ValueId v) {
    if (v != no_value) last_read_[index_of(v)] = SIZE_MAX;
  }
  std::string_view module_of(size_t n) const {
    const size_t line = nodes_[n].where.line;
    const auto& modules = graph_.source->modules;
    return line && line <= modules.size() ? std::string_view(modules[line - 1])
                                          : std::string_view();
  }

  // The nodes [begin, end), which have the first `depth` components in common.
  std::vector<Node> outlined(size_t begin, size_t end, size_t depth) {
    std::vector<Node> out;
    if (depth == deepest) {
      out.assign(nodes_.begin() + static_cast<ptrdiff_t>(begin),
                 nodes_.begin() + static_cast<ptrdiff_t>(end));
      return out;
    }
    for (size_t i = begin, next; i < end; i = next) {
      const std::string_view own = component(module_of(i), depth);
      next = i + 1;
      while (!own.empty() && next < end && component(module_of(next), depth) == own) ++next;
      if (next == i + 1) {
        out.push_back(nodes_[i]);
      } else if (i == begin && next == end) {
        return outlined(begin, end, depth + 1);
      } else {
        std::vector<Node> inner = outlined(i, next, depth + 1);
        if (std::optional<Node> call = called(inner, i, next, depth))
          out.push_back(std::move(*call));
        else
          std::ranges::move(inner, std::back_inserter(out));
      }
    }
    return out;
  }

  // The nodes, in the place of [begin, end), as the call of a graph. Nothing where they cannot be
  // one: where the graph's inputs do not determine its sizes, or data do.
  std::optional<Node> called(const std::vector<Node>& nodes, size_t begin, size_t end,
                             size_t depth) {
    auto body = std::make_shared<Graph>();
    body->name = name_up_to(module_of(begin), depth + 1);
    body->source = graph_.source;
    Stage& stage = body->stages.emplace_back();
    Node call{&ops::call_operator(), {}, {}, {}, nodes_[begin].where};
    std::unordered_map<ValueId, ValueId> to;
    auto copy = [&](ValueId v) {
      auto [it, fresh] = to.try_emplace(v, no_value);
      if (fresh) it->second = body->add_value(graph_[v].type, graph_[v].name, 0);
      return std::pair(it->second, fresh);
    };
    for (const Node& node : nodes) {
      if (node.op->data_sized) return std::nullopt;
      Node& n = stage.nodes.emplace_back(node);
      for (Operand& o : n.operands)
        if (const ValueId v = value_in(o); v != no_value) {
          auto [inside, is_input] = copy(v);
          if (is_input) {
            stage.inputs.push_back(inside);
            call.operands.push_back(v);
          }
          o = inside;
        }
      for (ValueId& v : n.results) {
        const ValueId outside = v;
        v = copy(v).first;
        if (last_read_[index_of(outside)] < end) continue;
        stage.results.push_back({fmt::format("y{}", stage.results.size()), v});
        call.results.push_back(outside);
      }
    }
    const std::string name = body->name;
    call.attributes = ops::call_attributes({name, std::move(body)});
    try {
      const auto types = ops::infer(graph_, call, nullptr, call.results.size());
      for (size_t r = 0; r < types.size(); ++r)
        if (types[r] != graph_[call.results[r]].type) return std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
    return call;
  }

  const Graph& graph_;
  const std::vector<Node>& nodes_;
  std::vector<size_t> last_read_;  // by value: the last node; SIZE_MAX: it outlives the stage
};

}  // namespace

void outline_modules(Graph& graph) {
  if (!graph.source || graph.source->modules.empty()) return;
  for (Stage& stage : graph.stages) stage.nodes = Outliner(graph, stage).run();
}

}  // namespace gradus::ir
