#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "gradus/messages.h"
#include "gradus/registry.h"
#include "gradus/text.h"
#include "ir/text/data_sized.h"
#include "ir/text/settle.h"
#include "ops/opaque.h"
#include "ops/structural.h"

namespace gradus::ir {

namespace {

std::string why_not_countable(const Type& type) {
  for (const Dim& d : type.dims) {
    if (d.is_constant() && d.value() < 0)
      return fmt::format("has a negative size, {} [V11]", d.value());
    std::optional<std::string> odd;
    d.for_each_symbol([&](std::string_view name) {
      if (!is_plain_name(name) || is_reserved(name)) odd = name;
    });
    if (odd)
      return fmt::format("has a size named '{}', which is no name of a dimension [V11]",
                         printable(*odd));
  }
  Sizes sizes;
  for (const Dim& d : type.dims) sizes.push_back(d.is_constant() ? d.value() : 1);
  auto count = checked_numel(sizes);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(size_of(type.dtype)), &bytes))
    return fmt::format("is {}, which has more elements than can be counted [V11]", to_string(type));
  return "";
}

std::string why_no_device(const Type& type) {
  if (type.device.kind != DeviceKind::other) return "";
  return fmt::format("lies on {}, which no program can name [V13]", to_string(type.device));
}

// Of the operators that there are: whether they have attributes. Nothing for others.
std::optional<bool> has_attributes(const Operator* op) {
  static const auto table = [] {
    std::unordered_map<const Operator*, bool> t;
    for (const Operator* known : ops::built_in()) t.emplace(known, !known->describe().empty());
    return t;
  }();
  if (auto known = table.find(op); known != table.end()) return known->second;
  if (ops::is_added(op)) return !op->describe().empty();
  return std::nullopt;
}

bool counts(const Node& node) {
  return node.op && node.op->data_sized && node.attributes &&
         ops::count_in(*node.op, node.attributes);
}

}  // namespace

const Node* DataSizedNodes::first_in(const std::shared_ptr<const Graph>& graph) {
  auto [known, fresh] = known_.emplace(graph, nullptr);
  if (!fresh) return known->second;
  for (const Stage& stage : graph->stages)
    for (const Node& node : stage.nodes)
      if (counts(node)) return known->second = &node;
  return nullptr;
}

std::string why_wrong_range(const Graph& graph, size_t i) {
  const SizeRange& r = graph.ranges[i];
  if (!is_plain_name(r.name) || is_reserved(r.name))
    return fmt::format("a range is of '{}', which is no name of a dimension [V15]",
                       printable(r.name));
  for (size_t k = 0; k < i; ++k)
    if (graph.ranges[k].name == r.name)
      return fmt::format("the size '{}' has two ranges [V15]", printable(r.name));
  if (r.least >= 0 && r.least <= r.most.value_or(INT64_MAX)) return "";
  return fmt::format("the size '{}' ranges from {} to {}, which no size does [V15]",
                     printable(r.name), r.least, r.most.value_or(INT64_MAX));
}

std::string why_wrong_condition(const SizeCondition& c) {
  if (c.least >= 0 && c.least <= c.most.value_or(INT64_MAX)) return "";
  return fmt::format("the condition is from {} to {}, which holds for no sizes [V15]", c.least,
                     c.most.value_or(INT64_MAX));
}

namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, bool types, DataSizedNodes& data_sized)
      : graph_(graph), types_(types), data_sized_(data_sized) {}

  void run() {
    if (graph_.stages.empty()) fail({}, "there is no stage; a program has at least one [V1]");
    check_ranges();
    defined_.assign(graph_.values.size(), false);
    for (stage_ = 0; stage_ < graph_.stages.size(); ++stage_) {
      const Stage& stage = graph_.stages[stage_];
      check_inputs(stage);
      for (node_ = 0; node_ < stage.nodes.size(); ++node_) check_node(stage.nodes[node_]);
      check_results(stage);
    }
  }

  // The graphs that are called, each once.
  const std::vector<const Graph*>& callees() const { return callees_; }

 private:
  template <class... Args>
  [[noreturn]] void fail(SourceLocation where, fmt::format_string<Args...> format,
                         Args&&... args) const {
    std::string place = graph_.stages.empty() ? fmt::format("graph '{}': ", printable(graph_.name))
                                              : fmt::format("stage {}: ", stage_);
    throw graph_.error_at(where, place + fmt::format(format, std::forward<Args>(args)...));
  }

  void check_ranges() {
    for (size_t i = 0; i < graph_.ranges.size(); ++i) {
      if (!graph_.ranges[i].group.empty()) known_.insert(graph_.ranges[i].name);
      if (std::string why = why_wrong_range(graph_, i); !why.empty()) fail({}, "{}", why);
    }
    for (const SizeCondition& c : graph_.conditions)
      if (std::string why = why_wrong_condition(c); !why.empty()) fail({}, "{}", why);
  }

  std::string name(ValueId v) const {
    if (names_.empty()) names_.emplace_back(graph_);
    return names_[0].shown(v);
  }

  bool exists(ValueId v) const { return index_of(v) < graph_.values.size(); }

  // `what` tells what the value is here, when a message needs it.
  template <class What>
  void define(ValueId v, SourceLocation where, What what) {
    if (!exists(v))
      fail(where, "{} is value number {}, and there are {} [V2]", what(), index_of(v),
           graph_.values.size());
    if (defined_[index_of(v)])
      fail(where, "{}, '{}', is defined already; a value is defined once [V3]", what(), name(v));
    if (graph_[v].stage != stage_)
      fail(where, "{}, '{}', is said to be of stage {} [V5]", what(), name(v), graph_[v].stage);
    defined_[index_of(v)] = true;
  }

  template <class What>
  void use(ValueId v, SourceLocation where, What what) const {
    if (!exists(v))
      fail(where, "{} is value number {}, and there are {} [V2]", what(), index_of(v),
           graph_.values.size());
    if (!defined_[index_of(v)])
      fail(where, "{}, '{}', is not defined before it is used [V4]", what(), name(v));
  }

  void check_inputs(const Stage& stage) {
    std::vector<const Type*> types;
    for (ValueId v : stage.inputs) {
      define(v, {}, [&] { return fmt::format("input {}", types.size()); });
      const Value& value = graph_[v];
      if (value.name.empty()) fail({}, "input {} has no name [V10]", types.size());
      if (!input_names_.insert(value.name).second)
        fail({}, "input '%{}' has the name of another input [V10]", printable(value.name));
      if (std::string why = why_no_input(value.type); !why.empty())
        fail({}, "input '%{}' {}", printable(value.name), why);
      if (value.type.device != Device()) {
        if (device_ && *device_ != value.type.device)
          fail({}, "input '%{}' lies on {}, another one on {}; a program runs on one device [V13]",
               printable(value.name), to_string(value.type.device), to_string(*device_));
        device_ = value.type.device;
      }
      types.push_back(&value.type);
    }
    if (auto unsettled = settle_names(types, known_))
      fail(
          {},
          "no input determines the size '{}', which is needed for the size {} of input '%{}' [V12]",
          unsettled->name, unsettled->size.to_string(),
          printable(graph_[stage.inputs[unsettled->input]].name));
  }

  void check_node(const Node& node) {
    const std::optional<bool> attributes = has_attributes(node.op);
    if (!attributes) fail(node.where, "node {} has no operator that is known [V6]", node_);
    if (!node.attributes)
      fail(node.where, "node {}, '{}', has no attributes, not even empty ones [V6]", node_,
           node.op->name);
    check_operands(node);
    if (*attributes) check_attributes(node);
    for (const ops::GraphName* named : ops::graphs_in(node)) check_graph(node, *named);
    for (ValueId v : node.results)
      define(v, node.where, [&] { return fmt::format("a result of '{}'", node.op->name); });
    if (types_) check_types(node);
    for (ValueId v : node.results) {
      // Sizes of results follow from those of inputs: the type rule has looked at them.
      if (std::string why = why_no_device(graph_[v].type); !why.empty())
        fail(node.where, "'{}' {}", name(v), why);
    }
  }

  void check_operands(const Node& node) const {
    const Operator& op = *node.op;
    if (std::string why = why_wrong_operands(op, node.operands); !why.empty())
      fail(node.where, "{}", why);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (const ValueId* v = std::get_if<ValueId>(&node.operands[i])) {
        use(*v, node.where, [&] { return fmt::format("operand {} of '{}'", i, op.name); });
        if (!graph_[*v].type.is_tensor() && !op.traits.takes_handle)
          fail(node.where, "operand {} of '{}', '{}', is a handle, which only `eval` takes [V8]", i,
               op.name, name(*v));
      } else if (const Dim* d = std::get_if<Dim>(&node.operands[i])) {
        check_known(*d, node, [&] { return fmt::format("operand {}", i); });
      }
    }
  }

  template <class What>
  void check_known(const Dim& d, const Node& node, What what) const {
    if (d.is_constant()) return;
    std::string unknown;
    d.for_each_symbol([&](std::string_view s) {
      if (!known_.contains(std::string(s))) unknown = s;
    });
    if (!unknown.empty())
      fail(node.where,
           "no input of this stage or of an earlier one determines the size '{}' in {} of '{}' "
           "[V12]",
           printable(unknown), what(), node.op->name);
  }

  void check_attributes(const Node& node) {
    LiteralList list = node.op->write(node.attributes);
    // A name that nothing has settled yet is settled by the data.
    if (node.op->data_sized)
      if (auto count = ops::count_in(*node.op, node.attributes))
        if (!count->symbol_name().empty()) known_.insert(std::string(count->symbol_name()));
    std::vector<const Literal*> pending;
    for (const NamedLiteral& a : list) {
      pending.push_back(&a.value);
      while (!pending.empty()) {
        const Literal* l = pending.back();
        pending.pop_back();
        if (auto* items = std::get_if<std::vector<Literal>>(&l->value))
          for (const Literal& item : *items) pending.push_back(&item);
        else if (auto* d = std::get_if<Dim>(&l->value))
          check_known(*d, node, [&] { return fmt::format("attribute '{}'", a.name); });
      }
    }
  }

  void check_graph(const Node& node, const ops::GraphName& named) {
    const Graph* target = named.graph.get();
    if (!target)
      fail(node.where, "the graph '{}' of a call is not known [V14]", printable(named.name));
    if (target->stages.size() != 1)
      fail(node.where, "graph '{}' has {} stages; a graph that is called has one [V14]",
           printable(target->name), target->stages.size());
    const Node* data_sized = data_sized_.first_in(named.graph);
    if (data_sized && ops::is_call(node))
      fail(node.where,
           "graph '{}' has '{}', the size of whose result data decides, and cannot be called; "
           "write its nodes in the place of the call [V14]",
           printable(target->name), data_sized->op->name);
    // The rest of the graph is looked at later, but its signature is needed now.
    bool sound = true;
    for (ValueId v : target->stages[0].inputs) sound &= index_of(v) < target->values.size();
    for (const Result& r : target->stages[0].results)
      sound &= r.value == no_value || index_of(r.value) < target->values.size();
    if (!sound)
      fail(node.where, "graph '{}' has an input or result that is not in its table [V14]",
           printable(target->name));
    if (data_sized) check_results(node, *target);
    if (seen_callees_.insert(target).second) callees_.push_back(target);
  }

  // What a loop or branch gives has sizes that are known outside.
  void check_results(const Node& node, const Graph& target) {
    const Stage& stage = target.stages[0];
    std::vector<const Type*> types;
    for (ValueId v : stage.inputs) types.push_back(&target[v].type);
    DimensionNames known;
    settle_names(types, known);
    for (const Result& r : stage.results) {
      if (r.value == no_value) continue;
      for (const Dim& d : target[r.value].type.dims)
        d.for_each_symbol([&](std::string_view name) {
          if (!known.contains(std::string(name)))
            fail(node.where,
                 "graph '{}' returns '{}', and data decide its size '{}' in each step; what '{}' "
                 "gives has one size: return a sum, or what has the sizes of inputs [V14]",
                 printable(target.name), printable(r.name), printable(name), node.op->name);
        });
    }
  }

  void check_types(const Node& node) const {
    SmallVector<Type, 2> types;
    try {
      types = ops::infer(graph_, node, nullptr);
    } catch (const Error& e) {
      fail(node.where, "{} [V9]", e.bare());
    }
    if (types.size() != node.results.size())
      fail(node.where, "'{}' gives {} results, the node has {} [V9]", node.op->name, types.size(),
           node.results.size());
    for (size_t i = 0; i < types.size(); ++i)
      if (!(types[i] == graph_[node.results[i]].type))
        fail(node.where, "'{}' is said to be {}, but '{}' gives {} [V9]", name(node.results[i]),
             to_string(graph_[node.results[i]].type), node.op->name, to_string(types[i]));
  }

  void check_results(const Stage& stage) const {
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < stage.results.size(); ++i) {
      const Result& r = stage.results[i];
      if (r.name.empty()) fail({}, "result {} has no name [V10]", i);
      if (!names.insert(r.name).second)
        fail({}, "two results have the name '{}' [V10]", printable(r.name));
      if (r.value == no_value) continue;
      use(r.value, {}, [&] { return fmt::format("result '{}'", printable(r.name)); });
      if (!graph_[r.value].type.is_tensor())
        fail({}, "result '{}', '{}', is a handle, which only `eval` takes [V8]", printable(r.name),
             name(r.value));
    }
  }

  const Graph& graph_;
  bool types_;
  DataSizedNodes& data_sized_;
  size_t stage_ = 0, node_ = 0;
  std::vector<bool> defined_;  // by value
  std::unordered_set<std::string_view> input_names_;
  std::optional<Device> device_;  // that inputs so far name
  DimensionNames known_;
  std::vector<const Graph*> callees_;
  std::unordered_set<const Graph*> seen_callees_;
  mutable std::vector<NameTable> names_;  // made for the first message
};

