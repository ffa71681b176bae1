#include "interpreter/handle.h"

#include "gradus/engine.h"
#include "gradus/read_watch.h"

namespace gradus::interpreter {

using autograd::Edge;
using autograd::Node;
using autograd::Variable;
using autograd::Variables;

namespace {

// Gradients arrive here and are captured: it never runs.
class Sink final : public Node {
 public:
  std::string name() const override { return "an input of an opaque instruction"; }

 protected:
  Variables apply(Variables&&) override { throw InternalError("a sink of gradients was run"); }
};

// The sinks of one instruction's differentiable inputs.
class Sinks {
 public:
  // A variable whose gradient arrives at the next sink; undefined for an undefined tensor.
  Variable wrap(const Tensor& t) {
    Ref<Node> sink = make_ref<Sink>();
    edges_.push_back({sink, sink->add_input(autograd::InputMetadata(t))});
    return t.defined() ? Variable(t, edges_.back()) : Variable();
  }
  std::vector<Edge> take() { return std::move(edges_); }

 private:
  std::vector<Edge> edges_;
};

// The thread's autograd state for work of this context.
autograd::ThreadState state_for(const std::shared_ptr<Context>& context, autograd::GradMode mode) {
  autograd::ThreadState s = autograd::thread_state();
  s.context = context;
  s.mode = mode;
  s.recorder = nullptr;  // the function is one instruction, whatever it does
  return s;
}

std::unique_ptr<const Handle::Recipe> recipe_of(Ref<const Handle> evaluated,
                                                std::span<const bool> marks,
                                                std::span<const Tensor> operands) {
  auto recipe = std::make_unique<Handle::Recipe>();
  recipe->evaluated = std::move(evaluated);
  recipe->marks = SmallVector<bool, 4>(marks);
  for (const Tensor& t : operands) {
    recipe->operands.push_back(t);
    recipe->versions.push_back(t.defined() ? t.version() : 0);
  }
  return recipe;
}

Edge edge_of(const Variable& v) { return v.defined() ? v.gradient_edge() : Edge(); }

}  // namespace

Handle::Handle(std::vector<Edge> roots, std::vector<Edge> sinks, Ref<const Handle> parent,
               std::string function, std::unique_ptr<const Recipe> recipe)
    : roots_(std::move(roots)),
      sinks_(std::move(sinks)),
      function_(std::move(function)),
      recipe_(std::move(recipe)),
      parent_(std::move(parent)) {}

std::vector<Edge> Handle::inputs() const {
  std::vector<Edge> edges;
  for (const Handle* h = this; h; h = h->parent_.get())
    edges.insert(edges.end(), h->sinks_.begin(), h->sinks_.end());
  return edges;
}

OpaqueResults call_function(const autograd::CppFunction& function, std::span<const Tensor> operands,
                            std::span<const bool> requires_grad, bool leaves_handle,
                            const std::shared_ptr<Context>& context) {
  autograd::StateGuard guard(state_for(
      context, leaves_handle ? autograd::GradMode::enabled : autograd::GradMode::no_grad));
  ReadWatchGuard may_read(nullptr);
  Sinks sinks;
  Variables in;
  for (size_t i = 0; i < operands.size(); ++i)
    in.push_back(leaves_handle && requires_grad[i] ? sinks.wrap(operands[i])
                                                   : Variable(operands[i]));
  Variables out = function.call(in);
  OpaqueResults results;
  std::vector<Edge> roots;
  for (const Variable& v : out) {
    results.tensors.push_back(v.defined() ? v.data() : Tensor());
    if (v.defined() && is_floating(v.dtype())) roots.push_back(edge_of(v));
  }
  if (leaves_handle)
    results.handle = make_ref<const Handle>(
        std::move(roots), sinks.take(), nullptr, function.name(),
        function.replayable() ? recipe_of(nullptr, requires_grad, operands) : nullptr);
  return results;
}

OpaqueResults evaluate_handle(const Ref<const Handle>& handle, std::span<const Tensor> cotangents,
                              std::span<const bool> wanted, bool leaves_handle,
                              const std::shared_ptr<Context>& context) {
  autograd::StateGuard guard(state_for(context, autograd::GradMode::enabled));
  ReadWatchGuard may_read(nullptr);
  Sinks sinks;
  std::vector<Edge> roots;
  Variables seeds;
  for (size_t i = 0; i < cotangents.size(); ++i) {
    Variable ct = leaves_handle             ? sinks.wrap(cotangents[i])
                  : cotangents[i].defined() ? Variable(cotangents[i])
                                            : Variable();
    if (!ct.defined() || !handle->roots()[i].valid()) continue;
    roots.push_back(handle->roots()[i]);
    seeds.push_back(std::move(ct));
  }
  std::vector<Edge> inputs = handle->inputs();
  std::vector<autograd::Capture> captures;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (wanted[i]) captures.push_back({inputs[i], {}});
  Variables found;
  if (!roots.empty() && !captures.empty())
    found = autograd::engine_of(context)->execute(
        roots, seeds, {.keep_graph = true, .create_graph = leaves_handle}, captures);
  OpaqueResults results;
  std::vector<Edge> edges;
  for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
    Variable g = wanted[i] && next < found.size() ? found[next++] : Variable();
    results.tensors.push_back(g.defined() ? g.data() : Tensor());
    edges.push_back(edge_of(g));
  }
  if (leaves_handle)
    results.handle =
        make_ref<const Handle>(std::move(edges), sinks.take(), handle, handle->function(),
                               handle->recipe() ? recipe_of(handle, wanted, cotangents) : nullptr);
  return results;
}

}  // namespace gradus::interpreter
