// A nest -> a function of LLVM.
#pragma once

#include "fusion/nest.h"

namespace llvm {
class Module;
}

namespace gradus::fusion::cpu {

// How the compiled function is called: `rows` times `columns` elements of the two innermost loops.
// Pointers to the first elements of loads, then stores, row stores and column stores; steps from
// row to row and from column to column in bytes. Behind the latter: for each load that has an
// index, the step from one index to the next, and then whether stores are to go past the caches.
// Of a load that has several operands, the one that the rows and columns are of. What is reduced of
// a column is combined into what its store has, an accumulator (f64, f32, i64 or bool) that steps
// from row to row like any other.
using KernelEntry = void (*)(int64_t rows, int64_t columns, std::byte* const* pointers,
                             const int64_t* row_steps, const int64_t* column_steps);

// Appends the function `name` to the module. `vector_bits` is how wide the machine's registers
// are. The nest is verified. A load or store may not overlap a store but element on element, and
// not at all where rows are reduced. `lanes` of a nest that reduces no rows: how many elements are
// computed at a time, a power of two; 0: as many as lanes_of says.
void lower(const Nest& nest, unsigned vector_bits, const char* name, llvm::Module& module,
           unsigned lanes = 0);

}  // namespace gradus::fusion::cpu
