// OpenBLAS, behind one door: products in f64.
#pragma once

#include <cstdint>

namespace gradus::kernels::openblas {

// A matrix's strides over rows and columns, in elements.
struct Strides {
  int64_t row, column;
};

// Whether `multiply` takes an operand of these sizes and strides.
bool takes(int64_t rows, int64_t columns, Strides s);

// c[i, j] = sum over k of a[i, k] * b[k, j]; c's columns are neighbours, no size is 0. On the
// calling thread alone; any number of threads may call it, one of them computes at a time. The
// order of a sum depends on the sizes and the instruction set, and on nothing else.
void multiply(int64_t m, int64_t n, int64_t k, const double* a, Strides a_strides, const double* b,
              Strides b_strides, double* c, int64_t c_row);

}  // namespace gradus::kernels::openblas
