#include "fusion/task_queue.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <vector>

#include <unistd.h>

#include "gradus/error.h"

namespace gradus::fusion {

namespace {

// Those of the process that may have threads.
class Queues {
 public:
  // Never destroyed: contexts may go at any time.
  static Queues& get() {
    static Queues& queues = *new Queues();
    return queues;
  }
  void add(TaskQueue* one) {
    std::lock_guard guard(mutex_);
    all_.push_back(one);
  }
  void remove(TaskQueue* one) {
    std::lock_guard guard(mutex_);
    std::erase(all_, one);
  }
  // From now on they are stopped when the process ends, before static objects that are there go: a
  // process destroys what was made last first.
  static void stop_at_exit() {
    std::atexit([] { get().stop(); });
  }

 private:
  void stop() {
    std::lock_guard guard(mutex_);
    for (TaskQueue* one : all_) one->stop();
  }
  std::mutex mutex_;
  std::vector<TaskQueue*> all_;
};

}  // namespace

void Owner::claim() { process_.store(getpid(), std::memory_order_relaxed); }

bool Owner::forked() const {
  const int64_t process = process_.load(std::memory_order_relaxed);
  return process && process != getpid();
}

struct TaskQueue::Impl {
  struct Task {
    std::string name;
    std::function<void()> run;
  };
  const unsigned most_threads;
  const size_t most_waiting;
  const std::function<void()> before;
  Owner owner{};  // of the threads
  mutable std::mutex mutex;
  std::condition_variable wake, idle;
  std::vector<std::thread> threads;
  std::deque<Task> waiting;
  std::unordered_set<std::string> on_its_way;
  size_t running = 0;
  bool stopped = false;
  uint64_t done = 0, dropped = 0;

  // Under the mutex. Whether somebody will do what waits.
  bool start() {
    if (threads.size() >= most_threads || threads.size() > waiting.size() + running) return true;
    try {
      if (threads.empty()) {
        owner.claim();
        before();
        Queues::stop_at_exit();
      }
      threads.emplace_back([this] { work(); });
    } catch (const ResourceError&) {
    } catch (const std::system_error&) {
    }
    return !threads.empty();
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopped || !waiting.empty(); });
      if (stopped) return;
      Task task = std::move(waiting.front());
      waiting.pop_front();
      ++running;
      lock.unlock();
      try {
        task.run();
      } catch (const std::exception&) {
        // No memory to remember it by: who needs it asks again.
      }
      task.run = nullptr;
      lock.lock();
      // The task may have made static objects; the more tasks were done, the fewer are missing.
      if (std::has_single_bit(++done)) Queues::stop_at_exit();
      on_its_way.erase(task.name);
      --running;
      if (waiting.empty() && !running) idle.notify_all();
    }
  }
};

TaskQueue::TaskQueue(unsigned threads, size_t most_waiting, std::function<void()> before)
    : impl_(new Impl{.most_threads = std::max(1u, threads),
                     .most_waiting = most_waiting,
                     .before = std::move(before)}) {
  Queues::get().add(this);
}

TaskQueue::~TaskQueue() {
  Queues::get().remove(this);
  if (impl_->owner.forked())
    static_cast<void>(
        impl_.release());  // destroying what waiters of the parent wait for would hang
  else
    stop();
}

void TaskQueue::add(const std::string& name, std::function<void()> task) {
  if (impl_->owner.forked()) return;
  std::lock_guard guard(impl_->mutex);
  if (impl_->stopped || impl_->on_its_way.contains(name)) return;
  if (impl_->waiting.size() >= impl_->most_waiting || !impl_->start()) {
    ++impl_->dropped;
    return;
  }
  impl_->on_its_way.insert(name);
  impl_->waiting.push_back({name, std::move(task)});
  impl_->wake.notify_one();
}

void TaskQueue::wait() {
  if (impl_->owner.forked()) return;
  std::unique_lock lock(impl_->mutex);
  impl_->idle.wait(lock,
                   [&] { return impl_->stopped || (impl_->waiting.empty() && !impl_->running); });
}

void TaskQueue::stop() {
  if (impl_->owner.forked()) return;
  std::vector<std::thread> threads;
  {
    std::lock_guard guard(impl_->mutex);
    impl_->stopped = true;
    threads = std::move(impl_->threads);
    impl_->threads.clear();
  }
  impl_->wake.notify_all();
  impl_->idle.notify_all();
  for (std::thread& t : threads) t.join();
}

TaskQueue::Statistics TaskQueue::statistics() const {
  if (impl_->owner.forked()) return {};
  std::lock_guard guard(impl_->mutex);
  return {impl_->waiting.size() + impl_->running, impl_->dropped};
}

}  // namespace gradus::fusion
