#include "kernels/libraries/openblas.h"

#include <algorithm>

#include <cblas.h>
#include <pthread.h>

namespace gradus::kernels::openblas {

namespace {

// Rows follow one another; otherwise columns do.
bool by_rows(Strides s) { return s.column == 1; }
blasint leading(int64_t rows, int64_t columns, Strides s) {
  // Of a single row or column the library still wants a stride that could be.
  return static_cast<blasint>(by_rows(s) ? std::max(s.row, columns) : std::max(s.column, rows));
}

// Two products at a time, on two threads, sometimes give wrong ones: the serial variant does not
// keep them apart (seen with 0.3.21: one of some hundred runs of eight threads on two cores). A
// fork waits for the product that runs, so that the child finds the lock free.
class OneAtATime {
 public:
  OneAtATime() {
    static const int at_fork = pthread_atfork(lock, unlock, unlock);
    static_cast<void>(at_fork);
    lock();
  }
  ~OneAtATime() { unlock(); }
  OneAtATime(const OneAtATime&) = delete;

 private:
  static void lock() { pthread_mutex_lock(&mutex_); }
  static void unlock() { pthread_mutex_unlock(&mutex_); }
  static inline pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

}  // namespace

bool takes(int64_t rows, int64_t columns, Strides s) {
  if (std::max({rows, columns, s.row, s.column}) > INT32_MAX) return false;
  return (s.column == 1 && s.row >= columns) || (s.row == 1 && s.column >= rows);
}

void multiply(int64_t m, int64_t n, int64_t k, const double* a, Strides a_strides, const double* b,
              Strides b_strides, double* c, int64_t c_row) {
  OneAtATime guard;
  cblas_dgemm(CblasRowMajor, by_rows(a_strides) ? CblasNoTrans : CblasTrans,
              by_rows(b_strides) ? CblasNoTrans : CblasTrans, static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), 1.0, a, leading(m, k, a_strides), b,
              leading(k, n, b_strides), 0.0, c, static_cast<blasint>(c_row));
}

}  // namespace gradus::kernels::openblas
