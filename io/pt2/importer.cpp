#include "io/pt2/importer.h"

#include <algorithm>

#include "gradus/messages.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "io/pt2/guards.h"
#include "io/pt2/regions.h"
#include "kernels/evaluate.h"

namespace gradus::pt2 {

namespace {

constexpr int64_t most_known_elements = int64_t{1} << 17;
constexpr std::string_view higher_order = "torch.ops.higher_order.";

std::pair<ir::ValueId, ir::ValueId> ids_of(const Pair& z) {
  return {ir::GraphWorld::id_of(z.re), ir::GraphWorld::id_of(z.im)};
}

ir::Graph one_stage() {
  ir::Graph g;
  g.name = "model";
  g.stages.resize(1);
  return g;
}

std::string_view short_name(std::string_view target) {
  for (std::string_view prefix : {"torch.ops.", "torch."})
    if (target.starts_with(prefix)) return target.substr(prefix.size());
  return target;
}

// The innermost place of a trace that is not PyTorch's own: "model.py:12: return self.linear(x)".
std::string last_place(std::string_view trace) {
  constexpr std::string_view file_mark = "File \"", line_mark = ", line ";
  std::string place;
  bool own = false;
  for (size_t at = trace.find(file_mark); at != trace.npos; at = trace.find(file_mark, at)) {
    at += file_mark.size();
    const std::string_view rest = trace.substr(at, trace.find(file_mark, at) - at);
    const size_t quote = rest.find('"'), line = rest.find(line_mark), end = rest.find('\n');
    if (quote == rest.npos || line == rest.npos) continue;
    const std::string file(rest.substr(0, quote));
    const bool foreign = file.find("/torch/") != file.npos;
    if (foreign && own) continue;
    own = own || !foreign;
    std::string_view number = rest.substr(line + line_mark.size());
    number = number.substr(0, number.find_first_not_of("0123456789"));
    std::string code(end == rest.npos ? std::string_view() : rest.substr(end + 1));
    code = code.substr(0, code.find('\n'));
    code.erase(0, code.find_first_not_of(' '));
    place = fmt::format("{}:{}{}{}", printable(file), number, code.empty() ? "" : ": ",
                        printable(code));
  }
  return place;
}

std::string operator_name(const Node& node) { return printable(short_name(node.target)); }

std::string place_of(const Node& node) {
  const std::string place = last_place(node.trace);
  return fmt::format("node '{}' ({}){}{}", printable(node.name), operator_name(node),
                     place.empty() ? "" : ", ", place);
}

std::string line_of(const Node& node) {
  std::string module = printable(node.module, 200);
  std::ranges::replace(module, '/', '.');
  std::string line = fmt::format("{} = {}", printable(node.name), operator_name(node));
  if (!module.empty()) line += "  # " + module;
  if (const std::string place = last_place(node.trace); !place.empty())
    line += (module.empty() ? "  # " : ", ") + place;
  return line;
}

// "add_.Tensor" as "add.Tensor"; empty for operators that do not write.
std::string without_write(std::string_view op) {
  const size_t dot = op.rfind('.');
  std::string_view base = op.substr(0, dot);
  if (!base.ends_with('_') || base.starts_with("__")) return {};
  return fmt::format("{}{}", base.substr(0, base.size() - 1), op.substr(base.size()));
}

// Sizes are known as expressions; what computes them need not run.
bool gives_numbers(const Node& node) {
  return !node.outputs.empty() && std::ranges::all_of(node.outputs, [](const Argument& o) {
    return std::holds_alternative<NumberName>(o);
  });
}

}  // namespace

void for_each_name(const Argument& a, const std::function<void(const std::string&)>& f) {
  if (const auto* one = std::get_if<TensorName>(&a)) f(one->name);
  if (const auto* list = std::get_if<TensorNames>(&a))
    for (const auto& name : *list)
      if (name) f(*name);
}

Importer::Importer(const ExportedProgram& program, const Archive& archive, NodeLines& lines)
    : program_(program),
      archive_(archive),
      lines_(lines),
      graph_(one_stage()),
      world_(graph_, 0, graph_.stages[0].nodes) {
  graph_.source = lines.source();
}

TensorPtr Importer::find(const std::string& name) const {
  auto it = scope_->find(name);
  if (it == scope_->end()) throw Error("no earlier node gives the tensor '{}'", printable(name));
  return it->second;
}

const TensorMeta& Importer::meta(const std::string& name) const {
  auto it = subgraph_->tensors.find(name);
  if (it != subgraph_->tensors.end()) return it->second;
  if (auto other = subgraph_->foreign.find(name); other != subgraph_->foreign.end())
    throw Error("the dtype {} of '{}' is not supported", dtype_name(other->second),
                printable(name));
  throw Error("the archive does not say what '{}' is", printable(name));
}

void Importer::note_reads(const Subgraph& graph) {
  auto note = [&](const std::string& name) { read_.insert(name); };
  for (const Node& n : graph.nodes)
    for (const NamedArgument& a : n.inputs) {
      for_each_name(a.value, note);
      if (const auto* inner = std::get_if<std::shared_ptr<Subgraph>>(&a.value)) note_reads(**inner);
    }
  for (const Argument& o : graph.outputs) for_each_name(o, note);
}

// Inputs

std::string Importer::free_name(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 1; !names_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
  return name;
}

TensorPtr Importer::add_input(const std::string& wanted, const ir::Type& type) {
  std::string name = free_name(wanted);
  if (std::string why = ir::why_no_input(type); !why.empty())
    throw Error("input '{}' {}", printable(name), why);
  ir::ValueId id = graph_.add_value(type, name, 0);
  graph_.stages[0].inputs.push_back(id);
  auto tensor = std::make_shared<TensorValue>(world_.value(id));
  tensor->memory().is_input = true;
  inputs_.push_back({name, tensor});
  return tensor;
}

void Importer::add_user_inputs(Scope& scope) {
  for (const InputSpec& spec : program_.inputs) {
    if (spec.kind != InputSpec::Kind::user) continue;
    if (const auto* size = std::get_if<Dim>(&spec.argument); size && !size->is_constant())
      throw Error(
          "the input of the size {} is an integer, not a tensor; pass a tensor of that size",
          size->to_string());
    if (const auto* number = std::get_if<NumberName>(&spec.argument))
      add_number_input(number->name);
    const auto* tensor = std::get_if<TensorName>(&spec.argument);
    if (!tensor) continue;  // its value is fixed in the program
    const TensorMeta& m = meta(tensor->name);
    scope[tensor->name] = add_input(tensor->name, type_of(m));
  }
}

void Importer::add_number_input(const std::string& name) {
  const auto it = program_.graph.integers.find(name);
  const std::string_view symbol =
      it == program_.graph.integers.end() ? std::string_view() : it->second.symbol_name();
  if (symbol.empty())
    throw Error(
        "the input '{}' is a number, not a tensor, which is not supported; pass a tensor without "
        "dimensions, or a constant",
        printable(name));
  // Inputs of 0, 1 and more are what torch assumes where nothing is said.
  constexpr int64_t assumed = 2;
  if (const auto range = program_.ranges.find(symbol); range != program_.ranges.end())
    if (range->second.min.value_or(0) > assumed || range->second.max)
      throw Error(
          "the input '{}' is an integer with a range, which would not be checked; pass a tensor "
          "without dimensions, or export the model without the range",
          printable(name));
  Value value = add_input(name, ir::Type(DType::i64, {}))->read();
  numbers_[name] = value;
  numbers_[std::string(symbol)] = value;
}

const StoredTensor& Importer::first_tied(const StoredTensor& tensor) const {
  for (const InputSpec& spec : program_.inputs)
    if (const StoredTensor* first = archive_.find(spec.target); first && first->is_tied_to(tensor))
      return *first;
  return tensor;
}

TensorPtr Importer::stored_input(const InputSpec& spec) {
  const StoredTensor* stored = archive_.find(spec.target);
  if (!stored)
    throw Error("the archive has no values of '{}'; export it anew, with its weights",
                printable(spec.target));
  if (stored->complex && !is_complex(std::get<TensorName>(spec.argument).name))
    throw Error("'{}' is {} where it is stored, and another dtype in the graph",
                printable(spec.target), complex_name(stored->dtype));
  const StoredTensor& first = first_tied(*stored);
  if (&first != stored) result_.tied.emplace(stored->name, first.name);
  TensorPtr& tensor = stored_[&first];
  if (tensor) return tensor;
  Tensor value = archive_.read(*stored);
  ir::Type type(value.dtype(), {});
  for (int64_t n : value.shape()) type.dims.push_back(n);
  tensor = add_input(first.name, type);
  tensor->memory().without_derivatives = !stored->parameter || !stored->requires_grad;
  if (spec.kind == InputSpec::Kind::constant && value.numel() <= most_known_elements)
    constants_.emplace(ir::GraphWorld::id_of(tensor->read()), value);
  result_.weights.emplace(inputs_.back().name, std::move(value));
  if (stored->parameter && stored->requires_grad) result_.trainable.push_back(inputs_.back().name);
  return tensor;
}

void Importer::add_stored_inputs(Scope& scope) {
  for (const InputSpec& spec : program_.inputs) {
    if (spec.kind == InputSpec::Kind::user) continue;
    const std::string& name = std::get<TensorName>(spec.argument).name;
    if (read_.contains(name)) scope[name] = stored_input(spec);
  }
}

// Nodes

void Importer::run_nodes(const Subgraph& graph, Scope& scope) {
  const Subgraph* outer = std::exchange(subgraph_, &graph);
  const Scope* around = std::exchange(scope_, &scope);
  for (const Node& node : graph.nodes) {
    ir::refuse_too_many_nodes(graph_.stages[0].nodes.size());
    world_.set_place(lines_.add(line_of(node), node.module));
    run_node(node, scope);
  }
  subgraph_ = outer;
  scope_ = around;
}

void Importer::run_node(const Node& node, Scope& scope) {
  try {
    if (node.target.starts_with(higher_order)) {
      if (!Regions(*this).run(node, scope))
        throw Error("regions of this kind are not supported yet");
      return;
    }
    if (run_item(node)) return;
    if (gives_numbers(node)) return compute_number(node);
    apply(node, scope);
  } catch (const Error& e) {
    throw Error("{}: {}", place_of(node), e.bare());
  }
}

// A tensor's one element as a number: it stays a tensor here, through which no derivative passes.
bool Importer::run_item(const Node& node) {
  const bool item = node.target == "torch.ops.aten.item.default" ||
                    node.target == "torch.ops.aten._local_scalar_dense.default";
  if (!item || node.outputs.empty() || node.inputs.empty()) return false;
  const auto* number = std::get_if<NumberName>(&node.outputs[0]);
  const auto* tensor = number ? std::get_if<TensorName>(&node.inputs[0].value) : nullptr;
  if (!tensor) return false;
  if (is_complex(tensor->name))
    throw Error("a number that is {} is not supported", complex_name(meta(tensor->name).dtype));
  Value value = ops::reshape(find(tensor->name)->read(), {});
  if (is_floating(value.dtype())) value = ops::detach(value);
  numbers_[number->name] = value;
  if (auto it = subgraph_->integers.find(number->name); it != subgraph_->integers.end())
    if (const std::string_view symbol = it->second.symbol_name(); !symbol.empty())
      numbers_[std::string(symbol)] = value;
  return true;
}

Value Importer::float_of(const Argument& a) {
  Value x;
  if (const auto* d = std::get_if<Dim>(&a))
    x = number(*d);
  else if (const auto* name = std::get_if<NumberName>(&a))
    x = number(name->name);
  else if (const auto* f = std::get_if<double>(&a))
    x = Value::number(*f);
  else
    throw Error("an argument is no number");
  if (x.is_tensor()) return ops::cast(x, DType::f64);
  const DType dtype = std::holds_alternative<double>(a) ? DType::f64 : DType::i64;
  return ops::cast(ops::full(world_, {}, 0, dtype) + x, DType::f64);
}

void Importer::compute_number(const Node& node) {
  const auto* name = std::get_if<NumberName>(&node.outputs[0]);
  if (!name || node.outputs.size() != 1 || subgraph_->integers.contains(name->name)) return;
  const std::string_view op = node.target;
  const size_t operands = op == "torch.sym_float" || op == "_operator.neg" ||
                                  op == "torch._sym_sqrt" || op == "torch.sym_sqrt"
                              ? 1
                              : 2;
  if (node.inputs.size() != operands) return;
  static const std::map<std::string_view, std::string_view> binary_operators{
      {"_operator.add", "add"},     {"_operator.sub", "sub"}, {"_operator.mul", "mul"},
      {"_operator.truediv", "div"}, {"_operator.pow", "pow"}, {"torch.sym_max", "maximum"},
      {"torch.sym_min", "minimum"}};
  const auto known = binary_operators.find(op);
  if (operands == 2 && known == binary_operators.end()) return;  // `number` refuses it
  std::vector<Value> x;
  for (const NamedArgument& i : node.inputs) {
    if (const auto* of = std::get_if<NumberName>(&i.value);
        of && !numbers_.contains(of->name) && !subgraph_->integers.contains(of->name))
      return;
    x.push_back(float_of(i.value));
  }
  Value y = x[0];
  if (operands == 2)
    y = ops::binary(known->second, x[0], x[1]);
  else if (op == "_operator.neg")
    y = ops::unary("neg", x[0]);
  else if (op != "torch.sym_float")
    y = ops::unary("sqrt", x[0]);
  numbers_[name->name] = y;
}

Value Importer::number(const std::string& name) const {
  if (auto it = numbers_.find(name); it != numbers_.end()) return it->second;
  if (auto it = subgraph_->integers.find(name); it != subgraph_->integers.end())
    return number(it->second);
  throw Error(
      "the number '{}' is computed from others in a way that is not supported; compute it from "
      "constants, or pass it as a tensor",
      printable(name));
}

Value Importer::number(const Dim& size) const {
  if (const std::string_view symbol = size.symbol_name(); !symbol.empty())
    if (auto it = numbers_.find(symbol); it != numbers_.end()) return it->second;
  return Value::number(size);
}

void Importer::bind(const std::string& name, const TensorPtr& tensor, Scope& scope) {
  if (name.empty() || !tensor) return;
  check_type(name, tensor->read());
  const ir::ValueId id = ir::GraphWorld::id_of(tensor->read());
  if (id != ir::no_value && graph_[id].name.empty()) graph_[id].name = name;
  scope[name] = tensor;
}

// What a rule made is held against what the archive says: a difference is a fault of the rule.
void Importer::check_type(const std::string& name, const Value& value) const {
  for (const Dim& d : value.dims())
    d.for_each_symbol([&](std::string_view symbol) {
      if (numbers_.contains(symbol))
        throw Error(
            "the value of a tensor or of an integer input decides the size '{}', which is not "
            "supported; pass a tensor of that size, or export the model with a constant",
            symbol);
    });
  const ir::Type told = type_of(meta(name));
  const Dims& sizes = told.dims;
  bool fits =
      value.is_tensor() && value.dtype() == told.dtype && value.dims().size() == sizes.size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    const Dim &a = value.dims()[i], &b = sizes[i];
    fits = !a.is_constant() || !b.is_constant() || a == b;
  }
  if (!fits)
    throw Error(
        "'{}' is {} in the archive, and {} here: a fault of the operator's rule; please "
        "report it",
        printable(name), ir::to_string(told),
        value.is_tensor() ? ir::to_string(value.type) : "a number");
}

