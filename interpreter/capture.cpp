#include "interpreter/capture.h"

#include <algorithm>
#include <unordered_map>

#include "autograd/hooks.h"
#include "gradus/engine.h"
#include "gradus/passes.h"
#include "interpreter/capture_build.h"
#include "interpreter/capture_cache.h"

namespace gradus {

namespace {

using autograd::BackwardStep;
using autograd::Edge;
using autograd::InputMetadata;
using autograd::Node;
using autograd::TapedNode;
using autograd::Variable;
using autograd::Variables;
using interpreter::CaptureBuilder;
using interpreter::CaptureCache;
using interpreter::CapturedStep;
using interpreter::CaptureProgram;
using interpreter::HandleMaker;
using interpreter::HandleOrigin;
using interpreter::OpaqueNode;
using interpreter::type_of;

[[noreturn]] void refuse(const Node& node, std::string_view why) {
  throw Error("the backward of '{}' cannot be captured: {}", node.name(), why);
}

// Hooks see and change gradients while the engine runs.
void refuse_hooks(const Node& node) {
  bool any = false;
  if (const autograd::Hooks* hooks = node.hooks_if_any()) {
    auto lists = hooks->snapshot();
    any = !lists->tensor_pre.empty() || !lists->pre.empty() || !lists->post.empty();
  }
  if (Variable leaf = node.accumulates_into(); leaf.defined())
    if (autograd::VariableExtras* extras = leaf.body()->lazy_extras.load()) {
      std::lock_guard guard(extras->mutex);
      any |= !extras->hooks.empty();
    }
  if (any) refuse(node, "it has hooks, which may change gradients; remove them first");
}

// The saved variables of all nodes, each once.
class SavedVariables {
 public:
  size_t number_of(const Variable& v) {
    Edge edge = v.gradient_edge();
    auto [begin, end] = by_memory_.equal_range(v.data().data());
    for (auto it = begin; it != end; ++it)
      if (variables_[it->second].data().same_as(v.data()) && edges_[it->second] == edge)
        return it->second;
    by_memory_.emplace(v.data().data(), variables_.size());
    variables_.push_back(v);
    edges_.push_back(std::move(edge));
    return variables_.size() - 1;
  }
  const Variables& variables() const { return variables_; }

 private:
  std::unordered_multimap<const void*, size_t> by_memory_;
  Variables variables_;
  std::vector<Edge> edges_;
};

// Bytes that tell structures apart.
class Key {
 public:
  Key& operator<<(uint64_t n) {
    bytes_.append(reinterpret_cast<const char*>(&n), sizeof(n));
    return *this;
  }
  Key& operator<<(std::string_view s) {
    *this << s.size();
    bytes_.append(s);
    return *this;
  }
  Key& operator<<(const ir::Type& t) { return *this << to_string(t); }
  Key& operator<<(const InputMetadata& m) {
    *this << static_cast<uint64_t>(m.kind);
    return m.kind == InputMetadata::Kind::known ? *this << type_of(m) : *this;
  }
  Key& operator<<(const ir::Number& n) {
    *this << static_cast<uint64_t>(n.category) << static_cast<uint64_t>(n.integer);
    return *this << std::bit_cast<uint64_t>(n.floating);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Capturer {
 public:
  Capturer(std::span<const Variable> outputs, std::span<const Variable> inputs,
           const CaptureOptions& options)
      : options_(options) {
    check(outputs, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!arrives(i)) continue;
      arriving_.push_back(i);
      roots_.push_back(outputs[i].gradient_edge());
    }
    for (const Variable& v : inputs) captured_.push_back(v.gradient_edge());
    if (!roots_.empty())
      plan_ = autograd::engine_of(autograd::current_context())->steps(roots_, captured_);
    for (size_t s = 0; s < plan_.size(); ++s) {
      place_.emplace(plan_[s].node, s);
      steps_.push_back(read(plan_[s]));
    }
  }

  CapturedBackward run() {
    auto cache = autograd::current_context()->part<CaptureCache>(
        [] { return std::make_shared<CaptureCache>(); });
    std::string key = this->key();
    auto program = cache->find(key);
    if (!program) program = cache->add(key, build());
    return {program->graph, program->code, saved_.variables()};
  }

 private:
  bool arrives(size_t output) const { return options_.absent.empty() || !options_.absent[output]; }

  void check(std::span<const Variable> outputs, std::span<const Variable> inputs) const {
    if (outputs.empty() || inputs.empty())
      throw Error("a backward to capture needs outputs and inputs");
    if (!options_.absent.empty() && options_.absent.size() != outputs.size())
      throw Error("`absent` has {} entries for {} outputs; give one each, or none at all",
                  options_.absent.size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!outputs[i].defined() || !outputs[i].requires_grad())
        throw Error(
            "output {} does not require gradients, because nothing it depends on does; set "
            "requires_grad of an input before it is computed",
            i);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].defined() || !inputs[i].requires_grad())
        throw Error("input {} does not require gradients; set requires_grad, or leave it out", i);
  }

