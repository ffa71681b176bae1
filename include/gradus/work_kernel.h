// The code of a piece of work, which a backend makes.
#pragma once

#include <cstddef>
#include <memory>

#include "gradus/context.h"

namespace gradus::work {

// Resources of a kernel during a call.
struct KernelScope {  // one per call
  WorkerPool& workers;
  std::byte* scratch;  // of the size that the kernel states, aligned to 64 bytes
  // The context of the groups of ranks with which the kernel communicates. May be null if there are
  // none.
  Context* context = nullptr;
  // The same resources with other scratch memory.
  KernelScope with(std::byte* memory) const { return {workers, memory, context}; }
};

// Runs a piece of work. `args` are the addresses of the first elements of the operands, in order
// (null: absent), then of the results. Throws Error for invalid values, such as an index out of
// range.
using KernelFunction = void (*)(const void* parameters, std::byte* const* args, KernelScope& scope);

// The code of a piece of work. Immutable and thread-safe. `run` is null if there is nothing to do.
struct Kernel {
  KernelFunction run = nullptr;
  std::shared_ptr<const void> parameters;
  size_t scratch_bytes = 0;

  template <class P>
  static Kernel of(KernelFunction run, P parameters, size_t scratch_bytes = 0) {
    return {run, std::make_shared<const P>(std::move(parameters)), scratch_bytes};
  }
  // Takes a function with typed parameters: run(parameters, args, scope).
  template <auto run, class P>
  static Kernel of(P parameters, size_t scratch_bytes = 0) {
    auto typed = [](const void* p, std::byte* const* args, KernelScope& scope) {
      run(*static_cast<const P*>(p), args, scope);
    };
    return of(typed, std::move(parameters), scratch_bytes);
  }
};

}  // namespace gradus::work
