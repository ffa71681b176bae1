#include "autograd/engine_core.h"

#include <unistd.h>

#include "gradus/device_streams.h"
#include "gradus/thread_state.h"

namespace gradus::autograd {

namespace {

// How many tasks this thread's stack holds.
thread_local int nested_tasks = 0;
// The device's queue that this thread serves; null for others.
thread_local ReadyQueue* served_queue = nullptr;
// The core whose thread this is.
thread_local const void* home = nullptr;

// The threads of all devices: each says when it is up.
struct StartingLine {
  std::mutex mutex;
  std::condition_variable all_up;
  size_t missing = 0;
};

}  // namespace

Engine::Core::Core(const std::shared_ptr<Context>& context, EngineOptions given)
    : options(given), depth_limit(given.depth_limit), process_(getpid()) {
  if (given.depth_limit < 1) throw Error("the depth limit has to be 1 or more");
  int workers = options.workers > 0 ? options.workers : context->workers().workers();
  most_helpers_ = static_cast<size_t>(std::max(workers - 1, 0));
}

Engine::Core::~Core() {
  // Threads that were left behind keep the core alive: none runs here. In a forked child they are
  // not there.
  for (std::thread& t : threads_)
    if (t.joinable()) t.detach();
}

bool Engine::Core::in_forked_child() const { return getpid() != process_; }

void Engine::Core::check_alive() const {
  if (stopped()) throw Error("the engine was shut down; put another in its place, or make one");
  if (in_forked_child())
    throw Error(
        "this engine belongs to the parent process: its threads are not in a forked child; make a "
        "new context there");
}

Variables Engine::Core::execute(std::span<const Edge> roots, Variables cotangents,
                                const ExecuteOptions& execute_options,
                                std::span<const Capture> outputs) {
  const GraphTask* parent = GraphTask::current();
  ReadyQueue* serving = home == this ? served_queue : nullptr;
  if (!options.multithreading || nested_tasks < depth_limit.load())
    return execute_here(roots, std::move(cotangents), execute_options, outputs, parent, serving);
  // A fresh stack: this thread waits, and the other does its duties.
  std::atomic<uint64_t> number = next_sequence_number();
  std::packaged_task<Variables()> job([&, state = thread_state(), streams = current_streams()] {
    SequenceGuard numbers(number);
    StateGuard guard(state);
    StreamsGuard same_streams(streams);
    ValueGuard<ReadyQueue*> serves(served_queue, serving);
    GraphTask::CurrentGuard current(const_cast<GraphTask*>(parent));
    return execute_here(roots, std::move(cotangents), execute_options, outputs, parent, serving);
  });
  auto result = job.get_future();
  run_on_pool([&job] { job(); });
  result.wait();
  SequenceGuard numbers(number);
  return result.get();
}

Variables Engine::Core::execute_here(std::span<const Edge> roots, Variables cotangents,
                                     const ExecuteOptions& execute_options,
                                     std::span<const Capture> outputs, const GraphTask* parent,
                                     ReadyQueue* serving) {
  bool valid = outputs.empty() && (!parent || parent->checkpoint_valid());
  int depth = parent ? parent->depth() + 1 : 0;
  auto task =
      make_ref<GraphTask>(GraphTask::Request{roots, execute_options, outputs, depth, valid}, *this);
  task->prepare(options.multithreading);
  {
    std::lock_guard guard(mutex_);
    check_alive();
    tasks_.insert(task.get());
  }
  struct Listed {
    Core& core;
    GraphTask* task;
    ~Listed() {
      std::lock_guard guard(core.mutex_);
      core.tasks_.erase(task);
    }
  };
  {
    Listed listed{*this, task.get()};
    ValueGuard<int> nested(nested_tasks, nested_tasks + 1);
    StateGuard states(task->state_of_nodes());
    GraphTask::CurrentGuard current(task.get());
    task->start(std::move(cotangents), serving);
    ReadyNode next;
    while (task->cpu_queue().pop(next, depth, task.get())) {
      next.task->run(next.index);
      next = ReadyNode();
    }
  }
  return task->finish();
}

// Every thread keeps the core alive and is counted until it has nothing of it left in hand.
void Engine::Core::start_thread(std::function<void()> body) {
  ++living_threads_;
  try {
    threads_.emplace_back([core = shared_from_this(), body = std::move(body)]() mutable {
      home = core.get();
      body();
      body = nullptr;
      std::lock_guard guard(core->mutex_);
      --core->living_threads_;
      core->changed_.notify_all();
    });
  } catch (const std::system_error& e) {
    --living_threads_;
    throw ResourceError("the engine cannot start a thread: {}", e.what());
  }
}

ReadyQueue& Engine::Core::device_queue(Device device) {
  std::call_once(devices_started_, [&] { start_devices(device); });
  auto it = devices_.find({device.kind, device.index});
  if (it == devices_.end())
    throw Error(
        "there is no thread for device {}: its streams were not registered before the "
        "first backward on an accelerator",
        to_string(device));
  return *it->second;
}

// One thread per device there is. Returns when all are up.
void Engine::Core::start_devices(Device) {
  auto line = std::make_shared<StartingLine>();
  Streams all = current_streams();  // the embedder's code: not under the lock
  {
    std::lock_guard guard(mutex_);
    for (auto [device, stream] : all)
      devices_.emplace(std::pair(device.kind, device.index), std::make_unique<ReadyQueue>());
    line->missing = devices_.size();
    for (auto& [device, queue] : devices_) {
      Device d{device.first, device.second};
      start_thread(
          [this, d, &queue = *queue, line]() mutable { device_main(d, queue, std::move(line)); });
    }
    has_devices_.store(true, std::memory_order_release);
  }
  std::unique_lock guard(line->mutex);
  line->all_up.wait(guard, [&] { return line->missing == 0; });
}

void Engine::Core::device_main(Device, ReadyQueue& queue, std::shared_ptr<void> up) {
  served_queue = &queue;
  {
    auto line = std::static_pointer_cast<StartingLine>(up);
    std::lock_guard guard(line->mutex);
    --line->missing;
    line->all_up.notify_all();
  }
  up.reset();
  ReadyNode next;
  while (queue.pop(next, 0, nullptr)) {
    next.task->run(next.index);
    next = ReadyNode();
  }
}

size_t Engine::Core::drop(const GraphTask& task) {
  size_t dropped = 0;
  if (has_devices_.load(std::memory_order_acquire))
    for (auto& [device, queue] : devices_)
      if (queue.get() != &const_cast<GraphTask&>(task).cpu_queue()) dropped += queue->remove(&task);
  return dropped;
}

TaskTables Engine::Core::take_tables() {
  std::lock_guard guard(mutex_);
  return std::exchange(spare_tables_, {});
}

void Engine::Core::give_tables(TaskTables tables) {
  constexpr size_t most_nodes = size_t{1} << 21;  // about 100 MB
  if (tables.nodes.capacity() > most_nodes || tables.slots.capacity() > most_nodes) return;
  std::lock_guard guard(mutex_);
  if (spare_tables_.nodes.capacity() < tables.nodes.capacity()) std::swap(spare_tables_, tables);
}

void Engine::Core::ask_for_help(GraphTask& task) {
  if (most_helpers_ == 0) return;
  {
    std::lock_guard guard(mutex_);
    if (stopped()) return;
    // As many asks as there are helpers: each looks again when it has nothing left.
    if (help_wanted_.size() >= most_helpers_) return;
    help_wanted_.emplace_back(&task);
    if (idle_helpers_ < help_wanted_.size() && helpers_ < most_helpers_) {
      start_thread([this] { helper_main(); });
      ++helpers_;
    }
  }
  changed_.notify_all();
}

void Engine::Core::helper_main() {
  std::unique_lock guard(mutex_);
  for (;;) {
    ++idle_helpers_;
    changed_.wait(guard, [&] { return stopped() || !help_wanted_.empty(); });
    --idle_helpers_;
    if (stopped()) return;
    Ref<GraphTask> task = std::move(help_wanted_.front());
    help_wanted_.pop_front();
    guard.unlock();
    ReadyNode next;
    while (task->cpu_queue().pop_parallel(next)) {
      next.task->run_on_worker(next.index);
      next = ReadyNode();
    }
    task = nullptr;
    guard.lock();
  }
}

void Engine::Core::run_on_pool(std::function<void()> job) {
  {
    std::lock_guard guard(mutex_);
    check_alive();
    jobs_.push_back(std::move(job));
    try {
      if (idle_pool_threads_ < jobs_.size()) start_thread([this] { pool_main(); });
    } catch (...) {
      jobs_.pop_back();  // whoever asked is told so and does not wait
      throw;
    }
  }
  changed_.notify_all();
}

void Engine::Core::pool_main() {
  std::unique_lock guard(mutex_);
  for (;;) {
    ++idle_pool_threads_;
    changed_.wait(guard, [&] { return stopped() || !jobs_.empty(); });
    --idle_pool_threads_;
    if (jobs_.empty()) return;  // what was asked for before a shutdown still gets its answer
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    guard.unlock();
    job();
    job = nullptr;
    guard.lock();
  }
}

void Engine::Core::shutdown(std::chrono::milliseconds limit) {
  if (in_forked_child()) return;  // there is nobody to wait for
  auto stop = std::make_exception_ptr(Error("the engine was shut down while this backward ran"));
  std::vector<Ref<GraphTask>> running;
  std::deque<Ref<GraphTask>> forgotten;
  {
    std::lock_guard guard(mutex_);
    stopped_.store(true, std::memory_order_release);
    // Tasks of one thread look at `stopped_` themselves.
    for (GraphTask* task : tasks_)
      if (!task->stays_on_one_thread()) running.emplace_back(task);
    forgotten.swap(help_wanted_);
  }
  for (const Ref<GraphTask>& task : running) task->fail(stop);
  running.clear();
  forgotten.clear();
  if (has_devices_.load(std::memory_order_acquire))
    for (auto& [device, queue] : devices_) queue->close();
  std::vector<std::thread> finished;
  {
    std::unique_lock guard(mutex_);
    changed_.notify_all();
    size_t own = home == this ? 1 : 0;  // called from one of its threads: that one stays
    bool all = changed_.wait_for(guard, limit, [&] { return living_threads_ <= own; });
    for (std::thread& t : threads_) {
      if (all && t.get_id() != std::this_thread::get_id())
        finished.push_back(std::move(t));
      else
        t.detach();
    }
    threads_.clear();
  }
  for (std::thread& t : finished) t.join();
}

}  // namespace gradus::autograd
