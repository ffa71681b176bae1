#include "gradus/staged_function.h"

#include <algorithm>
#include <map>

#include "autograd/operator_node.h"
#include "autograd/recorder.h"
#include "gradus/device_streams.h"
#include "gradus/engine.h"

namespace gradus {

using autograd::Edge;
using autograd::Node;
using autograd::Variable;
using autograd::Variables;

namespace {

using EdgesByName = std::map<std::string, Edge, std::less<>>;
using Unread = std::shared_ptr<const std::vector<std::string>>;

bool has_function(const Code& code) {
  for (const ir::Stage& stage : code.graph().stages)
    for (const ir::Node& node : stage.nodes)
      if (node.op->traits.opaque) return true;
  return false;
}

// The input or result that a derivative stage names: "d2_x" -> "x". Empty if it is not one.
std::string_view named_by(std::string_view name, char kind, size_t stage) {
  std::string prefix = (kind == 'd' ? "d" : "ct") + std::to_string(stage) + "_";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
}

// What all stages of a call share.
struct Call {
  Unread unread;
  bool stays = false;  // results lie on the device, since inputs do
  RunOptions options() const { return {.results_on_device = stays}; }
};

Variables attach(std::vector<Tensor> results, State state, size_t stage, EdgesByName edges,
                 const Call& call);

// Each where the input lies whose gradient it is.
Variables placed(Variables gradients, std::span<const Edge> edges) {
  for (size_t i = 0; i < gradients.size() && i < edges.size(); ++i) {
    if (!edges[i].valid() || !gradients[i].defined()) continue;
    const autograd::InputMetadata& to = edges[i].node->input_metadata(edges[i].input);
    if (to.kind == autograd::InputMetadata::Kind::known)
      gradients[i] = autograd::move_to(gradients[i], to.device);
  }
  return gradients;
}

// Runs stage `stage` when cotangents of the stage before arrive.
class StageNode final : public Node {
 public:
  StageNode(State state, size_t stage, EdgesByName by_name, SmallVector<Edge, 2> edges, Call call)
      : Node(std::move(edges)),
        code_(state.code()),
        stage_(stage),
        by_name_(std::move(by_name)),
        call_(std::move(call)),
        state_(std::move(state)),
        thread_safe_(!has_function(*code_)) {}

  std::string name() const override {
    return fmt::format("stage {} of '{}'", stage_, code_->graph().name);
  }
  bool is_thread_safe() const override { return thread_safe_; }
  void release_variables() override {
    std::optional<State> gone;  // dies after the lock is let go
    Lock lock(*this);
    gone.swap(state_);
  }

 private:
  State take_state() {
    Lock lock(*this);
    if (!state_)
      throw Error(
          "the values that {} needs were freed by an earlier backward; keep the graph (keep_graph) "
          "to run it again",
          name());
    if (autograd::current_task_keeps_graph()) return state_->clone();
    State taken = std::move(*state_);
    state_.reset();
    return taken;
  }

  void check_arriving(const Variables& cotangents) const {
    for (size_t i = 0; i < cotangents.size(); ++i)
      if (const std::string& name = code_->input_name(stage_, i);
          cotangents[i].defined() && std::ranges::count(*call_.unread, name))
        throw Error(
            "cotangent '{}' of '{}' was undefined when its stage was recorded, and is defined "
            "now: record it anew with this cotangent",
            name, code_->graph().name);
  }

  Variables apply(Variables&& cotangents) override {
    check_arriving(cotangents);
    // The inputs of this node are the cotangents that the stage takes, in its order.
    std::vector<Tensor> given;
    for (const Variable& ct : cotangents) given.push_back(ct.defined() ? ct.data() : Tensor());
    State state = take_state();
    EdgesByName edges = by_name_;
    if (autograd::recording())
      for (size_t i = 0; i < cotangents.size(); ++i)
        edges[code_->input_name(stage_, i)] = cotangents[i].gradient_edge();
    cotangents.clear();
    std::vector<Tensor> results = state.run(given, call_.options());
    given.clear();
    Variables gradients;
    if (autograd::recording())
      gradients = attach(std::move(results), std::move(state), stage_, edges, call_);
    else
      for (Tensor& t : results)
        gradients.push_back(t.defined() ? Variable(std::move(t)) : Variable());
    return call_.stays ? placed(std::move(gradients), next_edges()) : gradients;
  }

