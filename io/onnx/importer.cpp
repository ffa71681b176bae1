#include "io/onnx/importer.h"

#include <algorithm>
#include <filesystem>

#include <onnx/onnx_pb.h>

#include "gradus/messages.h"
#include "gradus/registry.h"
#include "io/onnx/later_fields.h"
#include "io/onnx/narrow.h"

namespace gradus::onnx {

namespace pb = ::onnx;

namespace {

// Unrolled loops and functions that use functions may grow beyond what any machine holds.
constexpr size_t most_applied = 1'000'000;
constexpr int deepest = 100;
// Of the classical models' operators.
constexpr int newest_ml_opset = 5;
// A weight's value is looked through for what decides structure only if it is small.
constexpr int64_t most_looked_through = 1024;

std::string place_of(const pb::NodeProto& node) {
  std::string op = printable(node.op_type());
  if (!node.name().empty()) return fmt::format("node '{}' ({})", printable(node.name()), op);
  if (node.output_size() > 0)
    return fmt::format("the node of '{}' ({})", printable(node.output(0)), op);
  return fmt::format("a node without results ({})", op);
}

// The module that a node is part of, as in ir::Source::modules, within the module around. The names
// of PyTorch's first exporter are paths: "/encoder/layers.0/MatMul".
std::string module_of(const pb::NodeProto& node, const std::string& around) {
  std::string module = around;
  std::vector<std::string> scopes = scopes_of(node);
  if (!scopes.empty()) {
    scopes.pop_back();
    std::string_view outer;
    for (const std::string& scope : scopes) {
      enter_module(module, name_within(outer, scope));
      if (!scope.empty()) outer = scope;
    }
    return module;
  }
  std::string_view name = node.name();
  for (size_t slash; (slash = name.find('/')) != name.npos; name.remove_prefix(slash + 1))
    enter_module(module, name.substr(0, slash));
  return module;
}

std::string line_of(const pb::NodeProto& node, const std::string& around) {
  std::string line = node.output_size() > 0 ? printable(node.output(0)) + " = " : "";
  line += printable(node.op_type());
  if (!node.name().empty()) line += "  # " + printable(node.name());
  if (!around.empty()) line += " in " + printable(around);
  return line;
}

// Gives a variable back what it was, also where an Error passes: importing may go on another way.
template <class T>
class Restored {
 public:
  explicit Restored(T& place) : place_(place), before_(place) {}
  ~Restored() { place_ = std::move(before_); }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  T& place_;
  T before_;
};

std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

}  // namespace

SmallVector<Value, 2> FoldingWorld::emit(const ops::Operator& op, ir::Attributes attributes,
                                         std::span<const Value> operands) {
  SmallVector<ir::OperandType, 4> types;
  for (const Value& v : operands) {
    if (std::holds_alternative<Dim>(v.operand)) throw TooLarge();
    types.push_back(v.operand_type());
  }
  if (made_bytes_ > most_made_bytes) throw TooLarge();
  // What data sizes cannot be known before it is computed; it is no larger than its operands.
  if (!op.data_sized)
    for (const ir::Type& t : ops::infer(op, types, attributes, nullptr)) {
      if (!ir::all_constant(t.dims)) throw TooLarge();
      Sizes sizes;
      for (const Dim& d : t.dims) sizes.push_back(d.value());
      auto elements = checked_numel(sizes);
      if (!elements || *elements > most_bytes / 8) throw TooLarge();
    }
  auto results = eager_.emit(op, std::move(attributes), operands);
  for (Value& v : results) {
    if (v.is_tensor()) made_bytes_ += ops::EagerWorld::tensor(v).numel() * 8;
    v.world = this;
  }
  return results;
}

Importer::Importer(const pb::ModelProto& model, const Folder& folder, const ImportOptions& options,
                   bool fix_all, const std::string& name)
    : model_(model), lines_(name), program_(model, folder, options, fix_all), folding_(*context_) {
  program_.graph().source = lines_.source();
}

void Importer::check_versions() {
  for (const auto& o : model_.opset_import()) {
    std::string domain = domain_of(o.domain());
    bool sane = o.version() > 0 && o.version() < 1'000'000;
    if (!sane) throw Error("version {} of operators is none", o.version());
    if (domain.empty() && (o.version() > newest_opset || o.version() < oldest_opset))
      throw Unsupported(
          fmt::format("the model uses version {} of ONNX's operators; {} to {} are known here",
                      o.version(), oldest_opset, newest_opset),
          fmt::format("operators of version {}", o.version()));
    if (domain == "ai.onnx.ml" && o.version() > newest_ml_opset)
      throw Unsupported(
          fmt::format("the model uses version {} of the operators of ai.onnx.ml; 1 to {} are known "
                      "here",
                      o.version(), newest_ml_opset),
          fmt::format("operators of ai.onnx.ml of version {}", o.version()));
    opsets_[domain] = static_cast<int>(o.version());
  }
  if (opsets_.empty() && model_.ir_version() < 3) opsets_[""] = 1;
  if (opsets_.empty()) throw Error("the model does not say which version of operators it uses");
}

void Importer::run_nodes(const pb::GraphProto& graph, Scope& scope) {
  for (const auto& node : graph.node()) run_node(node, scope);
}

void Importer::run_node(const pb::NodeProto& node, Scope& scope) {
  const Restored around(scope_);
  scope_ = &scope;
  program_.world().set_place(lines_.add(line_of(node, module_), module_of(node, module_)));
  try {
    count(1);
    std::vector<ItemPtr> inputs;
    for (const std::string& name : node.input()) {
      if (name.empty()) {
        inputs.push_back(nullptr);
        continue;
      }
      const ItemPtr* item = scope.find(name);
      if (!item)
        throw Error(
            "no earlier node gives its input '{}': the graph has a cycle, or its nodes are "
            "not in order",
            printable(name));
      inputs.push_back(*item);
    }
    while (!inputs.empty() && !inputs.back()) inputs.pop_back();
    bind_outputs(node, apply(node, inputs), scope);
  } catch (const NeedsValue& e) {
    throw NeedsValue(place_of(node) + ": " + e.message(), e.reason());
  } catch (const Unsupported& e) {
    throw Unsupported(place_of(node) + ": " + e.message(), e.reason());
  } catch (const Error& e) {
    throw Error(place_of(node) + ": " + e.bare());
  }
}

void Importer::bind_outputs(const pb::NodeProto& node, std::vector<ItemPtr> results, Scope& scope) {
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    auto at = static_cast<size_t>(i);
    if (at >= results.size() || !results[at])
      throw Unsupported(fmt::format("its result {} is not supported", i),
                        fmt::format("{} with result {}", node.op_type(), i));
    Item& item = *results[at];
    if (item.name.empty()) item.name = name;
    ir::ValueId id = ir::GraphWorld::id_of(item.value);
    if (item.value.world && program_.graph()[id].name.empty()) program_.graph()[id].name = name;
    if (!scope.items.emplace(name, results[at]).second)
      throw Error("'{}' is defined twice", printable(name));
  }
}

