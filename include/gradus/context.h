// Context, and what it owns: an allocator, worker threads and a log. Programs share a context.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

// The source of tensor memory. A context owns one. A program may provide its own.

namespace gradus {

// An allocator. Must be thread-safe. Blocks are aligned to `alignment` bytes. Tensors hold their
// allocator by shared_ptr, so it outlives them.
class Allocator {
 public:
  static constexpr size_t alignment = 64;
  virtual ~Allocator() = default;
  // Returns a block of at least `bytes` bytes. Throws ResourceError if there is no memory. `bytes`
  // may be zero.
  virtual void* allocate(size_t bytes) = 0;
  // Frees a block of `allocate`. `bytes` is the size that was passed there.
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
};

// The default allocator: the C++ heap, with counts of the living blocks. Thread-safe. It keeps up
// to 128 MiB of freed blocks of at least 128 KiB, in which later blocks of nearly as many bytes are
// placed. Those are not counted, and are freed with the allocator, or where other blocks take their
// place.
class HeapAllocator final : public Allocator {
 public:
  // The counts. They live as long as the allocator and every counted block. Thread-safe.
  class Counts {
   public:
    void add(size_t bytes);
    void remove(size_t bytes) noexcept;

   private:
    friend class HeapAllocator;
    void drop() noexcept {
      if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    std::atomic<size_t> live_{0}, peak_{0}, calls_{0};
    std::atomic<size_t> holders_{1};  // living blocks, plus one for the allocator
  };

  HeapAllocator();
  ~HeapAllocator() override;
  HeapAllocator(const HeapAllocator&) = delete;
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  // For memory inside other blocks that counts like a block of `allocate`.
  Counts& counts() const { return *counts_; }
  // The bytes of the living blocks, and their maximum since `reset_peak`.
  size_t live_bytes() const { return counts_->live_.load(); }
  size_t peak_bytes() const { return counts_->peak_.load(); }
  size_t live_blocks() const { return counts_->holders_.load() - 1; }
  // The number of blocks that were allocated since the allocator was made.
  size_t calls() const { return counts_->calls_.load(); }
  void reset_peak() { counts_->peak_ = counts_->live_.load(); }

 private:
  struct Kept;
  Counts* const counts_ = new Counts;
  const std::unique_ptr<Kept> kept_;
};

// Messages to the program that uses Gradus. The library itself never prints.

// The severity of a message.
enum class LogLevel { debug, info, warning };

// Called on any thread, never while Gradus holds a lock. A null sink drops the messages.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// A reference to a callable: two words, without heap memory. The callable must outlive the
// reference.

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& f)  // NOLINT: reads as passing the callable
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

// The worker threads of a context. They split a loop into chunks, one loop at a time.

// A pool of threads, which start at the first parallel loop. After a loop, threads that have a core
// each spin for 100 microseconds before they sleep. The assignment of chunks to threads does not
// affect results: chunk boundaries depend on the sizes only, and chunks write disjoint memory.
// Thread-safe.
class WorkerPool {
 public:
  // `workers` includes the calling thread. 1: everything runs on the caller. 0: one per core.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return workers_; }

  // Calls body(chunk) once for every chunk in [0, chunks), on any threads, and returns when all
  // calls have returned. If a call throws, no further chunks start, and the first exception is
  // rethrown when the running chunks have ended. A loop that starts while another loop runs (inside
  // a body, or on a second thread) runs on its caller alone. If the machine provides fewer threads,
  // those run the loop.
  void parallel_for(int64_t chunks, FunctionRef<void(int64_t)> body);
  // Calls body(first, last) for the parts of [0, n). Each part has `each` elements; the last may
  // have fewer.
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
  void call(Job& job);
  void wait_for_workers();
  template <class Condition>
  bool spin_until(const Condition& holds) const;

  int workers_;
  const bool spins_;               // each worker has a core
  std::atomic<bool> busy_{false};  // a loop runs: others run on their callers
  // Null between loops. A worker counts itself as active before it reads this, and the caller reads
  // `active_` after it has put null here: so no worker works on a job that is gone.
  std::atomic<Job*> job_{nullptr};
  std::atomic<int> active_{0};
  std::atomic<uint64_t> generation_{0};  // of jobs
  std::atomic<bool> stop_{false};
  // Who goes to sleep says so before it looks for a last time, and who has something to say looks
  // for sleepers after that: so no call is missed.
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<int> asleep_{0};           // workers
  std::atomic<bool> is_waiting_{false};  // the caller, for active workers
  std::vector<std::thread> threads_;
};

// What programs share: workers, memory and a log. The only global context is the default one.

// Options of a context.
struct ContextOptions {
  // Threads of one loop, including the caller. 0: one per core that the process may use.
  int workers = 0;
  std::shared_ptr<Allocator> allocator;  // null: a HeapAllocator of this context
  LogSink log;
};

// The owner of workers, allocator, log and parts. Thread-safe. States and tensors keep the parts
// that they need alive.
class Context {
 public:
  explicit Context(ContextOptions options = {});
  // The context of callers that pass none. It is made on first use.
  static const std::shared_ptr<Context>& default_context();

  WorkerPool& workers() { return workers_; }
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  // The allocator, if it is a HeapAllocator; otherwise null. Tensors may then place their memory in
  // pooled blocks.
  HeapAllocator* heap() const { return heap_; }
  void log(LogLevel level, std::string_view message) const {
    if (log_) log_(level, message);
  }
  const LogSink& log_sink() const { return log_; }

  // Data that other parts of the library attach to a context: one object of each type. `make` makes
  // it on first use, with the lock held.
  template <class T>
  std::shared_ptr<T> part(const std::function<std::shared_ptr<T>()>& make) {
    std::lock_guard guard(parts_mutex_);
    std::shared_ptr<void>& part = parts_[typeid(T)];
    if (!part) part = make();
    return std::static_pointer_cast<T>(part);
  }
  // Replaces the object of a type. Returns the previous one, or null.
  template <class T>
  std::shared_ptr<T> replace_part(std::shared_ptr<T> other) {
    std::lock_guard guard(parts_mutex_);
    std::shared_ptr<void> before = std::move(other);
    std::swap(parts_[typeid(T)], before);
    return std::static_pointer_cast<T>(before);
  }

 private:
  WorkerPool workers_;
  std::shared_ptr<Allocator> allocator_;
  HeapAllocator* heap_;
  LogSink log_;
  std::mutex parts_mutex_;
  // Destroyed first: they use the other members.
  std::map<std::type_index, std::shared_ptr<void>> parts_;
};

}  // namespace gradus

#pragma GCC visibility pop
