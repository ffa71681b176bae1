// One backward: its nodes, what has arrived at each, and how far it is.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/ready_queue.h"
#include "autograd/task_graph.h"
#include "gradus/context.h"
#include "gradus/device_streams.h"
#include "gradus/thread_state.h"

namespace gradus::autograd {

// What a task asks of the engine it runs on.
class TaskHost {
 public:
  virtual ~TaskHost() = default;
  virtual ReadyQueue& device_queue(Device device) = 0;
  virtual void ask_for_help(GraphTask& task) = 0;  // there is a node that a worker could run
  // Takes what is queued of a task out of the devices' queues; how many nodes that were.
  virtual size_t drop(const GraphTask& task) = 0;
  virtual bool stopped() const = 0;
  // Empty tables, perhaps with memory; and back they go.
  virtual TaskTables take_tables() = 0;
  virtual void give_tables(TaskTables tables) = 0;
};

// Made by the thread that calls the engine, which drives it. What several threads touch is guarded
// by a mutex, which a task that stays on one thread does not take. No lock is held while a node, a
// hook, or a destructor of user data runs.
class GraphTask final : public RefCounted {
 public:
  struct Request {
    std::span<const Edge> roots;
    ExecuteOptions options;
    std::span<const Capture> outputs;
    int depth = 0;
    bool checkpoint_valid = true;
  };
  GraphTask(const Request& request, TaskHost& host);
  ~GraphTask() override;
  // Finds the nodes that take part. Throws Error for edges to inputs that are not there.
  void prepare(bool multithreading);

  // Hands the roots their cotangents (checked by the engine) and makes ready what can run. CPU
  // nodes go to a queue of the task's own, or to `device_queue` where a device's thread drives the
  // task.
  void start(Variables&& cotangents, ReadyQueue* device_queue);
  ReadyQueue& cpu_queue() { return *cpu_queue_; }
  // Runs one node, then hands on what it gave. Never throws: a failure is the task's.
  void run(uint32_t index);
  // The same on a worker, unless a hook that came meanwhile wants the calling thread: then the node
  // goes back to the queue.
  void run_on_worker(uint32_t index);
  // Done: nothing of it is queued or runs.
  bool done() const { return done_.load(std::memory_order_acquire); }
  void fail(std::exception_ptr error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // After `done`, on the thread that made it: callbacks, streams. Throws what failed.
  Variables finish();

  // The task whose node (or callback) runs on this thread; null outside one.
  static GraphTask* current();
  struct CurrentGuard : ValueGuard<GraphTask*> {
    explicit CurrentGuard(GraphTask* task);
  };

  // Whether a gradient along this edge of a node is used in this task.
  bool wants(const Node& node, size_t edge) const;
  // The same of all its edges, of which there are 64 at most: a bit each.
  uint64_t wanted_of(const Node& node) const;
  bool runs(const Node& node) const;
  void add(const Node& node);
  std::vector<const Node*> nodes() const;
  int64_t id() const { return id_; }
  int depth() const { return depth_; }
  bool keeps_graph() const { return options_.keep_graph; }
  bool checkpoint_valid() const { return checkpoint_valid_; }
  void queue_callback(std::function<void()> callback);
  bool stays_on_one_thread() const { return exclusive_; }
  // The thread-local state of its nodes and callbacks.
  ThreadState state_of_nodes() const;

 private:
  static constexpr uint32_t none = TaskGraph::none;

  struct Held {
    uint32_t ordinal;
    Variable value;
  };
  // Locks, unless the task stays on one thread.
  class Lock {
   public:
    explicit Lock(const GraphTask& task)
        : lock_(task.mutex_, std::defer_lock), needed_(!task.exclusive_) {
      acquire();
    }
    void acquire() {
      if (needed_) lock_.lock();
    }
    void release() {
      if (needed_) lock_.unlock();
    }

   private:
    std::unique_lock<std::mutex> lock_;
    const bool needed_;
  };

  void decide_threads(bool multithreading);
  void add_contribution(Lock& lock, uint32_t target, uint32_t input, uint32_t ordinal,
                        Variable value);
  void make_ready(uint32_t index);
  void queue_on_cpu(uint32_t index, bool parallel);
  void hand_on(const TaskNode& from, Variables&& gradients);
  void run_node(TaskNode& entry);
  void run_plain(TaskNode& entry);
  void fetch_ahead(const TaskNode& entry) const;
  Variables take_inputs(const TaskNode& entry);
  void take_captures(uint32_t index, const Variables& gradients);
  void wait_for_streams();
  void run_callbacks();
  void one_less();
  void let_go();
  void complete();

  TaskHost& host_;
  const ExecuteOptions options_;
  const int64_t id_;
  const int depth_;
  const bool checkpoint_valid_;
  ThreadState caller_state_;
  const Streams caller_streams_;
  // Of nodes that are made while this runs, where several threads may make some.
  std::atomic<uint64_t> next_number_;
  TaskGraph graph_;
  Variables captured_;

  std::unordered_map<uint32_t, std::vector<Held>> early_;  // by slot: contributions out of turn
  bool exclusive_ = false;
  ReadyQueue own_queue_;
  ReadyQueue* cpu_queue_ = &own_queue_;

  mutable std::mutex mutex_;
  size_t pending_ = 0;       // queued or running
  size_t left_ = 0;          // nodes that are to run and have not
  uint32_t next_up_ = none;  // handed to the thread that runs, past the queue
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
  std::vector<std::string> warnings_;
  Streams leaf_streams_;  // on which gradients of leaves and captured ones were made
  std::atomic<bool> failed_{false};
  std::atomic<bool> done_{false};
};

}  // namespace gradus::autograd