std::vector<ItemPtr> Importer::apply(const pb::NodeProto& node,
                                     const std::vector<ItemPtr>& inputs) {
  std::string domain = domain_of(node.domain());
  for (const auto& f : model_.functions())
    if (f.name() == node.op_type() && domain_of(f.domain()) == domain &&
        overload_of(f) == overload_of(node))
      return apply_function(f, node, inputs);
  auto opset = opsets_.find(domain);
  if (opset == opsets_.end())
    throw Error("the model imports no operators of the domain '{}'", printable(domain));
  std::string name = domain.empty() ? node.op_type() : domain + "." + node.op_type();
  const RuleEntry* rule = find_rule(name, opset->second);
  if (rule) return apply_rule(*rule, node, opset->second, inputs);
  std::string shown = printable(name);
  if (has_rule(name))
    throw Unsupported(fmt::format("the operator is not supported as of version {}", opset->second),
                      fmt::format("operator {} of version {}", shown, opset->second));
  throw Unsupported("the operator is not supported", "operator " + shown);
}

void Importer::note_fixed(const std::vector<ItemPtr>& inputs) {
  for (const ItemPtr& i : inputs)
    if (i && i->input && i->known.defined()) program_.fix(*i);
}

std::vector<ItemPtr> Importer::apply_rule(const RuleEntry& rule, const pb::NodeProto& node,
                                          int opset, const std::vector<ItemPtr>& inputs) {
  const NarrowType* moved = narrow_type_moved(node.op_type(), inputs);
  std::vector<ItemPtr> results = run_rule(rule, node, opset, inputs);
  for (const ItemPtr& r : results)
    if (moved && r) r->narrow = moved;
  return results;
}

