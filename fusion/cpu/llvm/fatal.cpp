#include "fusion/cpu/llvm/fatal.h"

#include <mutex>

#include <llvm/Support/ErrorHandling.h>

namespace gradus::fusion::cpu {

namespace {

std::mutex mutex;
int scopes = 0;              // of all threads; the handler is there while there are any
thread_local int depth = 0;  // of this thread

// Returning lets LLVM end the process, as it does without a handler.
void on_fatal_error(void*, const char* reason, bool) {
  if (depth > 0) throw ResourceError("the kernel compiler failed: {}", reason);
}

}  // namespace

FatalErrorsThrow::FatalErrorsThrow() {
  std::lock_guard guard(mutex);
  if (scopes++ == 0) llvm::install_fatal_error_handler(on_fatal_error, nullptr);
  ++depth;
}

FatalErrorsThrow::~FatalErrorsThrow() {
  std::lock_guard guard(mutex);
  --depth;
  if (--scopes == 0) llvm::remove_fatal_error_handler();
}

}  // namespace gradus::fusion::cpu
