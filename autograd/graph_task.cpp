#include "autograd/graph_task.h"

#include <algorithm>

#include "autograd/gradient_checks.h"
#include "autograd/node_hooks.h"
#include "autograd/sums.h"
#include "gradus/device_streams.h"

namespace gradus::autograd {

namespace {

thread_local GraphTask* current_task = nullptr;
std::atomic<int64_t> next_id{0};

Stream stream_of(const Node& node, Device device) {
  for (size_t i = 0; i < node.inputs(); ++i)
    if (node.input_metadata(i).device == device) return node.input_metadata(i).stream;
  return 0;
}

bool on_accelerator(Device device) { return device.kind != DeviceKind::cpu; }

// What this thread's current stream was given for `v` is done before the stream of `node`, to which
// `v` goes, goes on and uses its memory.
void synchronise(const Variable& v, const Node& node, Device of_node) {
  if (!v.defined() || !on_accelerator(v.data().device())) return;
  Device of_value = v.data().device();
  DeviceStreams* streams = device_streams(of_value.kind);
  if (!streams) return;
  Device device = on_accelerator(of_node) ? of_node : of_value;
  Stream from = streams->current(of_value), to = stream_of(node, device);
  if (!(of_value == device) || from != to) streams->wait(of_value, from, device, to);
  if (of_value == device) streams->record_use(v.data(), to);
}

// Tells the profiler of the engine's step around a node, also of one that fails.
class StepGuard {
 public:
  explicit StepGuard(const Node& node) : node_(node), profiler_(thread_state().profiler) {
    if (profiler_) profiler_->step_begins(node);
  }
  ~StepGuard() {
    if (profiler_) profiler_->step_ends(node_);
  }
  StepGuard(const StepGuard&) = delete;

