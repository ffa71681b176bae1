// What programs share: memory, workers, a log, and the context that owns them.
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

// Where tensor memory comes from. A context owns one; embedders may bring their own.

namespace gradus {

// Thread-safe. Blocks are aligned to 64 bytes. An allocator outlives every tensor made from it:
// tensors hold it by shared_ptr.
class Allocator {
 public:
  static constexpr size_t alignment = 64;
  virtual ~Allocator() = default;
  // Throws ResourceError when there is no memory. `bytes` may be zero.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* block, size_t bytes) noexcept = 0;
};

// The default: the C++ heap, with counts of what lives.
class HeapAllocator final : public Allocator {
 public:
  // They live as long as the allocator, or a block that was counted. Thread-safe.
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
    std::atomic<size_t> holders_{1};  // living blocks, and the allocator
  };

  HeapAllocator() = default;
  ~HeapAllocator() override { counts_->drop(); }
  HeapAllocator(const HeapAllocator&) = delete;
  void* allocate(size_t bytes) override;
  void deallocate(void* block, size_t bytes) noexcept override;
  // For blocks that lie within something else, which count as those of `allocate` do.
  Counts& counts() const { return *counts_; }
  size_t live_bytes() const { return counts_->live_.load(); }
  size_t peak_bytes() const { return counts_->peak_.load(); }
  size_t live_blocks() const { return counts_->holders_.load() - 1; }
  // Number of allocate calls so far.
  size_t calls() const { return counts_->calls_.load(); }
  void reset_peak() { counts_->peak_ = counts_->live_.load(); }

 private:
  Counts* const counts_ = new Counts;
};

// Messages for whoever embeds Gradus. The library itself never prints.

enum class LogLevel { debug, info, warning };

// Called on any thread, never while a lock of Gradus is held. Null drops the messages.
using LogSink = std::function<void(LogLevel, std::string_view)>;

// A borrowed callable: two words, no heap. The callable must outlive the call.

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

// A context's worker threads: they split one loop at a time into chunks.

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

// What programs share: workers, memory, log. Nothing in Gradus is global but the default context.

struct ContextOptions {
  int workers = 0;  // threads for one loop, the caller included; 0: one per core
  std::shared_ptr<Allocator> allocator;  // null: a HeapAllocator of the context's own
  LogSink log;
};

// Thread-safe. States and tensors keep what they need of it alive.
class Context {
 public:
  explicit Context(ContextOptions options = {});
  // Made on first use, for those who pass no context.
  static const std::shared_ptr<Context>& default_context();

  WorkerPool& workers() { return workers_; }
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  // The same where it is the default one: such memory may lie wherever is best. Else null.
  HeapAllocator* heap() const { return heap_; }
  void log(LogLevel level, std::string_view message) const {
    if (log_) log_(level, message);
  }
  const LogSink& log_sink() const { return log_; }

  // What other parts of the library keep with a context, one of each type: made on first use.
  template <class T>
  std::shared_ptr<T> part(const std::function<std::shared_ptr<T>()>& make) {
    std::lock_guard guard(parts_mutex_);
    std::shared_ptr<void>& part = parts_[typeid(T)];
    if (!part) part = make();
    return std::static_pointer_cast<T>(part);
  }
  // Puts another one in its place; the one before is returned.
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
  std::map<std::type_index, std::shared_ptr<void>> parts_;  // go first: they use the rest
};

}  // namespace gradus

#pragma GCC visibility pop
