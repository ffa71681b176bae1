// What programs share: workers, memory, log. Nothing in Gradus is global but the default context.
#pragma once

#include <memory>

#include "base/allocator.h"
#include "base/log.h"
#include "base/worker_pool.h"

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
  void log(LogLevel level, std::string_view message) const {
    if (log_) log_(level, message);
  }

 private:
  WorkerPool workers_;
  std::shared_ptr<Allocator> allocator_;
  LogSink log_;
};

}  // namespace gradus
