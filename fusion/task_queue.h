// Work done behind whoever asks for it: a context's kernels are compiled so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gradus::fusion {

// The process whose threads do something. Its forked children have none of them, and mutexes that
// they held are held there for ever.
class Owner {
 public:
  void claim();         // this process
  bool forked() const;  // whether this is a child of the owner

 private:
  std::atomic<int64_t> process_{0};  // 0: nobody yet
};

// Threads, started when there is something to do, for tasks that are known by name. Thread-safe. In
// a forked child there are no threads: nothing is taken, and nobody is waited for. When the process
// ends they are stopped before the static objects go that were there before the first thread.
class TaskQueue {
 public:
  // `before` runs on the thread that brings the first task, before there are threads. Where it
  // throws there are none. Libraries make static objects when they are first used: it uses all that
  // the tasks will.
  TaskQueue(unsigned threads, size_t most_waiting, std::function<void()> before);
  // Ends what is being done, and leaves the rest.
  ~TaskQueue();

  // Nothing where one of this name waits or runs. What a task throws is left: who needs what it
  // makes asks again.
  void add(const std::string& name, std::function<void()> task);
  // Returns when nothing waits or runs.
  void wait();
  // The same as the end: there will be no more.
  void stop();

  struct Statistics {
    uint64_t waiting = 0;  // and running
    uint64_t dropped = 0;  // not taken, since too many waited or the machine gave no thread
  };
  Statistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus::fusion