  CapturedStep read(const BackwardStep& from) {
    const Node& node = *from.node;
    refuse_hooks(node);
    CapturedStep step{&from};
    if (!from.runs) return step;
    if (node.released())
      throw Error(
          "this graph was freed by an earlier backward; keep it (keep_graph) to capture it");
    step.opaque = dynamic_cast<const OpaqueNode*>(&node);
    if (step.opaque) {
      step.instruction = maker_of(step.opaque->instruction());
      return step;
    }
    if (const autograd::OrderLimit* limit = node.order_limit())
      refuse(node, fmt::format("'{}' can be differentiated only so often, which a program does not "
                               "know; let the engine run it",
                               limit->function));
    step.node = dynamic_cast<const TapedNode*>(&node);
    if (!step.node)
      refuse(node,
             "it is C++ code, not an operator; capture from its inputs and to its outputs apart, "
             "or let the engine run it");
    // What the tape reads where all cotangents that may arrive do.
    SmallVector<bool, 4> arrived;
    for (const auto& contributions : from.inputs) arrived.push_back(!contributions.empty());
    for (const Variable& v : step.node->unpack(step.node->tape(from.wanted, arrived)))
      step.slots.push_back(v.defined() ? std::optional(saved_.number_of(v)) : std::nullopt);
    return step;
  }

  // Those whose handles it needs come before it.
  size_t maker_of(const Ref<const HandleOrigin>& instruction) {
    auto known = maker_place_.find(instruction.get());
    if (known != maker_place_.end()) return known->second;
    HandleMaker maker{instruction};
    if (!instruction->function) maker.evaluated = maker_of(instruction->evaluated);
    for (size_t i = 0; i < instruction->operands.size(); ++i) {
      // Operands are saved as inputs are, which lead to no node of their own.
      Variable v = instruction->operands[i].unpack(
          nullptr, [&] { return fmt::format("operand {} of an opaque function", i); });
      maker.operands.push_back(v.defined() ? std::optional(saved_.number_of(v)) : std::nullopt);
    }
    makers_.push_back(std::move(maker));
    maker_place_.emplace(instruction.get(), makers_.size() - 1);
    return makers_.size() - 1;
  }

  std::string key();
  void add_makers(Key& key) const;
  void add_tape(Key& key, const CapturedStep& step);
  std::shared_ptr<const CaptureProgram> build();

