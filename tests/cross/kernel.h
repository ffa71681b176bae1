// What the table of kernels is made of, on the target.
#pragma once

#include <cstddef>
#include <cstdint>

// As fusion/cpu/lower.h has it.
using Kernel = void(std::int64_t rows, std::int64_t columns, std::byte* const* pointers,
                    const std::int64_t* row_steps, const std::int64_t* column_steps);
struct NamedKernel {
  const char* name;
  Kernel* call;
};
extern const NamedKernel kernels[];