// The graph and all that it calls, each once; `path` is the chain of calls that are being looked
// at.
void verify_all(const Graph& program) {
  struct Open {
    const Graph* graph;
    std::vector<const Graph*> callees;
    size_t next = 0;
  };
  std::unordered_set<const Graph*> done, open;
  std::vector<Open> path;
  DataSizedNodes data_sized;
  auto enter = [&](const Graph& graph) {
    Verifier verifier(graph, true, data_sized);
    verifier.run();
    open.insert(&graph);
    path.push_back({&graph, verifier.callees()});
  };
  enter(program);
  while (!path.empty()) {
    Open& top = path.back();
    if (top.next == top.callees.size()) {
      open.erase(top.graph);
      done.insert(top.graph);
      path.pop_back();
      continue;
    }
    const Graph* callee = top.callees[top.next++];
    if (open.contains(callee))
      throw callee->error_at({},
                             fmt::format("graph '{}' calls itself [V14]", printable(callee->name)));
    if (path.size() > deepest_call)
      throw callee->error_at({},
                             fmt::format("calls are nested more than {} deep [V14]", deepest_call));
    if (!done.contains(callee)) enter(*callee);
  }
}

}  // namespace

std::string why_no_input(const Type& type) {
  if (!type.is_tensor())
    return "would be a handle, which cannot enter a program: only `eval` takes one [V8]";
  if (std::string why = why_not_countable(type); !why.empty()) return why;
  return why_no_device(type);
}

std::string why_wrong_operands(const Operator& op, std::span<const Operand> operands) {
  size_t most = op.operands.size();
  bool variadic = most > 0 && op.operands.back().variadic;
  if (operands.size() > most && !variadic)
    return fmt::format("'{}' takes {} operand{}, {} are given [V7]", op.name, most,
                       most == 1 ? "" : "s", operands.size());
  for (size_t i = 0; i < std::max(most, operands.size()); ++i) {
    const OperandSpec& spec = op.operand(i);
    bool beyond = i >= operands.size();
    if (spec.optional || (beyond && spec.variadic) || (!beyond && !is_none(operands[i]))) continue;
    std::string names;
    for (const OperandSpec& o : op.operands)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", o.name);
    return fmt::format("'{}' lacks its operand '{}'; its operands are: {} [V7]", op.name, spec.name,
                       names);
  }
  return "";
}

void verify(const Graph& graph) { verify_all(graph); }
void verify_but_types(const Graph& graph) {
  DataSizedNodes data_sized;
  verify_but_types(graph, data_sized);
}
void verify_but_types(const Graph& graph, DataSizedNodes& data_sized) {
  Verifier(graph, false, data_sized).run();
}

}  // namespace gradus::ir