 private:
  const Node& node_;
  std::shared_ptr<Profiler> profiler_;
};

}  // namespace

GraphTask* GraphTask::current() { return current_task; }
GraphTask::CurrentGuard::CurrentGuard(GraphTask* task) : ValueGuard(current_task, task) {}

GraphTask::GraphTask(const Request& request, TaskHost& host)
    : host_(host),
      options_(request.options),
      id_(next_id.fetch_add(1)),
      depth_(request.depth),
      checkpoint_valid_(request.checkpoint_valid),
      caller_state_(thread_state()),
      caller_streams_(current_streams()),
      next_number_(next_sequence_number()),
      graph_(request.roots, request.outputs, request.options.accumulate_grad),
      captured_(request.outputs.size()) {}

void GraphTask::prepare(bool multithreading) {
  graph_.prepare(host_.take_tables());
  for (const TaskNode& n : graph_.nodes) left_ += n.runs || n.captured;
  decide_threads(multithreading);
}

GraphTask::~GraphTask() { let_go(); }

void GraphTask::let_go() {
  host_.give_tables(graph_.let_go());
  early_.clear();
  callbacks_.clear();
  // A worker may hold this task a moment longer: it must not be the one that ends the context.
  caller_state_ = ThreadState();
}

// With create_graph the order in which nodes are made decides the order of later sums, so that all
// of it runs in one order, on one thread (but for accelerators' nodes, which have threads of their
// own).
void GraphTask::decide_threads(bool multithreading) {
  exclusive_ = true;
  if (!multithreading) return;
  size_t worth = 0;
  bool accelerated = false;
  for (const TaskNode& n : graph_.nodes) {
    if (n.accelerated) {
      host_.device_queue(device_of(*n.node));  // starts the threads, before anything runs
      accelerated = true;
    }
    worth += n.heavy && worth < 2 && worth_a_worker(n);
  }
  bool parallel = worth >= 2 && !options_.create_graph;
  exclusive_ = !accelerated && !parallel;
  // Asked now, since a node's answer is user code and no lock is held.
  if (parallel)
    for (TaskNode& n : graph_.nodes) n.parallel = worth_a_worker(n);
}

ThreadState GraphTask::state_of_nodes() const {
  ThreadState state = caller_state_;
  state.mode = options_.create_graph ? GradMode::enabled : GradMode::no_grad;
  return state;
}

bool GraphTask::wants(const Node& node, size_t edge) const {
  Lock lock(*this);
  return graph_.is_used(node, edge);
}

uint64_t GraphTask::wanted_of(const Node& node) const {
  uint64_t wanted = 0;
  uint32_t index = graph_.find(&node);
  if (index == none || graph_.nodes[index].edges != node.outputs()) {
    for (size_t e = 0; e < node.outputs(); ++e)
      if (node.next_edge(e).valid() && wants(node, e)) wanted |= uint64_t{1} << e;
    return wanted;
  }
  Lock lock(*this);
  const TaskNode& entry = graph_.nodes[index];
  for (size_t e = 0; e < entry.edges; ++e)
    if (graph_.is_used(entry, e)) wanted |= uint64_t{1} << e;
  return wanted;
}

bool GraphTask::runs(const Node& node) const {
  uint32_t index = graph_.find(&node);
  if (index == none) return false;
  Lock lock(*this);
  return graph_.nodes[index].runs;
}

void GraphTask::add(const Node& node) {
  uint32_t index = graph_.find(&node);
  if (index == none)
    throw Error("node '{}' cannot be added to this backward: no root leads to it", node.name());
  Lock lock(*this);
  TaskNode& entry = graph_.nodes[index];
  if (entry.runs || entry.captured) return;
  if (entry.dependencies != graph_.count_contributions(index))
    throw Error("node '{}' cannot be added to this backward: some of what leads to it does not run",
                node.name());
  entry.runs = true;
  ++left_;
}

std::vector<const Node*> GraphTask::nodes() const {
  std::vector<const Node*> list;
  Lock lock(*this);
  for (const TaskNode& n : graph_.nodes)
    if (n.runs) list.push_back(n.node);
  return list;
}

void GraphTask::start(Variables&& cotangents, ReadyQueue* device_queue) {
  for (size_t r = 0; r < graph_.roots.size(); ++r)
    if (graph_.roots[r].valid())
      synchronise(cotangents[r], *graph_.roots[r].node, device_of(*graph_.roots[r].node));
  Lock lock(*this);
  if (device_queue) cpu_queue_ = device_queue;
  ++pending_;  // this thread's, so that the task is not done before all roots are in
  for (size_t r = 0; r < graph_.roots.size(); ++r) {
    const Edge& root = graph_.roots[r];
    uint32_t index = root.valid() ? graph_.find(root.node.get()) : none;
    if (index == none || !graph_.is_used(index, root.input)) continue;
    add_contribution(lock, index, root.input, graph_.root_ordinals[r], std::move(cotangents[r]));
  }
  // What is ready waits in the queue for the thread that drives.
  if (next_up_ != none) queue_on_cpu(std::exchange(next_up_, none), false);
  one_less();
}

// `lock` is held, and let go while values are added or die. The first contribution is kept as it
// is.
void GraphTask::add_contribution(Lock& lock, uint32_t target, uint32_t input, uint32_t ordinal,
                                 Variable value) {
  TaskNode& entry = graph_.nodes[target];
  uint32_t number = entry.first_slot + input;
  TaskSlot& slot = graph_.slots[number];
  if (slot.adding || slot.next != ordinal) {
    early_[number].push_back({ordinal, std::move(value)});
    return;
  }
  if (!slot.sum.defined() && early_.empty()) {
    slot.sum = std::move(value);
    ++slot.next;
    if (--entry.dependencies == 0) make_ready(target);
    return;
  }
  uint32_t added = 0;
  slot.adding = true;
  for (;;) {
    if (value.defined() && slot.sum.defined()) {
      Variable before = std::move(slot.sum);
      lock.release();
      try {
        // On the stream that the node will run on: both are there by then.
        Device device = value.data().device();
        StreamGuard stream(device, stream_of(*entry.node, device));
        if (!failed()) value = add_up(std::move(before), value);
      } catch (...) {
        fail(named(std::current_exception(), *entry.node));
      }
      before = Variable();
      lock.acquire();
    }
    if (value.defined()) slot.sum = std::move(value);
    value = Variable();
    ++slot.next;
    ++added;
    if (early_.empty() || slot.next == slot.contributions) break;
    auto waiting = early_.find(number);
    if (waiting == early_.end()) break;
    uint32_t next = slot.next;
    auto early = std::ranges::find(waiting->second, next, &Held::ordinal);
    if (early == waiting->second.end()) break;
    value = std::move(early->value);
    waiting->second.erase(early);
    if (waiting->second.empty()) early_.erase(waiting);
  }
  slot.adding = false;
  entry.dependencies -= added;
  if (entry.dependencies == 0) make_ready(target);
}

void GraphTask::make_ready(uint32_t index) {
  if (failed()) return;
  const TaskNode& entry = graph_.nodes[index];
  Device device = exclusive_ ? Device() : device_of(*entry.node);
  if (on_accelerator(device)) {
    ReadyQueue& queue = host_.device_queue(device);
    ++pending_;
    queue.push(
        {this, Ref<const RefCounted>(this), index, depth_, entry.node->sequence_number(), false});
    return;
  }
  ++pending_;
  // The only node that is ready on a task's only thread runs next: no need to queue it.
  if (exclusive_ && next_up_ == none && cpu_queue_->size() == 0) {
    next_up_ = index;
    return;
  }
  if (next_up_ != none) queue_on_cpu(std::exchange(next_up_, none), false);
  queue_on_cpu(index, entry.parallel);
  if (entry.parallel && cpu_queue_->size() > 1) host_.ask_for_help(*this);
}

void GraphTask::queue_on_cpu(uint32_t index, bool parallel) {
  Ref<const RefCounted> keep;
  if (cpu_queue_ != &own_queue_) keep = Ref<const RefCounted>(this);
  uint64_t number = graph_.nodes[index].node->sequence_number();
  cpu_queue_->push({this, std::move(keep), index, depth_, number, parallel});
}

// `lock` is not needed by a task of one thread; others hold it.
void GraphTask::one_less() {
  if (--pending_ == 0) complete();
}

void GraphTask::complete() {
  done_.store(true, std::memory_order_release);
  cpu_queue_->wake();
}

void GraphTask::fail(std::exception_ptr error) {
  Lock lock(*this);
  if (failed()) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  if (std::exchange(next_up_, none) != none) --pending_;
  pending_ -= cpu_queue_->remove(this) + host_.drop(*this);
  if (pending_ == 0 || options_.exit_on_error) complete();
}

void GraphTask::run(uint32_t index) {
  for (;;) {
    bool own_state = current() == this;
    if (!failed() && !host_.stopped()) {
      try {
        if (own_state) {
          run_node(graph_.nodes[index]);
        } else {
          ThreadState state = state_of_nodes();
          state.warnings = [this](const std::string& message) {
            std::lock_guard guard(mutex_);
            warnings_.push_back(message);
          };
          StateGuard states(std::move(state));
          StreamsGuard streams(caller_streams_);
          CurrentGuard guard(this);
          run_node(graph_.nodes[index]);
        }
      } catch (...) {
        fail(named(std::current_exception(), *graph_.nodes[index].node));
      }
    } else if (host_.stopped()) {
      fail(std::make_exception_ptr(Error("the engine was shut down while this backward ran")));
    }
    Lock lock(*this);
    // The next one is taken here only where this thread drives the task.
    uint32_t next = exclusive_ ? std::exchange(next_up_, none) : none;
    one_less();
    if (next == none) return;
    index = next;
  }
}

void GraphTask::run_on_worker(uint32_t index) {
  if (worth_a_worker(graph_.nodes[index])) return run(index);
  Lock lock(*this);
  queue_on_cpu(index, false);
}

Variables GraphTask::take_inputs(const TaskNode& entry) {
  Variables inputs;
  Lock lock(*this);
  // Slots lie in the order of the nodes. A node may have got more inputs since: not in this run.
  size_t next = static_cast<size_t>(&entry - graph_.nodes.data()) + 1;
  size_t end = next < graph_.nodes.size() ? graph_.nodes[next].first_slot : graph_.slots.size();
  for (size_t i = entry.first_slot; i < end; ++i) inputs.push_back(std::move(graph_.slots[i].sum));
  return inputs;
}

void GraphTask::take_captures(uint32_t index, const Variables& gradients) {
  auto it = std::ranges::lower_bound(graph_.captures_by_node, std::pair(index, 0u));
  for (; it != graph_.captures_by_node.end() && it->first == index; ++it) {
    const Capture& capture = graph_.captures[it->second];
    Variable v = gradients[capture.edge.input];
    for (const CaptureHook& hook : capture.hooks)
      if (Variable r = hook(v); r.defined()) v = std::move(r);
    Lock lock(*this);
    captured_[it->second] = std::move(v);
  }
}

// Has the processor fetch what the next node reads, and the node after it.
void GraphTask::fetch_ahead(const TaskNode& entry) const {
  for (size_t e = 0; e < entry.edges; ++e) {
    const uint32_t target = graph_.edges[entry.first_edge + e].target;
    if (target == none || graph_.nodes[target].dependencies != 1) continue;
    const TaskNode& next = graph_.nodes[target];
    next.node->prefetch_values();
    if (const Variable& sum = graph_.slots[next.first_slot].sum; sum.defined())
      sum.data().prefetch();
    for (size_t i = 0; i < next.edges; ++i) {
      const uint32_t after = graph_.edges[next.first_edge + i].target;
      if (after == none) continue;
      graph_.nodes[after].node->prefetch();
      __builtin_prefetch(graph_.slots[graph_.nodes[after].first_slot].sum.body().get());
    }
  }
}

[[noreturn]] static void refuse_released() {
  throw Error("this graph was freed by an earlier backward; keep it (keep_graph) to run it again");
}

// A node without hooks, on a task's only thread: what run_node does is mostly nothing then.
void GraphTask::run_plain(TaskNode& entry) {
  Node& node = *entry.node;
  fetch_ahead(entry);
  Variables inputs = take_inputs(entry);
  if (node.released()) refuse_released();
  if (entry.captured) take_captures(static_cast<uint32_t>(&entry - graph_.nodes.data()), inputs);
  --left_;
  if (!entry.runs) return;
  if (!options_.keep_graph) node.will_release_variables();
  Variables outputs = node(std::move(inputs));
  if (!options_.keep_graph) node.end_of_run();
  check_gradients(node, outputs);
  inputs.clear();  // let go before anybody is told
  hand_on(entry, std::move(outputs));
}

void GraphTask::run_node(TaskNode& entry) {
  Node& node = *entry.node;
  const ThreadState& state = thread_state();
  // Accumulators, which have no edges, run the hooks of their leaves.
  if (exclusive_ && node.plain() && entry.edges != 0 && !state.profiler &&
      state.anomaly == AnomalyMode::off)
    return run_plain(entry);
  auto index = static_cast<uint32_t>(&entry - graph_.nodes.data());
  Device device = device_of(node);
  std::optional<StreamGuard> stream;
  if (on_accelerator(device)) stream.emplace(device, stream_of(node, device));
  std::optional<SequenceGuard> numbers;
  if (options_.create_graph && !exclusive_) numbers.emplace(next_number_);
  StepGuard step(node);
  Variables inputs = take_inputs(entry);
  if (node.released()) refuse_released();
  NodeHooks hooks(node);
  hooks.run_tensor_pre_hooks(inputs);
  if (entry.captured) take_captures(index, inputs);
  bool runs;
  {
    Lock lock(*this);
    runs = entry.runs;
    --left_;
  }
  if (on_accelerator(device) && (node.outputs() == 0 || entry.captured)) {
    Lock lock(*this);
    leaf_streams_.emplace_back(device, stream_of(node, device));
  }
  if (!runs) return;
  hooks.run_pre_hooks(inputs);
  Variables outputs = hooks.run_node(inputs, options_.keep_graph, options_.create_graph);
  check_gradients(node, outputs);
  look_for_anomalies(node, outputs);
  inputs.clear();  // let go before anybody is told
  hand_on(entry, std::move(outputs));
}

void GraphTask::hand_on(const TaskNode& from, Variables&& gradients) {
  auto edges = from.node->next_edges();
  if (edges.empty()) return;
  for (size_t i = 0; i < edges.size() && !exclusive_; ++i)
    if (edges[i].valid()) synchronise(gradients[i], *edges[i].node, device_of(*edges[i].node));
  Lock lock(*this);
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& edge = edges[i];
    TaskEdge walked = i < from.edges ? graph_.edges[from.first_edge + i] : TaskEdge();
    uint32_t target = walked.target;
    if (target == none || graph_.nodes[target].node != edge.node.get()) {
      if (!edge.valid() || from.selective) continue;
      target = graph_.find(edge.node.get());
    }
    if (target == none) {
      if (edge.node->topological_number() >= graph_.least_topological_number)
        throw Error(
            "dependency not found: node '{}' has an edge to '{}' that was not there when "
            "the backward began",
            from.node->name(), edge.node->name());
      continue;
    }
    if (!graph_.is_used(target, edge.input)) continue;
    add_contribution(lock, target, edge.input, walked.ordinal, std::move(gradients[i]));
  }
}

