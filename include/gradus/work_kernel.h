// Executable code for a piece of work, as a backend makes it.
#pragma once

#include <cstddef>
#include <memory>

#include "gradus/context.h"

namespace gradus::work {

// What a kernel may use while it runs.
struct KernelScope {  // one per call
  WorkerPool& workers;
  std::byte* scratch;          // as many bytes as the kernel asked for, 64-byte aligned
  Context* context = nullptr;  // whose groups of ranks it speaks to; null where no kernel does
  // The same with other scratch memory.
  KernelScope with(std::byte* memory) const { return {workers, memory, context}; }
};

// Runs a piece of work. `args` are pointers to the first elements: operands in order (absent ones
// null), then results. Throws Error for bad values (an index out of range).
using KernelFunction = void (*)(const void* parameters, std::byte* const* args, KernelScope& scope);

// Immutable, for any number of threads. `run` is null where there is nothing to do.
struct Kernel {
  KernelFunction run = nullptr;
  std::shared_ptr<const void> parameters;
  size_t scratch_bytes = 0;

  template <class P>
  static Kernel of(KernelFunction run, P parameters, size_t scratch_bytes = 0) {
    return {run, std::make_shared<const P>(std::move(parameters)), scratch_bytes};
  }
  // Of a function that takes parameters of their own type: run(parameters, args, scope).
  template <auto run, class P>
  static Kernel of(P parameters, size_t scratch_bytes = 0) {
    auto typed = [](const void* p, std::byte* const* args, KernelScope& scope) {
      run(*static_cast<const P*>(p), args, scope);
    };
    return of(typed, std::move(parameters), scratch_bytes);
  }
};

}  // namespace gradus::work