  const CaptureOptions& options_;
  SmallVector<size_t, 2> arriving_;  // outputs whose cotangent arrives
  std::vector<Edge> roots_, captured_;
  std::vector<BackwardStep> plan_;
  std::vector<CapturedStep> steps_;
  std::unordered_map<const Node*, size_t> place_;
  SavedVariables saved_;
  std::vector<HandleMaker> makers_;
  std::unordered_map<const HandleOrigin*, size_t> maker_place_;
  std::vector<ir::Attributes> attributes_;  // that the key names by address
};

void Capturer::add_makers(Key& key) const {
  key << makers_.size();
  for (const HandleMaker& m : makers_) {
    key << (m.from->function ? m.from->function->name() : std::string()) << m.evaluated;
    if (m.from->function)
      for (const ir::Literal& scalar : m.from->function->scalars().values) key << to_string(scalar);
    for (bool mark : m.from->marks) key << mark;
    key << m.from->results << m.operands.size();
    for (const auto& o : m.operands) key << (o ? *o : SIZE_MAX);
  }
}

void Capturer::add_tape(Key& key, const CapturedStep& step) {
  for (const auto& slot : step.slots) key << (slot ? *slot : SIZE_MAX);
  for (size_t i = 0; i < step.from->node->inputs(); ++i) key << step.node->cotangent_slot(i);
  step.node->visit([&](const autograd::OperatorCall& call, std::span<const uint32_t> slots) {
    key << reinterpret_cast<uintptr_t>(&call.op());
    auto list = call.op().write(call.attributes());
    key << list.size();
    for (const ir::NamedLiteral& a : list) key << a.name << to_string(a.value);
    // Attributes of a call name a graph, which names do not tell apart.
    if (call.op().traits.structural) {
      key << reinterpret_cast<uintptr_t>(call.attributes().get());
      attributes_.push_back(call.attributes());
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      key << slots[i] << call.operands()[i].type;
      if (const auto& number = call.operands()[i].number) key << *number;
    }
  });
}

std::string Capturer::key() {
  Key key;
  key << static_cast<uint64_t>(options_.derivatives) << roots_.size();
  for (size_t r = 0; r < roots_.size(); ++r)
    key << arriving_[r] << roots_[r].node->input_metadata(roots_[r].input);
  key << saved_.variables().size();
  for (const Variable& v : saved_.variables()) key << type_of(v.data());
  add_makers(key);
  for (const CapturedStep& step : steps_) {
    const BackwardStep& from = *step.from;
    key << from.node->inputs();
    for (size_t i = 0; i < from.node->inputs(); ++i) {
      key << from.node->input_metadata(i) << from.inputs[i].size();
      for (const auto& c : from.inputs[i]) key << c.step << c.output;
    }
    key << from.runs;
    if (!from.runs) continue;
    for (bool wanted : from.wanted) key << wanted;
    key << (step.opaque != nullptr) << step.instruction;
    if (step.opaque) {
      for (size_t i = 0; i < from.node->inputs(); ++i) key << step.opaque->takes(i);
      continue;
    }
    add_tape(key, step);
  }
  for (const Edge& edge : captured_) {
    auto place = place_.find(edge.node.get());
    key << (place == place_.end() ? SIZE_MAX : place->second) << edge.input;
  }
  return key.take();
}

std::shared_ptr<const CaptureProgram> Capturer::build() {
  CaptureBuilder builder(roots_, arriving_, saved_.variables());
  for (const HandleMaker& maker : makers_) builder.add(maker);
  for (const CapturedStep& step : steps_) builder.add(step);
  for (size_t i = 0; i < captured_.size(); ++i) {
    auto place = place_.find(captured_[i].node.get());
    bool reached = place != place_.end();
    builder.give(i, reached ? std::optional(place->second) : std::nullopt, captured_[i].input);
  }
  auto program = std::make_shared<CaptureProgram>();
  auto graph = std::make_shared<ir::Graph>(builder.take());
  program->code = Code::compile(options_.derivatives > 0
                                    ? ir::differentiate(*graph, {.order = options_.derivatives})
                                    : *graph);
  program->graph = std::move(graph);
  program->attributes = std::move(attributes_);
  return program;
}

}  // namespace

std::vector<Tensor> CapturedBackward::inputs(std::span<const Tensor> cotangents) const {
  if (cotangents.size() + saved.size() != graph->stages[0].inputs.size())
    throw Error("the captured backward takes {} cotangents, {} are given",
                graph->stages[0].inputs.size() - saved.size(), cotangents.size());
  std::vector<Tensor> list(cotangents.begin(), cotangents.end());
  for (const Variable& v : saved) list.push_back(v.data());
  return list;
}

CapturedBackward capture_backward(std::span<const Variable> outputs,
                                  std::span<const Variable> inputs, const CaptureOptions& options) {
  return Capturer(outputs, inputs, options).run();
}

CaptureStatistics capture_statistics(Context& context) {
  return context.part<CaptureCache>([] { return std::make_shared<CaptureCache>(); })->statistics();
}

}  // namespace gradus
