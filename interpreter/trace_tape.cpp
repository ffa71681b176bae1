// A trace, stage by stage: the function, then its backwards.
#include "interpreter/trace_tape.h"

#include "autograd/operator_node.h"
#include "gradus/engine.h"
#include "interpreter/capture_build.h"

namespace gradus::interpreter {

using autograd::Edge;
using autograd::Node;
using autograd::Variable;
using autograd::Variables;

class TraceTape::Busy {
 public:
  explicit Busy(TraceTape& tape) : tape_(tape) {
    if (tape_.busy_.exchange(true, std::memory_order_acquire))
      tape_.values_.refuse("another thread is recording a stage of it, or this one further up");
  }
  ~Busy() { tape_.busy_.store(false, std::memory_order_release); }
  Busy(const Busy&) = delete;

 private:
  TraceTape& tape_;
};

// What runs on this thread is recorded until the end of the scope.
class TraceTape::Recording {
 public:
  explicit Recording(TraceTape& tape) : state_(state(tape)), watch_(&tape.values_) {}

 private:
  static autograd::ThreadState state(TraceTape& tape) {
    autograd::ThreadState s = autograd::thread_state();
    s.mode = autograd::GradMode::enabled;
    s.anomaly = autograd::AnomalyMode::off;  // it reads gradients
    s.order_limit = nullptr;
    s.context = tape.context_;
    s.recorder = &tape.values_;
    return s;
  }
  autograd::StateGuard state_;
  ReadWatchGuard watch_;
};

namespace {

// Records the next stage when cotangents arrive.
class TraceNode final : public Node {
 public:
  TraceNode(std::shared_ptr<TraceTape> tape, size_t stage, uint64_t before, std::string name,
            SmallVector<Edge, 2> edges)
      : Node(std::move(edges)),
        stage_(stage),
        before_(before),
        name_(fmt::format("stage {} of trace '{}'", stage, name)),
        tape_(std::move(tape)) {}
  std::string name() const override { return name_; }
  void release_variables() override {
    std::shared_ptr<TraceTape> gone;  // dies after the lock is let go
    Lock lock(*this);
    gone.swap(tape_);
  }

 private:
  std::shared_ptr<TraceTape> tape() const {
    Lock lock(*this);
    return tape_;
  }
  Variables apply(Variables&& cotangents) override {
    auto tape = this->tape();
    if (!tape)
      throw Error("{} was recorded, and freed with its graph; keep the graph to record it anew",
                  name_);
    return tape->run_backward(stage_, before_, cotangents, autograd::recording());
  }
  const size_t stage_;
  const uint64_t before_;
  const std::string name_;
  std::shared_ptr<TraceTape> tape_;
};

}  // namespace

TraceTape::TraceTape(std::shared_ptr<TracedProgram> program)
    : program_(std::move(program)), options_(program_->options) {
  graph_.name = options_.name;
  values_.keep_shapes(options_.shapes_only);
  Context& user = *autograd::current_context();
  context_ = std::make_shared<Context>(ContextOptions{
      .workers = user.workers().workers(), .allocator = user.allocator(), .log = user.log_sink()});
  autograd::EngineOptions on_caller{.multithreading = false};
  autograd::replace_engine(context_, std::make_shared<autograd::Engine>(context_, on_caller));
}

void TraceTape::begin_stage(size_t k) {
  drop_stages(k);
  stages_.push_back({next_number_++, graph_.values.size(), {}, {}});
  graph_.stages.emplace_back();
  unread_.emplace_back();
}

void TraceTape::drop_stages(size_t first) {
  if (first >= stages_.size()) return;
  const size_t value = stages_[first].first_value;
  values_.forget_from(value);
  stages_.resize(first);
  unread_.resize(first);
  graph_.stages.resize(first);
  graph_.values.resize(value);
}

// The program has the stages that there are.
void TraceTape::end_stage() {
  ir::Graph graph = graph_;
  ir::eliminate_dead_code(graph);
  ir::compact(graph);
  std::vector<std::string> unread;
  for (const auto& names : unread_) unread.insert(unread.end(), names.begin(), names.end());
  std::lock_guard guard(program_->mutex);
  program_->graph = std::move(graph);
  program_->inputs = flags_;
  program_->unread = std::move(unread);
  program_->code = nullptr;
}

TraceTape::Input& TraceTape::add_input(Input input, const Tensor& tensor, bool requires_grad) {
  ir::ValueId id = graph_.add_value(input.type, input.name, stages_.size() - 1);
  graph_.stages.back().inputs.push_back(id);
  if (tensor.defined()) {
    const bool shared = values_.knows_memory(tensor);
    input.leaf = Variable(shared ? tensor.copy() : tensor, requires_grad);
    values_.know_input(id, input.leaf);
  }
  return stages_.back().inputs.emplace_back(std::move(input));
}

void TraceTape::add_output(std::string name, const Variable& v, ir::Type type) {
  ir::ValueId id = v.defined() ? ir::GraphWorld::id_of(values_.value_of(v)) : ir::no_value;
  graph_.stages.back().results.push_back({name, id});
  stages_.back().outputs.push_back({std::move(name), std::move(type), v});
}

std::string TraceTape::input_name(size_t i) const {
  return i < options_.inputs.size() ? options_.inputs[i] : fmt::format("x{}", i);
}
std::string TraceTape::output_name(size_t i) const {
  return i < options_.outputs.size() ? options_.outputs[i] : fmt::format("y{}", i);
}

Variables TraceTape::run(const VariableFunction& f, std::span<const Variable> inputs) {
  Busy busy(*this);
  begin_stage(0);
  Variables leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Variable& v = inputs[i];
    flags_.push_back({input_name(i), v.defined(), v.requires_grad()});
    Input input{input_name(i), {}, {}, v.gradient_edge(), v.requires_grad()};
    if (v.defined()) input.type = type_of(v.data());
    leaves.push_back(v.defined() ? add_input(std::move(input), v.data(), v.requires_grad()).leaf
                                 : Variable());
  }
  {
    Recording recording(*this);
    Variables outputs = f(leaves);
    if (!options_.outputs.empty() && options_.outputs.size() != outputs.size())
      values_.refuse(fmt::format("it gave {} outputs, {} names were given", outputs.size(),
                                 options_.outputs.size()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined()) values_.refuse(fmt::format("output {} is undefined", i));
      add_output(output_name(i), outputs[i], type_of(outputs[i].data()));
    }
  }
  end_stage();
  finish_constant_stages();
  return lead_on(true, 0);
}

