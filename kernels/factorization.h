// Factorisations of one matrix, row by row in f64, by the textbook's algorithms.
#pragma once

#include <cstdint>

namespace gradus::kernels {

// a [m, n] -> its factors l and u in place, rows exchanged: in step i row i with row pivots[i] - 1.
// Row i of the product l u is row order[i] of a. A pivot is the first of the largest elements left
// in its column, or the first NaN; nothing is divided by a zero one.
void factor_lu(double* a, int64_t m, int64_t n, double* pivots, double* order);

// a [m, n], m >= n -> q [m, n] and r [n, n] with a = q r, by Householder's reflections; `a` is
// overwritten. A column that is zero below the diagonal is not reflected; of others r's element on
// the diagonal has the sign that the reflected element had not.
void factor_qr(double* a, int64_t m, int64_t n, double* q, double* r);

// The eigenvalues of a [n, n], ascending, and the eigenvectors as columns of v [n, n]; only a's
// lower triangle is read. The largest element of each vector, the first of such, is positive.
// `work` has n elements. False if it does not converge.
bool factor_symmetric(const double* a, int64_t n, double* values, double* v, double* work);

// a [m, n], m >= n -> u [m, n], s [n] descending and vh [n, n] with a = u s vh; `a` is
// overwritten. The largest element of each row of vh, the first of such, is positive. False if it
// does not converge.
bool factor_singular(double* a, int64_t m, int64_t n, double* u, double* s, double* vh);

// The exponential of a [n, n], into y; `work` has exponential_room(n) elements.
void exponential(const double* a, int64_t n, double* y, double* work);
constexpr int64_t exponential_room(int64_t n) { return 6 * n * n + 2 * n; }

}  // namespace gradus::kernels
