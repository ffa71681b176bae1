#include "gradus/engine.h"

#include <algorithm>

#include "autograd/engine_core.h"
#include "autograd/gradient_checks.h"
#include "gradus/apply.h"
#include "gradus/rules.h"

namespace gradus::autograd {

Engine::Engine(std::shared_ptr<Context> context, EngineOptions options)
    : core_(std::make_shared<Core>(context, options)) {}
Engine::~Engine() { core_->shutdown(std::chrono::seconds(10)); }

const EngineOptions& Engine::options() const { return core_->options; }
void Engine::set_depth_limit(int limit) {
  if (limit < 1) throw Error("the depth limit has to be 1 or more");
  core_->depth_limit = limit;
}
void Engine::shutdown(std::chrono::milliseconds limit) { core_->shutdown(limit); }

namespace {

void check_request(std::span<const Edge> roots, std::span<const Variable> cotangents,
                   const ExecuteOptions& options, std::span<const Capture> outputs) {
  if (roots.empty()) throw Error("a backward needs a root");
  if (roots.size() != cotangents.size())
    throw Error("{} roots were given {} cotangents; each takes one (it may be undefined)",
                roots.size(), cotangents.size());
  if (outputs.empty() && !options.accumulate_grad)
    throw Error("gradients of nothing are asked for: name outputs, or accumulate into leaves");
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].valid())
      throw Error("root {} does not require gradients: nothing leads down from it", i);
    if (roots[i].input >= roots[i].node->inputs())
      throw Error("root {} is input {} of node '{}', which has {} inputs", i, roots[i].input,
                  roots[i].node->name(), roots[i].node->inputs());
  }
}

}  // namespace

Variables Engine::execute(std::span<const Edge> roots, std::span<const Variable> cotangents,
                          const ExecuteOptions& options, std::span<const Capture> outputs) {
  check_request(roots, cotangents, options, outputs);
  core_->check_alive();
  if (options.create_graph && options.accumulate_grad && !core_->warned_of_graphs.exchange(true))
    warn(
        "accumulating with create_graph keeps the whole graph alive in the leaves' gradients until "
        "they are replaced; autograd::grad returns them instead");
  Variables given(cotangents.begin(), cotangents.end());
  {
    GradModeGuard mode(options.create_graph ? GradMode::enabled : GradMode::no_grad);
    check_cotangents(roots, given);
  }
  return core_->execute(roots, std::move(given), options, outputs);
}

std::future<Variables> Engine::execute_async(std::vector<Edge> roots, Variables cotangents,
                                             ExecuteOptions options, std::vector<Capture> outputs) {
  check_request(roots, cotangents, options, outputs);
  core_->check_alive();
  // What it was given is gone when the future is ready: the pool's thread holds the job longer.
  auto job = std::make_shared<std::packaged_task<Variables()>>(
      [this, core = core_, state = thread_state(), roots = std::move(roots),
       cotangents = std::move(cotangents), options, outputs = std::move(outputs)]() mutable {
        core->check_alive();  // `this` may be gone with a stopped engine
        std::vector<Edge> from = std::move(roots);
        Variables given = std::move(cotangents);
        std::vector<Capture> wanted = std::move(outputs);
        StateGuard guard(std::move(state));
        return execute(from, given, options, wanted);
      });
  std::future<Variables> result = job->get_future();
  core_->run_on_pool([job] { (*job)(); });
  return result;
}

namespace {

std::vector<Capture> captures_at(std::span<const Edge> edges) {
  std::vector<Capture> captures;
  for (const Edge& e : edges) captures.push_back({e, {}});
  return captures;
}

}  // namespace

std::vector<const Node*> Engine::execution_order(std::span<const Edge> roots,
                                                 std::span<const Edge> outputs) const {
  std::vector<Capture> captures = captures_at(outputs);
  TaskGraph graph(roots, captures, false);
  graph.prepare();
  return order_of(graph);
}

