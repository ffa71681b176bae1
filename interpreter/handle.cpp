#include "interpreter/handle.h"

#include "autograd/engine.h"

namespace gradus::interpreter {

using autograd::Edge;
using autograd::Node;
using autograd::Variable;
using autograd::Variables;

namespace {

// Gradients arrive here and are captured: it never runs.
class Sink final : public Node {
 public:
  std::string name() const override { return "the inputs of an opaque instruction"; }

 protected:
  Variables apply(Variables&&) override {
    throw InternalError("a sink of gradients was run");
  }
};

// A variable whose gradient arrives at the next input of the sink.
Variable wrap(const Tensor& t, const Ref<Node>& sink) {
  return Variable(t, Edge{sink, sink->add_input(autograd::InputMetadata(t))});
}

// The thread's autograd state for work of this context.
autograd::ThreadState state_for(const std::shared_ptr<Context>& context, autograd::GradMode mode) {
  autograd::ThreadState s = autograd::thread_state();
  s.context = context;
  s.mode = mode;
  return s;
}

Edge edge_of(const Variable& v) { return v.defined() ? v.gradient_edge() : Edge(); }

}  // namespace

Handle::Handle(std::vector<Edge> roots, Ref<Node> sink, Ref<const Handle> parent)
    : roots_(std::move(roots)), sink_(std::move(sink)), parent_(std::move(parent)) {}

std::vector<Edge> Handle::inputs() const {
  std::vector<Edge> edges;
  for (const Handle* h = this; h; h = h->parent_.get())
    for (uint32_t i = 0; i < h->sink_->inputs(); ++i) edges.push_back({h->sink_, i});
  return edges;
}

OpaqueResults call_function(const autograd::CppFunction& function,
                            std::span<const Tensor> operands, std::span<const bool> requires_grad,
                            bool leaves_handle, const std::shared_ptr<Context>& context) {
  autograd::StateGuard guard(state_for(
      context, leaves_handle ? autograd::GradMode::enabled : autograd::GradMode::no_grad));
  Ref<Node> sink;
  if (leaves_handle) sink = make_ref<Sink>();
  Variables in;
  for (size_t i = 0; i < operands.size(); ++i)
    in.push_back(sink && requires_grad[i] ? wrap(operands[i], sink) : Variable(operands[i]));
  Variables out = function.call(in);
  OpaqueResults results;
  std::vector<Edge> roots;
  for (const Variable& v : out) {
    results.tensors.push_back(v.defined() ? v.data() : Tensor());
    if (v.defined() && is_floating(v.dtype())) roots.push_back(edge_of(v));
  }
  if (sink) results.handle = make_ref<const Handle>(std::move(roots), sink, nullptr);
  return results;
}

OpaqueResults evaluate_handle(const Ref<const Handle>& handle, std::span<const Tensor> cotangents,
                              std::span<const bool> wanted, bool leaves_handle,
                              const std::shared_ptr<Context>& context) {
  autograd::StateGuard guard(state_for(context, autograd::GradMode::enabled));
  Ref<Node> sink;
  if (leaves_handle) sink = make_ref<Sink>();
  std::vector<Edge> roots;
  Variables seeds;
  for (size_t i = 0; i < cotangents.size(); ++i) {
    if (!cotangents[i].defined()) {
      if (sink) sink->add_undefined_input();
      continue;
    }
    Variable ct = sink ? wrap(cotangents[i], sink) : Variable(cotangents[i]);
    if (!handle->roots()[i].valid()) continue;
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
  if (sink) results.handle = make_ref<const Handle>(std::move(edges), sink, handle);
  return results;
}

}  // namespace gradus::interpreter
