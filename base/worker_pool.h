// A context's worker threads: they split one loop at a time into chunks.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

#pragma GCC visibility push(default)

namespace gradus {

// Threads start at the first loop that wants them. Which worker runs which chunk never changes a
// result: chunk boundaries depend on the sizes alone, and chunks write disjoint memory.
class WorkerPool {
 public:
  // `workers` counts the calling thread: 1 runs everything on the caller, 0 means one per core.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return workers_; }

  // Calls body(chunk) once for every chunk in [0, chunks), on any threads, and returns when all
  // are done. An exception reaches the caller when the chunks that had begun have ended; others
  // are not begun then. Of several exceptions it is the first. A loop started while another runs
  // (from inside a body, or from a second thread) runs on its caller alone. If the machine gives
  // fewer threads than asked for, those do the work.
  void parallel_for(int64_t chunks, FunctionRef<void(int64_t)> body);
  // Likewise body(first, last) for parts of [0, n): of `each`, and one of what is left.
  template <class F>
  void parallel_parts(int64_t n, int64_t each, F body) {
    if (n <= each) return n > 0 ? body(int64_t{0}, n) : void();
    parallel_for((n + each - 1) / each,
                 [&](int64_t i) { body(i * each, std::min(n, (i + 1) * each)); });
  }

 private:
  struct Job {
    FunctionRef<void(int64_t)> body;
    int64_t chunks;
    std::atomic<int64_t> next{0};
    std::exception_ptr error;
    std::mutex error_mutex;
  };
  void work(Job& job);
  void worker_main();
  void start();

  int workers_;
  std::atomic<bool> busy_{false};  // a loop runs: others run on their callers
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  uint64_t generation_ = 0;
  int active_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gradus

#pragma GCC visibility pop
