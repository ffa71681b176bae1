#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/text.h"
#include "ir/text/lexer.h"
#include "ir/text/name_index.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

constexpr size_t line_width = 100;

class Naming {
 public:
  Naming(const Graph& graph, std::vector<std::string>& given)
      : graph_(graph), given_(given), index_(graph), seen_(graph.values.size(), false) {}

  void run() {
    given_.resize(graph_.values.size());
    // Inputs keep their names whatever else is called so: they are how a program is spoken to.
    for (const Stage& stage : graph_.stages)
      for (ValueId v : stage.inputs) claim(v);
    for (const Stage& stage : graph_.stages)
      for (const Node& node : stage.nodes)
        for (ValueId v : node.results) claim(v);
    for (size_t v = 0; v < graph_.values.size(); ++v) claim(static_cast<ValueId>(v));
    for (ValueId v : nameless_) name(v);
  }

 private:
  void claim(ValueId v) {
    if (index_of(v) >= seen_.size() || seen_[index_of(v)]) return;
    seen_[index_of(v)] = true;
    if (graph_[v].name.empty() || !index_.insert(v)) nameless_.push_back(v);
  }

  bool taken(std::string_view name) const { return index_.find(name) != no_value; }

  void name(ValueId v) {
    const std::string& own = graph_[v].name;
    uint64_t& next = next_[own];
    std::string& name = given_[index_of(v)];
    do {
      name = own.empty() ? fmt::format("v{}", next) : fmt::format("{}_{}", own, next + 1);
      ++next;
    } while (taken(name) || !invented_.insert(name).second);
  }

  const Graph& graph_;
  std::vector<std::string>& given_;
  NameIndex index_;
  std::vector<bool> seen_;
  std::vector<ValueId> nameless_;
  std::unordered_map<std::string_view, uint64_t> next_;  // number to try, by the value's own name
  std::unordered_set<std::string> invented_;
};

std::string type_text(const Graph& graph, ValueId v) {
  return index_of(v) < graph.values.size() ? ": " + to_string(graph[v].type) : "";
}

std::string operand_text(const Operand& o, const NameTable& names) {
  if (const ValueId* v = std::get_if<ValueId>(&o)) return names.shown(*v);
  if (const Dim* d = std::get_if<Dim>(&o)) return d->to_string();
  const Number* n = std::get_if<Number>(&o);
  if (!n) return "none";
  if (n->category == Category::floating) return float_text(n->floating);
  if (n->category == Category::boolean) return n->integer ? "true" : "false";
  return fmt::format("{}", n->integer);
}

// `text_of(attribute, graph)`: of an attribute that names this graph.
template <class F>
std::string node_text(const Node& node, const Graph& graph, const NameTable& names, F text_of) {
  std::string s;
  bool typed = ops::is_undefined(node);
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (i) s += ", ";
    s += names.shown(node.results[i]);
    if (typed) s += type_text(graph, node.results[i]);
  }
  if (!node.results.empty()) s += " = ";
  s += node.op ? node.op->name : "no operator";
  s += '(';
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (i) s += ", ";
    s += operand_text(node.operands[i], names);
  }
  s += ')';
  if (typed || !node.op || !node.attributes) return s;
  bool first = true;
  const auto graphs = ops::graphs_in(node);
  size_t next = 0;  // of them
  for (const NamedLiteral& a : node.op->write(node.attributes)) {
    s += first ? " {" : ", ";
    first = false;
    s += a.name + " = ";
    const auto* text = std::get_if<std::string>(&a.value.value);
    if (text && next < graphs.size() && *text == graphs[next]->name)
      s += text_of(a.name, *graphs[next++]);
    else
      s += to_string(a.value);
  }
  if (!first) s += '}';
  return s;
}

std::string quoted_name(const ops::GraphName& named, const NameTable& names) {
  return quoted(named.graph ? names.name(*named.graph) : named.name);
}

using Graphs = std::unordered_set<const Graph*>;