void GraphTask::queue_callback(std::function<void()> callback) {
  std::lock_guard guard(mutex_);
  callbacks_.push_back(std::move(callback));
}

// Gradients were made on the streams of their devices; the caller goes on after that.
void GraphTask::wait_for_streams() {
  Streams made;
  {
    std::lock_guard guard(mutex_);
    made.swap(leaf_streams_);
  }
  for (auto [device, stream] : made)
    if (DeviceStreams* streams = device_streams(device.kind))
      streams->wait(device, stream, device, streams->current(device));
  if (failed()) return;  // other threads may still write what was captured
  for (const Variable& v : captured_)
    if (v.defined() && on_accelerator(v.data().device()))
      if (DeviceStreams* streams = device_streams(v.data().device().kind))
        streams->record_use(v.data(), streams->current(v.data().device()));
}

void GraphTask::run_callbacks() {
  StateGuard states(state_of_nodes());
  CurrentGuard guard(this);
  for (size_t i = 0;; ++i) {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      if (i == callbacks_.size()) return;
      callback = std::move(callbacks_[i]);
    }
    callback();
  }
}

Variables GraphTask::finish() {
  std::vector<std::string> warnings;
  {
    // Also waits for the thread that ended the task to let the lock go.
    std::lock_guard guard(mutex_);
    warnings.swap(warnings_);
  }
  for (const std::string& message : warnings) warn(message);
  if (!failed() && left_ != 0)
    fail(std::make_exception_ptr(
        Error("could not compute gradients for some functions: {} of {} nodes never had all their "
              "cotangents",
              left_, graph_.nodes.size())));
  wait_for_streams();
  SequenceGuard numbers(next_number_);
  if (!failed()) {
    try {
      run_callbacks();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  bool idle;
  {
    std::lock_guard guard(mutex_);
    idle = pending_ == 0;
  }
  // Nothing of this task is left on another thread but references to it. Unlocked, since users'
  // things die.
  if (idle) let_go();
  // The exception dies with the caller, not with a thread that still holds the task.
  if (failed()) std::rethrow_exception(std::exchange(error_, nullptr));
  if (options_.strict)
    for (size_t k = 0; k < captured_.size(); ++k)
      if (!captured_[k].defined() && !graph_.accumulated[k])
        throw Error("output {} that a gradient was asked for is not reached from the roots", k);
  return std::move(captured_);
}

}  // namespace gradus::autograd