bool Importer::is_complex(const std::string& name) const {
  auto it = subgraph_->tensors.find(name);
  return it != subgraph_->tensors.end() && it->second.complex;
}

Pair Importer::parts(const Value& whole) {
  auto [it, fresh] = pairs_.try_emplace(ir::GraphWorld::id_of(whole));
  if (fresh) {
    it->second = {ops::select(whole, -1, 0), ops::select(whole, -1, 1)};
    wholes_.emplace(ids_of(it->second), whole);
  }
  return it->second;
}

Value Importer::joined(const Pair& parts) {
  if (auto it = wholes_.find(ids_of(parts)); it != wholes_.end()) return it->second;
  Value whole = emit_all(world_, "stack", std::array{parts.re, parts.im}, {{"dim", -1, {}}})[0];
  pairs_.emplace(ir::GraphWorld::id_of(whole), parts);
  wholes_.emplace(ids_of(parts), whole);
  return whole;
}

namespace {

// The first complex tensor or number among a node's arguments and results, in words; empty where
// there is none.
std::string complex_part_of(const Node& node, const Subgraph& graph) {
  std::string found;
  auto look = [&](const Argument& a) {
    if (!found.empty()) return;
    if (std::holds_alternative<ComplexNumber>(a)) found = "a complex number";
    for_each_name(a, [&](const std::string& name) {
      auto it = graph.tensors.find(name);
      if (it != graph.tensors.end() && it->second.complex)
        found = fmt::format("'{}', which is {},", printable(name), complex_name(it->second.dtype));
    });
  };
  for (const NamedArgument& i : node.inputs) look(i.value);
  for (const Argument& o : node.outputs) look(o);
  return found;
}

}  // namespace

