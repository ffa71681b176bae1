#include "gradus/context.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace gradus {

namespace {

// The cores that this process may run on, where it may not run on all (under taskset, or in a
// container that says so); else 0.
int usable_cores() {
#ifdef __linux__
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
#endif
  return 0;
}

}  // namespace

Context::Context(ContextOptions options)
    : workers_(options.workers > 0 ? options.workers : usable_cores()),
      allocator_(options.allocator ? std::move(options.allocator)
                                   : std::make_shared<HeapAllocator>()),
      heap_(dynamic_cast<HeapAllocator*>(allocator_.get())),
      log_(std::move(options.log)) {}

const std::shared_ptr<Context>& Context::default_context() {
  static const std::shared_ptr<Context> context = std::make_shared<Context>();
  return context;
}

}  // namespace gradus
