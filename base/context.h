// What programs share: workers, memory, log. Nothing in Gradus is global but the default context.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>

#include "base/allocator.h"
#include "base/log.h"
#include "base/worker_pool.h"

#pragma GCC visibility push(default)

namespace gradus {

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
