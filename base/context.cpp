#include "gradus/context.h"

namespace gradus {

Context::Context(ContextOptions options)
    : workers_(options.workers),
      allocator_(options.allocator ? std::move(options.allocator)
                                   : std::make_shared<HeapAllocator>()),
      heap_(dynamic_cast<HeapAllocator*>(allocator_.get())),
      log_(std::move(options.log)) {}

const std::shared_ptr<Context>& Context::default_context() {
  static const std::shared_ptr<Context> context = std::make_shared<Context>();
  return context;
}

}  // namespace gradus
