// The engine's threads and queues, which outlive the engine as long as a thread uses them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "autograd/graph_task.h"
#include "gradus/engine.h"

namespace gradus::autograd {

struct Engine::Core final : TaskHost, std::enable_shared_from_this<Engine::Core> {
  Core(const std::shared_ptr<Context>& context, EngineOptions given);
  ~Core() override;

  // On the calling thread, or beyond the depth limit on one of the pool.
  Variables execute(std::span<const Edge> roots, Variables cotangents,
                    const ExecuteOptions& execute_options, std::span<const Capture> outputs);
  void run_on_pool(std::function<void()> job);
  // Throws Error when stopped, or in a forked child whose threads are gone.
  void check_alive() const;
  void shutdown(std::chrono::milliseconds limit);

  // TaskHost.
  ReadyQueue& device_queue(Device device) override;
  void ask_for_help(GraphTask& task) override;
  size_t drop(const GraphTask& task) override;
  bool stopped() const override { return stopped_.load(std::memory_order_acquire); }
  TaskTables take_tables() override;
  void give_tables(TaskTables tables) override;

  EngineOptions options;
  std::atomic<int> depth_limit;
  std::atomic<bool> warned_of_graphs{false};

 private:
  Variables execute_here(std::span<const Edge> roots, Variables cotangents,
                         const ExecuteOptions& execute_options, std::span<const Capture> outputs,
                         const GraphTask* parent, ReadyQueue* serving);
  void start_thread(std::function<void()> body);  // mutex_ is held
  void start_devices(Device wanted);
  void device_main(Device device, ReadyQueue& queue, std::shared_ptr<void> up);
  void helper_main();
  void pool_main();
  bool in_forked_child() const;

  const int process_;
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<GraphTask*> tasks_;  // that run now
  std::vector<std::thread> threads_;
  size_t living_threads_ = 0;
  // Devices' queues; made before their threads, never taken away.
  std::map<std::pair<DeviceKind, uint16_t>, std::unique_ptr<ReadyQueue>> devices_;
  std::atomic<bool> has_devices_{false};
  std::once_flag devices_started_;
  // Workers for independent branches.
  std::deque<Ref<GraphTask>> help_wanted_;
  size_t helpers_ = 0, idle_helpers_ = 0;
  size_t most_helpers_;
  // Threads for nested tasks beyond the depth limit, and for asynchronous ones.
  std::deque<std::function<void()>> jobs_;
  size_t idle_pool_threads_ = 0;
  TaskTables spare_tables_;
};

}  // namespace gradus::autograd