std::vector<ItemPtr> Importer::run_rule(const RuleEntry& rule, const pb::NodeProto& node, int opset,
                                        const std::vector<ItemPtr>& inputs) {
  bool all_known = rule.folds, from_weights = false, small = true, named = false;
  for (const ItemPtr& i : inputs) {
    if (!i) continue;
    all_known = all_known && i->is_tensor() && i->known.defined();
    from_weights = from_weights || i->follows_weights;
    small = small && (!i->known.defined() || i->known.numel() <= most_looked_through);
    named = named || i->sizes.has_value();
  }
  if (named) {
    Call call(*this, rule, node, opset, program_.world(), false, inputs);
    if (ItemPtr folded = fold_sizes(call)) {
      note_fixed(inputs);
      return {folded};
    }
  }
  auto fold = [&]() -> std::vector<ItemPtr> {
    Call call(*this, rule, node, opset, folding_, true, inputs);
    try {
      rule.rule(call);
    } catch (const TooLarge&) {
      return {};
    }
    note_fixed(inputs);
    return std::move(call.results());
  };
  if (all_known && !from_weights)
    if (auto results = fold(); !results.empty()) return results;
  Call call(*this, rule, node, opset, program_.world(), false, inputs);
  rule.rule(call);
  std::vector<ItemPtr> results = std::move(call.results());
  if (!from_weights) return results;
  std::vector<ItemPtr> values;
  if (all_known && small) values = fold();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i] || !results[i]->value.world) continue;
    results[i]->follows_weights = true;
    if (i < values.size() && values[i]) results[i]->known = values[i]->known;
  }
  return results;
}

std::vector<ItemPtr> Importer::apply_function(const pb::FunctionProto& function,
                                              const pb::NodeProto& node,
                                              const std::vector<ItemPtr>& inputs) {
  const Restored depth(depth_);
  if (++depth_ > deepest) throw Error("functions that use functions, more than {} deep", deepest);
  if (inputs.size() > static_cast<size_t>(function.input_size()))
    throw Error("the function takes {} inputs, {} are given", function.input_size(), inputs.size());
  Scope scope;  // a function sees nothing but its inputs
  for (int i = 0; i < function.input_size(); ++i)
    if (static_cast<size_t>(i) < inputs.size() && inputs[static_cast<size_t>(i)])
      scope.items[function.input(i)] = inputs[static_cast<size_t>(i)];
  const Restored outside(opsets_);
  opsets_.clear();
  const Restored module(module_);
  enter_module(module_, node.name().empty() ? function.name() : node.name());
  for (const auto& o : function.opset_import())
    opsets_[domain_of(o.domain())] = static_cast<int>(o.version());
  const std::vector<pb::AttributeProto> defaults = default_attributes(function);
  for (const auto& inner : function.node()) {
    pb::NodeProto settled = inner;
    for (int i = 0; i < inner.input_size(); ++i)  // an input that was left out
      for (const std::string& name : function.input())
        if (inner.input(i) == name && !scope.items.contains(name)) settled.set_input(i, "");
    settled.clear_attribute();
    for (const auto& a : inner.attribute()) {
      if (a.ref_attr_name().empty()) {
        *settled.add_attribute() = a;
        continue;
      }
      auto named = [&](const pb::AttributeProto& v) { return v.name() == a.ref_attr_name(); };
      auto given = std::ranges::find_if(node.attribute(), named);
      auto standard = std::ranges::find_if(defaults, named);
      const pb::AttributeProto* value = given != node.attribute().end() ? &*given
                                        : standard != defaults.end()    ? &*standard
                                                                        : nullptr;
      if (!value) continue;
      *settled.add_attribute() = *value;
      settled.mutable_attribute(settled.attribute_size() - 1)->set_name(a.name());
    }
    run_node(settled, scope);
  }
  std::vector<ItemPtr> results;
  for (const std::string& name : function.output()) {
    const ItemPtr* item = scope.find(name);
    results.push_back(item ? *item : nullptr);
  }
  return results;
}

