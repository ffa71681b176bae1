#include <algorithm>

#include "gradus/context.h"

namespace gradus {

WorkerPool::WorkerPool(int workers)
    : workers_(workers > 0 ? workers
                           : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& t : threads_) t.join();
}

void WorkerPool::start() {
  try {
    while (static_cast<int>(threads_.size()) + 1 < workers_)
      threads_.emplace_back([this] { worker_main(); });
  } catch (const std::exception&) {
    // The machine gives no more threads: the loop runs on those there are.
  }
}

void WorkerPool::work(Job& job) {
  for (int64_t i; (i = job.next.fetch_add(1, std::memory_order_relaxed)) < job.chunks;) {
    try {
      job.body(i);
    } catch (...) {
      std::lock_guard lock(job.error_mutex);
      if (!job.error) job.error = std::current_exception();
      job.next.store(job.chunks, std::memory_order_relaxed);  // begin no more
    }
  }
}

void WorkerPool::worker_main() {
  std::unique_lock lock(mutex_);
  uint64_t seen = 0;
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (job_ && generation_ != seen); });
    if (stop_) return;
    seen = generation_;
    Job& job = *job_;
    ++active_;
    lock.unlock();
    work(job);
    lock.lock();
    if (--active_ == 0) done_.notify_one();
  }
}

void WorkerPool::parallel_for(int64_t chunks, FunctionRef<void(int64_t)> body) {
  if (workers_ == 1 || chunks <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  Job job{body, chunks, {}, {}, {}};
  {
    std::lock_guard lock(mutex_);
    start();
    job_ = &job;
    ++generation_;
  }
  wake_.notify_all();
  work(job);
  {
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // late workers no longer see it
    done_.wait(lock, [&] { return active_ == 0; });
  }
  busy_.store(false, std::memory_order_release);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace gradus
