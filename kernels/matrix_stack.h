// Stacks of matrices, one loaded and stored at a time.
#pragma once

#include <exception>
#include <mutex>
#include <numeric>

#include "base/slots.h"
#include "gradus/error.h"
#include "kernels/copies.h"
#include "kernels/make.h"

namespace gradus::kernels {

// Where a stack of matrices lies.
struct Stack {
  Layout layout;
  int64_t rows, columns;

  explicit Stack(const Layout& l)
      : layout(l), rows(l.shape[l.shape.size() - 2]), columns(l.shape.back()) {}
  int64_t matrices() const {
    return std::accumulate(layout.shape.begin(), layout.shape.end() - 2, int64_t{1},
                           std::multiplies<>());
  }
  int64_t offset(int64_t matrix) const {
    int64_t at = 0;
    for (size_t d = layout.shape.size() - 2; d-- > 0;) {
      at += matrix % layout.shape[d] * layout.strides[d];
      matrix /= layout.shape[d];
    }
    return at;
  }
  void load(const std::byte* base, int64_t matrix, double* m) const {
    const size_t rank = layout.shape.size(), size = size_of(layout.dtype);
    const std::byte* first = base + offset(matrix) * static_cast<int64_t>(size);
    for (int64_t i = 0; i < rows; ++i)
      convert_row(layout.dtype, first + i * layout.strides[rank - 2] * static_cast<int64_t>(size),
                  layout.strides[rank - 1], DType::f64,
                  reinterpret_cast<std::byte*>(m + i * columns), 1, columns);
  }
  // Only where the stack is contiguous.
  void store(std::byte* base, int64_t matrix, const double* m) const {
    store_row(layout.dtype, base, matrix * rows * columns, m, rows * columns);
  }
  static void store_row(DType dtype, std::byte* base, int64_t at, const double* m, int64_t n) {
    convert_row(DType::f64, reinterpret_cast<const std::byte*>(m), 1, dtype,
                base + at * static_cast<int64_t>(size_of(dtype)), 1, n);
  }
};

// Calls f(matrix, slot) for each, on several threads. Of the Errors that it throws the one of the
// least number is thrown in the end, whichever thread was the first.
template <class F>
void each_matrix(WorkerPool& workers, int64_t count, F f) {
  std::mutex guard;
  int64_t least = count;
  std::exception_ptr error;
  run_in_slots(workers, count, [&](int64_t matrix, int64_t slot) {
    try {
      f(matrix, slot);
    } catch (const Error&) {
      std::lock_guard lock(guard);
      if (matrix >= least) return;
      least = matrix;
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace gradus::kernels