void Importer::apply(const Node& node, Scope& scope) {
  const std::string_view op = operator_of(node.target);
  // No rule that knows real numbers alone sees a complex one.
  const std::string complex = complex_part_of(node, *subgraph_);
  const auto find_one = complex.empty() ? find_rule : find_complex_rule;
  const RuleEntry* rule = find_one(op);
  const std::string unwritten = without_write(op);
  const bool writes = !rule && !unwritten.empty();
  if (writes) rule = find_one(unwritten);
  if (!rule && !complex.empty())
    throw Error("the operator is not supported with {} among its operands and results", complex);
  if (!rule && op.starts_with("torch._functorch.predispatch."))
    throw Error(
        "it is a step of a transform of torch.func, such as vmap or jvp, which is not supported "
        "inside a model; apply the transform to the program, or express it by operators");
  if (!rule) throw Error("the operator is not supported; express it by others");
  Call call(*this, *rule, node, world_);
  rule->rule(call);
  std::vector<TensorPtr> results = call.given_results();
  if (writes) {
    const std::string& self = node.inputs.empty() ? node.name : node.inputs[0].name;
    call.give_same(self);
    const TensorPtr target = call.given_results().back();
    if (results.empty() || !results[0]) throw Error("it gives nothing that could be written");
    if (results[0] != target) call.write(self, results[0]->read());
    results = {target};
  } else if (call.is_tensor("out")) {
    if (results.size() != 1 || !results[0]) throw Error("more than one result is written to 'out'");
    call.write("out", results[0]->read());
    call.give_same("out");
    results = {call.given_results().back()};
  }
  for (size_t i = 0; i < call.results(); ++i) {
    if (i < results.size() && results[i])
      bind(call.result_name(i), results[i], scope);
    else if (call.wants(i))
      throw Error("its result {} is not supported", i);
  }
}

