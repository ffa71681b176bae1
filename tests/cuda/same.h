// Holds interpreted kernels against the reference evaluator.
#pragma once

#include "tests/cuda/interpreted.h"
#include "tests/cuda/needs.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {

// Runs the nest's kernel for such sizes, on operands full of edges and on tame ones.
inline void expect_same(const Nest& nest, std::span<const Sizes> sizes) {
  static WorkerPool workers(1);
  const auto kernel = interpreted(nest);
  uint64_t seed = 1;
  for (const Sizes& s : sizes)
    for (bool tame : {false, true}) {
      Memory memory(nest, s, seed++, tame);
      std::string found;
      try {
        found = memory.difference([&](std::byte* const* args) {
          work::Kernel bound = kernel->bind(memory.frame);
          work::KernelScope scope{workers, nullptr};
          bound.run(bound.parameters.get(), args, scope);
        });
      } catch (const Error& e) {
        found = e.message();
      }
      ASSERT_EQ(found, "") << to_string(s) << '\n' << print(nest);
    }
}

}  // namespace gradus::fusion::test
