#include <algorithm>
#include <chrono>

#include "gradus/context.h"

namespace gradus {

namespace {

// To wake a thread that sleeps takes some ten microseconds, and several times that on a virtual
// machine. The loops of a program follow one another faster: a chain of 65,536 elements took 130
// microseconds on two threads that slept in between, 76 on one, and 42 on two that did not sleep.
constexpr std::chrono::microseconds longest_spin{100};

// Lets the other hardware thread of the core run on.
void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace

WorkerPool::WorkerPool(int workers)
    : workers_(workers > 0 ? workers : cores()), spins_(workers_ <= cores()) {}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
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

// False if that has taken too long.
template <class Condition>
bool WorkerPool::spin_until(const Condition& holds) const {
  constexpr int pauses = 32;  // between two looks at the clock
  if (!spins_) return holds();
  const auto end = std::chrono::steady_clock::now() + longest_spin;
  do {
    for (int i = 0; i < pauses; ++i) {
      if (holds()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
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
  for (uint64_t seen = 0;;) {
    const auto called = [&] { return stop_ || generation_ != seen; };
    if (!spin_until(called)) {
      std::unique_lock lock(mutex_);
      ++asleep_;
      wake_.wait(lock, called);
      --asleep_;
    }
    if (stop_) return;
    seen = generation_;
    ++active_;
    if (Job* job = job_) work(*job);
    if (--active_ != 0 || !is_waiting_) continue;
    std::lock_guard lock(mutex_);  // the caller is not between its last look and its sleep
    done_.notify_one();
  }
}

// Wakes no more than there is work for beside those that are awake.
void WorkerPool::call(Job& job) {
  job_ = &job;
  ++generation_;
  const int64_t asleep = asleep_, awake = static_cast<int64_t>(threads_.size()) - asleep;
  const int64_t missing = std::min(job.chunks - 1 - awake, asleep);
  if (missing <= 0) return;
  std::lock_guard lock(mutex_);  // no worker is between its last look and its sleep
  for (int64_t i = 0; i < missing; ++i) wake_.notify_one();
}

void WorkerPool::wait_for_workers() {
  job_ = nullptr;
  const auto idle = [&] { return active_ == 0; };
  if (spin_until(idle)) return;
  std::unique_lock lock(mutex_);
  is_waiting_ = true;
  done_.wait(lock, idle);
  is_waiting_ = false;
}

void WorkerPool::parallel_for(int64_t chunks, FunctionRef<void(int64_t)> body) {
  if (workers_ == 1 || chunks <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  start();
  Job job{body, chunks, {}, {}, {}};
  call(job);
  work(job);
  wait_for_workers();
  busy_.store(false, std::memory_order_release);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace gradus