Value Importer::as_written(TensorValue& target, const Value& value) {
  if (!is_floating(value.dtype())) return value;
  Memory& memory = target.memory();
  if (no_grad_ == 0) {
    memory.without_derivatives = false;
    return value;
  }
  if (!memory.without_derivatives && follows_inputs(memory.value))
    throw Error(
        "it writes without derivatives (no_grad) to a tensor that has them; write to a "
        "detached copy");
  return ops::detach(value);
}

// What is known

std::vector<size_t> Importer::sources(const Value& value, bool through_detach, bool& inputs) const {
  const auto& nodes = graph_.stages[0].nodes;
  std::vector<size_t> maker(graph_.values.size(), SIZE_MAX);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (ir::ValueId v : nodes[i].results) maker[ir::index_of(v)] = i;
  std::vector<bool> seen(nodes.size());
  std::vector<ir::ValueId> left{ir::GraphWorld::id_of(value)};
  inputs = false;
  while (!left.empty()) {
    const ir::ValueId v = left.back();
    left.pop_back();
    if (v == ir::no_value) continue;
    const size_t node = maker[ir::index_of(v)];
    if (node == SIZE_MAX) {
      if (through_detach && constants_.contains(v)) continue;
      inputs = inputs || through_detach || is_floating(graph_[v].type.dtype);
      continue;
    }
    if (seen[node] || (!through_detach && nodes[node].op->name == "detach")) continue;
    seen[node] = true;
    for (const ir::Operand& o : nodes[node].operands) left.push_back(ir::value_in(o));
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (seen[i]) found.push_back(i);
  return found;
}

bool Importer::follows_inputs(const Value& value) {
  bool inputs = false;
  sources(value, false, inputs);
  return inputs;
}

Tensor Importer::known(const Value& value) {
  if (value.is_number() || !value.is_tensor()) return {};
  bool inputs = false;
  const std::vector<size_t> nodes = sources(value, true, inputs);
  if (inputs) return {};
  auto context = Context::default_context();
  ops::EagerWorld eager(*context);
  std::map<ir::ValueId, Value> values;
  for (const auto& [id, constant] : constants_) values[id] = eager.value(constant);
  for (size_t i : nodes) {
    const ir::Node& n = graph_.stages[0].nodes[i];
    if (n.op->traits.loop) return {};  // nobody knows how long
    for (ir::ValueId v : n.results) {
      const Dims& dims = graph_[v].type.dims;
      const Dim elements = ir::numel(dims);
      if (!ir::all_constant(dims) || elements.value() > most_known_elements) return {};
    }
    std::vector<Value> operands;
    for (const ir::Operand& o : n.operands) {
      const ir::ValueId v = ir::value_in(o);
      if (v != ir::no_value)
        operands.push_back(values.at(v));
      else if (const Dim* d = std::get_if<Dim>(&o); d && !d->is_constant())
        return {};
      else
        operands.push_back(ir::is_none(o) ? Value() : world_.value(o));
    }
    auto results = eager.emit(*n.op, n.attributes, operands);
    for (size_t r = 0; r < n.results.size(); ++r) values[n.results[r]] = results[r];
  }
  return ops::EagerWorld::tensor(values.at(ir::GraphWorld::id_of(value)));
}

// Results

void Importer::add_result(const std::string& wanted, const Value& value) {
  std::string name = wanted;
  for (int n = 1; !result_names_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
  graph_.stages[0].results.push_back({name, ir::GraphWorld::id_of(value)});
}

void Importer::add_results(const Scope& scope) {
  for (const OutputSpec& spec : program_.outputs) {
    if (const auto* kind = std::get_if<OtherKind>(&spec.argument))
      throw Error("an output is no tensor ({}); return tensors", kind->kind);
    if (const auto* number = std::get_if<NumberName>(&spec.argument)) {
      Value one = ops::full(world_, {}, 1, DType::i64);
      add_result(number->name, this->number(number->name) * one);
      continue;
    }
    const auto* tensor = std::get_if<TensorName>(&spec.argument);
    if (!tensor) continue;  // a constant, or None
    auto it = scope.find(tensor->name);
    if (it == scope.end()) throw Error("no node gives the output '{}'", printable(tensor->name));
    add_result(spec.target.empty() ? tensor->name : spec.target, it->second->read());
  }
  for (const Input& i : inputs_)
    if (i.tensor->memory().writes > 0) add_result(i.name, i.tensor->memory().value);
}

// Of the names that inputs settle.
void Importer::add_ranges() {
  std::set<std::string, std::less<>> named;
  for (ir::ValueId v : graph_.stages[0].inputs)
    for (const Dim& d : graph_[v].type.dims)
      d.for_each_symbol([&](std::string_view name) { named.emplace(name); });
  for (const auto& [name, range] : program_.ranges)
    if (named.contains(name))
      graph_.ranges.push_back({name, std::max<int64_t>(range.min.value_or(0), 0), range.max});
}

namespace {

// As torch names an input by where it is: data["Q w"] is data_q_w.
std::string name_of_path(const ArgumentPath& path) {
  std::string name;
  for (const std::string& key : path) {
    if (!name.empty()) name += '_';
    for (char c : key.starts_with('.') ? key.substr(1) : key)
      name += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c
              : c >= 'A' && c <= 'Z'                           ? static_cast<char>(c - 'A' + 'a')
                                                               : '_';
  }
  return name;
}

// A view's guard may speak of the tensor that it is a view of, which is no part of a program.
constexpr std::string_view view_base = "._base";

}  // namespace

const std::string& Importer::input_at(const ArgumentPath& path) const {
  std::vector<const InputSpec*> users;
  for (const InputSpec& spec : program_.inputs)
    if (spec.kind == InputSpec::Kind::user) users.push_back(&spec);
  const std::string name = name_of_path(path);
  const InputSpec* found = nullptr;
  for (size_t i = 0; i < users.size() && !found; ++i)
    if (users[i]->path == path || path == ArgumentPath{"flat_args", fmt::format("{}", i)})
      found = users[i];
  for (const InputSpec* spec : users)
    if (const auto* tensor = std::get_if<TensorName>(&spec->argument);
        !found && tensor && tensor->name == name)
      found = spec;
  const auto* tensor = found ? std::get_if<TensorName>(&found->argument) : nullptr;
  if (!tensor)
    throw Error("it is of '{}', which is no tensor among the inputs",
                printable(fmt::format("{}", fmt::join(path, "."))));
  return tensor->name;
}

void Importer::add_conditions(OtherGuards other) {
  for (const std::string& guard : program_.guards) {
    bool of_inputs = false, of_bases = false;
    auto number = [&](const GuardedNumber& n) -> Dim {
      ArgumentPath path = n.path;
      if (!path.empty() && path.back() == view_base) {
        of_bases = true;
        return Dim::symbol("base");
      }
      of_inputs = true;
      const TensorMeta& m = meta(input_at(path));
      const bool stride = n.kind == GuardedNumber::Kind::stride;
      const Dims& all = stride ? m.strides : m.sizes;
      if (n.dim < 0 || n.dim >= static_cast<int64_t>(all.size()))
        throw Error("the archive does not say its {} {}", stride ? "stride" : "size", n.dim);
      return all[static_cast<size_t>(n.dim)];
    };
    try {
      const auto conditions = read_guard(guard, number);
      if (of_bases && of_inputs)
        throw Error("it is also of the tensor that an input is a view of; export it with a copy");
      if (of_bases) continue;
      for (const ir::SizeCondition& c : conditions) graph_.conditions.push_back(c);
    } catch (const Error& e) {
      if (other == OtherGuards::left) continue;
      throw Error(
          "the guard '{}' of the exported program is not supported: {}; export the model with "
          "constants in the place of these sizes, or without the branch that depends on them",
          printable(guard, 300), e.bare());
    }
  }
}

void Importer::finish(OtherGuards other) {
  add_ranges();
  add_conditions(other);
  ir::eliminate_dead_code(graph_);
  ir::compact(graph_);
  ir::verify(graph_);
  result_.module.graphs.push_back(std::make_shared<const ir::Graph>(std::move(graph_)));
}

ImportedProgram Importer::run(OtherGuards other) {
  note_reads(program_.graph);
  subgraph_ = &program_.graph;
  Scope scope;
  add_user_inputs(scope);
  add_stored_inputs(scope);
  run_nodes(program_.graph, scope);
  add_results(scope);
  result_.metadata = archive_.extra_files();
  finish(other);
  return std::move(result_);
}

}  // namespace gradus::pt2