ItemPtr Importer::find(const std::string& name) const {
  const ItemPtr* item = scope_ ? scope_->find(name) : nullptr;
  return item ? *item : nullptr;
}

ItemPtr Importer::joined(const char* op, const std::vector<ItemPtr>& items, int64_t axis) {
  bool all_known = true;
  for (const ItemPtr& i : items) {
    if (!i || !i->is_tensor()) throw Error("tensors are wanted, not sequences or optionals");
    all_known = all_known && i->known.defined() && !i->follows_weights && !i->input;
  }
  LiteralList attributes{{"dim", axis}};
  std::vector<Value> parts;
  try {
    if (all_known) {
      for (const ItemPtr& i : items) parts.push_back(folding_.value(i->known));
      return Item::of(ops::EagerWorld::tensor(emit_all(folding_, op, parts, attributes)[0]));
    }
  } catch (const TooLarge&) {
    parts.clear();
  }
  bool weights = false;
  for (const ItemPtr& i : items) {
    parts.push_back(program_.in_program(*i));
    weights = weights || i->follows_weights;
  }
  ItemPtr item = Item::of(emit_all(program_.world(), op, parts, attributes)[0]);
  item->follows_weights = weights;
  return item;
}

void Importer::count(size_t nodes) {
  applied_ += nodes;
  if (applied_ > most_applied)
    throw Error("more than {} nodes, counting those of unrolled loops each time", most_applied);
}

std::vector<ItemPtr> Importer::run_graph(const pb::GraphProto& graph, std::vector<ItemPtr> inputs) {
  const Restored depth(depth_);
  count(1);
  if (++depth_ > deepest) throw Error("graphs within graphs, more than {} deep", deepest);
  if (inputs.size() != static_cast<size_t>(graph.input_size()))
    throw Error("the inner graph takes {} inputs, {} are given", graph.input_size(), inputs.size());
  Scope scope{scope_, {}};
  for (int i = 0; i < graph.input_size(); ++i)
    scope.items[graph.input(i).name()] = inputs[static_cast<size_t>(i)];
  program_.add_weights(graph, scope, false);
  run_nodes(graph, scope);
  std::vector<ItemPtr> results;
  for (const auto& output : graph.output()) {
    const ItemPtr* item = scope.find(output.name());
    if (!item || !*item)
      throw Error("nothing gives the inner graph's output '{}'", printable(output.name()));
    results.push_back(*item);
  }
  return results;
}

Import Importer::run() {
  check_versions();
  Scope scope;
  program_.add_weights(model_.graph(), scope, true);
  program_.add_inputs(scope);
  run_nodes(model_.graph(), scope);
  return program_.finish(scope);
}

Import import_bytes(std::string_view bytes, const std::string& name, const std::string& folder,
                    const ImportOptions& options) {
  auto model = read_model(bytes, name);
  Folder home{folder};
  auto attempt = [&](bool fix_all) { return Importer(*model, home, options, fix_all, name).run(); };
  try {
    try {
      return attempt(false);
    } catch (const NeedsValue&) {
      // Perhaps it follows from inputs whose values can be asked for.
      if (!options.value) throw;
      return attempt(true);
    }
  } catch (const Unsupported& e) {
    throw Unsupported(fmt::format("{}: {}", name, e.message()), e.reason());
  } catch (const Error& e) {
    if (e.bare().starts_with(name + ": ")) throw;
    throw Error("{}: {}", name, e.bare());
  }
}

Import import_file(const std::string& path, const ImportOptions& options) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return import_bytes(read_whole_file(path), path, folder.empty() ? "." : folder.string(), options);
}

}  // namespace gradus::onnx