Variables TraceTape::run_backward(size_t k, uint64_t before, const Variables& cotangents,
                                  bool go_on) {
  Busy busy(*this);
  if (stages_.size() < k || stages_[k - 1].number != before)
    throw Error(
        "stage {} of trace '{}' was recorded anew since; run the backward of its new results",
        k - 1, options_.name);
  begin_stage(k);
  try {
    differentiate(cotangents);
  } catch (...) {
    drop_stages(k);
    end_stage();
    throw;
  }
  end_stage();
  finish_constant_stages();
  return lead_on(go_on, k);
}

// Stage k, which has begun, of the cotangents of the stage before.
Variables TraceTape::differentiate(const Variables& cotangents) {
  const size_t k = stages_.size() - 1;
  const bool more = static_cast<int>(k) < options_.order;
  std::vector<Edge> roots;
  Variables seeds;
  size_t next = 0;
  for (const Output& y : stages_[k - 1].outputs) {
    if (!y.type.is_floating()) continue;
    const Variable& given = cotangents[next++];
    Input input{fmt::format("ct{}_{}", k, y.name), y.type, {}, {}, true};
    if (given.defined()) input.outer = given.gradient_edge();
    Variable ct = add_input(std::move(input), given.defined() ? given.data() : Tensor(), more).leaf;
    if (!y.value.requires_grad()) continue;
    if (!ct.defined()) {
      unread_.back().push_back(stages_.back().inputs.back().name);
      continue;
    }
    roots.push_back(y.value.gradient_edge());
    seeds.push_back(std::move(ct));
  }
  std::vector<autograd::Capture> captures;
  for (size_t s = 0; s < k; ++s)
    for (const Input& x : stages_[s].inputs)
      if (x.differentiated && x.leaf.requires_grad())
        captures.push_back({x.leaf.gradient_edge(), {}});
  Recording recording(*this);
  values_.detach_values(more);
  Variables found;
  if (!roots.empty() && !captures.empty())
    found = autograd::engine_of(context_)->execute(
        roots, seeds, {.keep_graph = true, .create_graph = more}, captures);
  next = 0;
  for (size_t s = 0; s < k; ++s)
    for (const Input& x : stages_[s].inputs) {
      if (!x.differentiated) continue;
      bool asked = x.leaf.requires_grad() && !found.empty();
      add_output(fmt::format("d{}_{}", k, x.name), asked ? found[next++] : Variable(), x.type);
    }
  values_.detach_values(true);
  return found;
}

// Where no backward can start from what the last stage gave, the next one has only zeros.
void TraceTape::finish_constant_stages() {
  while (static_cast<int>(stages_.size()) <= options_.order) {
    for (const Output& y : stages_.back().outputs)
      if (y.value.requires_grad()) return;
    begin_stage(stages_.size());
    differentiate(Variables(stages_[stages_.size() - 2].outputs.size()));
    end_stage();
  }
}

// The results of stage `of`, for whoever asked: with the node that records the next one.
Variables TraceTape::lead_on(bool go_on, size_t of) {
  const Stage& stage = stages_[of];
  const size_t k = of + 1;
  SmallVector<Edge, 2> edges;
  bool leads = false;
  for (size_t s = 0; s < k; ++s)
    for (const Input& x : stages_[s].inputs) {
      if (!x.differentiated) continue;
      edges.push_back(x.outer);
      leads |= x.outer.valid();
    }
  Ref<Node> node;
  if (go_on && leads && static_cast<int>(k) <= options_.order)
    node =
        make_ref<TraceNode>(shared_from_this(), k, stage.number, options_.name, std::move(edges));
  else if (go_on && leads)
    node = make_ref<autograd::RefusingNode>(
        fmt::format("stage {} of trace '{}'", k, options_.name),
        fmt::format("'{}' was traced for {} derivative{}; trace it for more", options_.name,
                    options_.order, options_.order == 1 ? "" : "s"),
        std::move(edges));
  Variables out;
  for (const Output& y : stage.outputs) {
    if (node && y.type.is_floating())
      out.push_back(
          autograd::create_gradient_edge(y.value.defined() ? y.value.data() : Tensor(), node));
    else
      out.push_back(y.value.defined() ? Variable(y.value.data()) : Variable());
  }
  return out;
}

}  // namespace gradus::interpreter