  const std::shared_ptr<const Code> code_;
  const size_t stage_;
  const EdgesByName by_name_;  // of all inputs of the stages before
  const Call call_;
  std::optional<State> state_;
  const bool thread_safe_;
};

// What takes the cotangents of stage `stage`'s results: the node of the next one, or one that says
// that there is none.
Ref<Node> next_node(State state, size_t stage, EdgesByName edges, const Call& call) {
  const Code& code = *state.code();
  size_t next = stage + 1;
  SmallVector<Edge, 2> outputs;
  if (next == code.stages()) {
    std::string name = fmt::format("stage {} of '{}'", next, code.graph().name);
    for (auto& [input, edge] : edges) outputs.push_back(std::move(edge));
    return make_ref<autograd::RefusingNode>(
        name,
        fmt::format("'{}' was compiled for {} derivative{}; ask for order={} where it is made",
                    code.graph().name, stage, stage == 1 ? "" : "s", next),
        std::move(outputs));
  }
  for (const ir::Result& r : code.results(next)) {
    auto it = edges.find(named_by(r.name, 'd', next));
    outputs.push_back(it == edges.end() ? Edge() : it->second);
  }
  return make_ref<StageNode>(std::move(state), next, std::move(edges), std::move(outputs), call);
}

// The results of stage `stage` as variables that lead to the next one. `edges`: of the inputs of
// all stages so far.
Variables attach(std::vector<Tensor> results, State state, size_t stage, EdgesByName edges,
                 const Call& call) {
  std::shared_ptr<const Code> code = state.code();
  Ref<Node> node = next_node(std::move(state), stage, std::move(edges), call);
  size_t next = stage + 1;
  bool last = next == code->stages();
  // The next stage's inputs are the cotangents of some results, in the results' order.
  size_t input = 0;
  Variables out;
  for (size_t i = 0; i < results.size(); ++i) {
    bool takes = last
                     ? results[i].defined() && is_floating(results[i].dtype())
                     : input < code->inputs(next) && named_by(code->input_name(next, input), 'c',
                                                              next) == code->results(stage)[i].name;
    if (takes) ++input;
    if (takes) {
      out.push_back(autograd::create_gradient_edge(std::move(results[i]), node));
    } else {
      out.push_back(results[i].defined() ? Variable(std::move(results[i])) : Variable());
    }
  }
  return out;
}

void check_stage(const Code& code, size_t k) {
  size_t input = 0;
  auto fail = [&](const std::string& what) {
    throw Error("stage {} of '{}' is not the derivative of the stage before: {}", k,
                code.graph().name, what);
  };
  for (const ir::Result& r : code.results(k - 1))
    input += input < code.inputs(k) && named_by(code.input_name(k, input), 'c', k) == r.name;
  if (input != code.inputs(k))
    fail(fmt::format("its input '{}' is not the cotangent of a result", code.input_name(k, input)));
  for (const ir::Result& r : code.results(k))
    if (named_by(r.name, 'd', k).empty())
      fail(fmt::format("its result '{}' is not a gradient", r.name));
}

}  // namespace

StagedFunction::StagedFunction(std::shared_ptr<const Code> code, std::shared_ptr<Context> context,
                               std::vector<std::string> unread)
    : code_(std::move(code)),
      context_(std::move(context)),
      unread_(std::make_shared<const std::vector<std::string>>(std::move(unread))) {
  for (size_t k = 1; k < code_->stages(); ++k) check_stage(*code_, k);
}

StagedFunction StagedFunction::of(const ir::Graph& graph, int derivatives) {
  return StagedFunction(Code::compile(ir::differentiate(graph, {.order = derivatives})));
}

int StagedFunction::derivatives() const { return static_cast<int>(code_->stages()) - 1; }

Variables StagedFunction::operator()(std::span<const Variable> inputs) const {
  if (autograd::Recorder* recorder = autograd::thread_state().recorder)
    recorder->meets(fmt::format("program '{}', called as a function", code_->graph().name));
  std::vector<Tensor> tensors;
  for (const Variable& v : inputs) tensors.push_back(v.defined() ? v.data() : Tensor());
  bool record = autograd::recording() && autograd::any_variable_requires_grad(inputs);
  Call call{unread_};
  for (const Tensor& t : tensors) call.stays |= t.defined() && t.device() != Device();
  State state(code_, context_);
  std::vector<Tensor> results = state.run(tensors, call.options());
  if (!record) {
    Variables out;
    for (Tensor& t : results) out.push_back(t.defined() ? Variable(std::move(t)) : Variable());
    return out;
  }
  EdgesByName edges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    const std::string& name = code_->input_name(0, i);
    edges[name] = inputs[i].gradient_edge();
    bool found = code_->stages() == 1;
    for (size_t r = 0; !found && r < code_->results(1).size(); ++r)
      found = named_by(code_->results(1)[r].name, 'd', 1) == name;
    if (!found)
      throw Error(
          "input '{}' requires a gradient, but '{}' was not differentiated with respect to it",
          name, code_->graph().name);
  }
  return attach(std::move(results), std::move(state), 0, std::move(edges), call);
}

}  // namespace gradus