class Printer {
 public:
  // `apart`: graphs that were written in an instruction, and stand for themselves now. Borrowed, as
  // `called` is; either may be null.
  Printer(const Graph& graph, std::string& out, const GraphNames* called = nullptr,
          const Graphs* apart = nullptr)
      : graph_(graph), names_(graph, called), called_(called), apart_(apart), out_(out) {}

  void run() {
    out_ += fmt::format("graph {} {{\n", name_text(graph_.name));
    run_body();
  }
  void run_body() {
    for (const SizeRange& r : graph_.ranges) range(r);
    for (const SizeCondition& c : graph_.conditions) condition(c);
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      const size_t begin = out_.size();
      out_ += fmt::format("  stage {} (", s);
      stage(graph_.stages[s], begin, 2);
      out_ += '\n';
    }
    out_ += "}\n";
  }
  void run_inline(std::string_view attribute, size_t indent) {
    const size_t begin = out_.size();
    out_ += "graph ";
    if (graph_.name != attribute) out_ += name_text(graph_.name) + ' ';
    out_ += '(';
    stage(graph_.stages[0], begin, indent);
  }

 private:
  void range(const SizeRange& r) {
    out_ += "  size " + r.name;
    if (!r.group.empty()) out_ += fmt::format(" = ranks({})", name_text(r.group));
    if (r.group.empty() || r.least) out_ += fmt::format(" from {}", r.least);
    if (r.most) out_ += fmt::format(" to {}", *r.most);
    out_ += '\n';
  }

  void condition(const SizeCondition& c) {
    out_ += fmt::format("  require {} from {}", c.value.to_string(), c.least);
    if (c.most) out_ += fmt::format(" to {}", *c.most);
    if (!c.words.empty()) out_ += ' ' + quoted(c.words);
    out_ += '\n';
  }

  // From the inputs to the last brace, which stands `indent` to the right. `begin` is where the
  // line begins that the inputs stand in.
  void stage(const Stage& stage, size_t begin, size_t indent) {
    const std::string blanks(indent, ' ');
    for (size_t i = 0; i < stage.inputs.size(); ++i) {
      ValueId v = stage.inputs[i];
      item(i, names_.shown(v) + type_text(graph_, v), begin, blanks);
    }
    out_ += ") {\n";
    for (const Node& node : stage.nodes) {
      out_ += blanks + "  ";
      out_ += node_text(node, graph_, names_, [&](std::string_view attribute, const auto& named) {
        return graph_text(attribute, named, indent + 2);
      });
      out_ += '\n';
    }
    begin = out_.size();
    out_ += blanks + (stage.results.empty() ? "  return" : "  return ");
    for (size_t i = 0; i < stage.results.size(); ++i) {
      const Result& r = stage.results[i];
      if (r.value == no_value)
        item(i, name_text(r.name) + " = none", begin, blanks);
      else if (r.name == names_.name(r.value))
        item(i, names_.shown(r.value), begin, blanks);
      else
        item(i, fmt::format("{} = {}", name_text(r.name), names_.shown(r.value)), begin, blanks);
    }
    out_ += '\n' + blanks + '}';
  }

  std::string graph_text(std::string_view attribute, const ops::GraphName& named, size_t indent) {
    const Graph* graph = named.graph.get();
    if (!graph || !graph->written_inline || (apart_ && apart_->contains(graph)))
      return quoted_name(named, names_);
    std::string text;
    Printer(*graph, text, called_, apart_).run_inline(attribute, indent);
    return text;
  }

  // An item of a list; a long list goes on in a new line. `begin` is where the line begins.
  void item(size_t i, const std::string& text, size_t& begin, const std::string& blanks) {
    if (i) out_ += ',';
    if (i && out_.size() - begin + 1 + text.size() + 4 > line_width) {
      begin = out_.size() + 1;
      out_ += '\n' + blanks + "      ";
    } else if (i) {
      out_ += ' ';
    }
    out_ += text;
  }

  const Graph& graph_;
  NameTable names_;
  const GraphNames* called_;
  const Graphs* apart_;
  std::string& out_;
};