std::vector<BackwardStep> Engine::steps(std::span<const Edge> roots,
                                        std::span<const Edge> outputs) const {
  std::vector<Capture> captures = captures_at(outputs);
  TaskGraph graph(roots, captures, false);
  graph.prepare();
  return steps_of(graph);
}

void Engine::queue_callback(std::function<void()> callback) {
  GraphTask* task = GraphTask::current();
  if (!task) throw Error("a callback can be queued only while a backward runs");
  task->queue_callback(std::move(callback));
}

std::shared_ptr<Engine> engine_of(const std::shared_ptr<Context>& context) {
  return context->part<Engine>([&] { return std::make_shared<Engine>(context); });
}

void replace_engine(const std::shared_ptr<Context>& context, std::shared_ptr<Engine> engine) {
  if (!engine) throw Error("the engine to put in place is null");
  context->replace_part<Engine>(std::move(engine));
}

namespace {

// A cotangent for each output: as given, or one for a 0-d output.
Variables fill_cotangents(std::span<const Variable> outputs, std::span<const Variable> cotangents) {
  if (!cotangents.empty() && cotangents.size() != outputs.size())
    throw Error("{} cotangents are given for {} outputs; give one each, or none at all",
                cotangents.size(), outputs.size());
  Variables filled;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Variable& y = outputs[i];
    if (!y.requires_grad())
      throw Error(
          "output {} does not require gradients, because nothing it depends on does; set "
          "requires_grad of an input before it is computed",
          i);
    if (i < cotangents.size() && cotangents[i].defined()) {
      filled.push_back(cotangents[i]);
    } else if (y.data().rank() == 0) {
      filled.emplace_back(Tensor::scalar(y.dtype(), 1));
    } else {
      throw Error(
          "output {} is {}: only a 0-d output has a cotangent by itself (one); give one, or sum "
          "the output",
          i, describe(y.data()));
    }
  }
  return filled;
}

SmallVector<Edge, 2> edges_of(std::span<const Variable> variables) {
  SmallVector<Edge, 2> edges;
  for (const Variable& v : variables) edges.push_back(v.gradient_edge());
  return edges;
}

}  // namespace

void backward(std::span<const Variable> outputs, std::span<const Variable> cotangents,
              bool keep_graph, bool create_graph) {
  Variables filled = fill_cotangents(outputs, cotangents);
  ExecuteOptions options{.keep_graph = keep_graph || create_graph,
                         .create_graph = create_graph,
                         .accumulate_grad = true};
  engine_of(current_context())->execute(edges_of(outputs), filled, options);
}

Variables grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
               std::span<const Variable> cotangents, const GradOptions& options) {
  Variables filled = fill_cotangents(outputs, cotangents);
  std::vector<Capture> captures;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad())
      throw Error("input {} does not require gradients; set requires_grad, or leave it out", i);
    captures.push_back({inputs[i].gradient_edge(), {}});
  }
  ExecuteOptions execute{.keep_graph = options.keep_graph || options.create_graph,
                         .create_graph = options.create_graph,
                         .strict = !options.allow_unused};
  return engine_of(current_context())->execute(edges_of(outputs), filled, execute, captures);
}

int64_t current_task_id() {
  const GraphTask* task = GraphTask::current();
  return task ? task->id() : -1;
}
std::vector<const Node*> nodes_in_current_task() {
  const GraphTask* task = GraphTask::current();
  return task ? task->nodes() : std::vector<const Node*>();
}
std::optional<bool> runs_in_current_task(const Node& node) {
  const GraphTask* task = GraphTask::current();
  return task ? std::optional(task->runs(node)) : std::nullopt;
}
bool current_task_keeps_graph() {
  const GraphTask* task = GraphTask::current();
  return !task || task->keeps_graph();
}
void add_to_current_task(const Node& node) {
  GraphTask* task = GraphTask::current();
  if (!task) throw Error("a node can be added to a backward only while one runs");
  task->add(node);
}
bool checkpoint_valid() {
  const GraphTask* task = GraphTask::current();
  return !task || task->checkpoint_valid();
}

}  // namespace gradus::autograd