// Graphs that this one calls, and theirs, before those that call them. Does not recurse.
void append_callees(const Graph& graph, std::vector<const Graph*>& order,
                    std::unordered_set<const Graph*>& seen) {
  std::vector<std::pair<const Graph*, bool>> pending{{&graph, false}};
  while (!pending.empty()) {
    auto [g, entered] = pending.back();
    pending.pop_back();
    if (entered) {
      order.push_back(g);
      continue;
    }
    if (!seen.insert(g).second) continue;
    pending.emplace_back(g, true);
    for (const Stage& stage : g->stages)
      for (const Node& node : stage.nodes) {
        auto named = ops::graphs_in(node);
        for (size_t i = named.size(); i-- > 0;)
          if (named[i]->graph) pending.emplace_back(named[i]->graph.get(), false);
      }
  }
}

// Of graphs that were written in an instruction those that stand for themselves: several run them,
// or the instruction has another of the same name.
Graphs standing_apart(const std::vector<const Graph*>& graphs) {
  Graphs met, apart;
  for (const Graph* g : graphs)
    for (const Stage& stage : g->stages)
      for (const Node& node : stage.nodes) {
        const auto all = ops::graphs_in(node);
        for (const ops::GraphName* named : all) {
          if (!named->graph) continue;
          auto same = [&](const ops::GraphName* other) { return other->name == named->name; };
          const bool first = met.insert(named->graph.get()).second;
          if (!first || std::ranges::count_if(all, same) > 1 || named->graph->name != named->name)
            apart.insert(named->graph.get());
        }
      }
  return apart;
}

}  // namespace

std::string name_text(std::string_view name) {
  return is_plain_name(name) && name != "none" ? std::string(name) : quoted(name);
}

NameTable::NameTable(const Graph& graph, const GraphNames* called)
    : graph_(graph), called_(called) {
  Naming(graph, given_).run();
}

std::string NameTable::name(const Graph& called) const {
  if (called_)
    if (auto it = called_->find(&called); it != called_->end()) return it->second;
  return called.name;
}

std::string NameTable::name(ValueId v) const {
  if (index_of(v) >= given_.size()) return fmt::format("no value {}", index_of(v));
  const std::string& given = given_[index_of(v)];
  return given.empty() ? graph_[v].name : given;
}

std::string NameTable::shown(ValueId v) const {
  std::string n = name(v);
  return "%" + (is_plain_name(n) ? n : quoted(n));
}

std::string print(const Node& node, const Graph& graph, const NameTable& names) {
  return node_text(node, graph, names, [&](std::string_view, const ops::GraphName& named) {
    return quoted_name(named, names);
  });
}

std::string print(const Graph& graph) {
  std::vector<const Graph*> order;
  std::unordered_set<const Graph*> seen;
  append_callees(graph, order, seen);
  const Graphs apart = standing_apart(order);
  // Graphs that passes made may have names of others: those get a number, and equal ones are one.
  GraphNames called;
  std::unordered_map<std::string, std::string> known;  // by name and body: its name in the text
  std::unordered_set<std::string> taken{graph.name};
  std::string out;
  for (const Graph* g : order) {
    if (g != &graph && g->written_inline && !apart.contains(g)) continue;
    std::string body;
    Printer(*g, body, &called, &apart).run_body();
    const auto [same, first] = known.try_emplace(g->name + '\n' + body);
    if (first) {
      std::string& name = same->second = g->name;
      for (int n = 2; g != &graph && !taken.insert(name).second; ++n)
        name = fmt::format("{}_{}", g->name, n);
      out += fmt::format("{}graph {} {{\n{}", out.empty() ? "" : "\n", name_text(name), body);
    }
    called.emplace(g, same->second);
  }
  return out;
}

std::string print(const Module& module) {
  std::string out = fmt::format("gradus {}\n", text_version);
  for (const auto& graph : module.graphs) {
    out += '\n';
    Printer(*graph, out).run();
  }
  return out;
}

}  // namespace gradus::ir
