// Functions of square matrices, one matrix after the other, in f64.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/slots.h"
#include "gradus/error.h"
#include "kernels/factorization.h"
#include "kernels/matrix_stack.h"

namespace gradus::kernels {

namespace {

// a -> its lower factor, in place; the pivot that is not positive, if there is one.
std::optional<int64_t> factor_cholesky(double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double s = a[i * n + j];
      for (int64_t k = 0; k < j; ++k) s -= a[i * n + k] * a[j * n + k];
      if (i == j && !(s > 0)) return i;
      a[i * n + j] = i == j ? std::sqrt(s) : s / a[j * n + j];
    }
    for (int64_t j = i + 1; j < n; ++j) a[i * n + j] = 0;
  }
  return std::nullopt;
}

void swap_rows(double* a, int64_t n, int64_t i, int64_t j) {
  if (i != j) std::swap_ranges(a + i * n, a + (i + 1) * n, a + j * n);
}
// Where the pivot of column c is: the largest from row c on, NaN before all.
int64_t pivot_row(const double* a, int64_t n, int64_t c) {
  int64_t best = c;
  for (int64_t i = c; i < n; ++i) {
    double v = std::fabs(a[i * n + c]);
    if (v != v) return i;
    if (v > std::fabs(a[best * n + c])) best = i;
  }
  return best;
}

double determinant(double* a, int64_t n) {
  double det = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t p = pivot_row(a, n, c);
    if (a[p * n + c] == 0) return 0;
    swap_rows(a, n, p, c);
    if (p != c) det = -det;
    det *= a[c * n + c];
    for (int64_t i = c + 1; i < n; ++i) {
      double f = a[i * n + c] / a[c * n + c];
      for (int64_t j = c + 1; j < n; ++j) a[i * n + j] -= f * a[c * n + j];
    }
  }
  return det;
}

// Gauss and Jordan: turns a into 1 and b from 1 into the inverse. False where a is singular.
bool invert(double* a, double* b, int64_t n) {
  std::fill(b, b + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) b[i * n + i] = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t p = pivot_row(a, n, c);
    if (a[p * n + c] == 0) return false;
    swap_rows(a, n, p, c);
    swap_rows(b, n, p, c);
    const double pivot = a[c * n + c];
    for (int64_t j = 0; j < n; ++j) {
      a[c * n + j] /= pivot;
      b[c * n + j] /= pivot;
    }
    for (int64_t i = 0; i < n; ++i) {
      const double f = a[i * n + c];
      if (i == c || f == 0) continue;
      for (int64_t j = 0; j < n; ++j) {
        a[i * n + j] -= f * a[c * n + j];
        b[i * n + j] -= f * b[c * n + j];
      }
    }
  }
  return true;
}

// Factors a, its rows and columns reordered, into l (below the diagonal, ones on it) and u, with
// the largest element left as each pivot: zeros come last. The sign of the reordering; 0 where a
// pivot before the last one is zero.
double factor_completely(double* a, int64_t n, int64_t* row, int64_t* column) {
  std::iota(row, row + n, 0);
  std::iota(column, column + n, 0);
  double sign = 1;
  for (int64_t c = 0; c < n; ++c) {
    int64_t pi = c, pj = c;
    for (int64_t i = c; i < n; ++i)
      for (int64_t j = c; j < n; ++j)
        if (std::fabs(a[i * n + j]) > std::fabs(a[pi * n + pj])) {
          pi = i;
          pj = j;
        }
    if (c + 1 < n && a[pi * n + pj] == 0) return 0;
    if (pi != c) {
      swap_rows(a, n, pi, c);
      std::swap(row[pi], row[c]);
      sign = -sign;
    }
    if (pj != c) {
      for (int64_t i = 0; i < n; ++i) std::swap(a[i * n + pj], a[i * n + c]);
      std::swap(column[pj], column[c]);
      sign = -sign;
    }
    for (int64_t i = c + 1; i < n; ++i) {
      const double f = a[i * n + c] /= a[c * n + c];
      for (int64_t j = c + 1; j < n; ++j) a[i * n + j] -= f * a[c * n + j];
    }
  }
  return sign;
}

// The adjugate of u = [u1 v; 0 d], upper triangular with an invertible u1:
//   det(u1) [d u1^-1, -u1^-1 v; 0, 1]
// which divides by no d, so that it holds for a singular u too.
void adjugate_of_upper(const double* u, double* adj, int64_t n) {
  const int64_t m = n - 1;
  std::fill(adj, adj + n * n, 0.0);
  double det = 1;
  for (int64_t i = 0; i < m; ++i) det *= u[i * n + i];
  const double last = u[n * n - 1];
  for (int64_t j = 0; j < n; ++j)  // column j of u1^-1, or u1^-1 v
    for (int64_t i = std::min(j, m - 1); i >= 0; --i) {
      double s = j == m ? u[i * n + m] : i == j ? 1.0 : 0.0;
      for (int64_t k = i + 1; k <= std::min(j, m - 1); ++k) s -= u[i * n + k] * adj[k * n + j];
      adj[i * n + j] = s / u[i * n + i];
    }
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < m; ++j) adj[i * n + j] *= det * last;
    adj[i * n + m] *= -det;
  }
  adj[n * n - 1] = det;
}

// out[i, j] = the cofactor of a[i, j]; `a` is overwritten, `work` has n * n elements, `order` 2 n.
void cofactors(double* a, double* out, double* work, int64_t* order, int64_t n) {
  if (n == 0) return;
  const double sign = factor_completely(a, n, order, order + n);
  if (sign == 0) {
    std::fill(out, out + n * n, 0.0);
    return;
  }
  adjugate_of_upper(a, work, n);
  for (int64_t i = 0; i < n; ++i) {  // work := work l^-1
    double* w = work + i * n;
    for (int64_t j = n - 1; j >= 0; --j)
      for (int64_t k = j + 1; k < n; ++k) w[j] -= w[k] * a[k * n + j];
  }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out[order[j] * n + order[n + i]] = sign * work[i * n + j];
}

// A result's elements for one matrix.
struct Part {
  DType dtype;
  int64_t elements;
};

struct MatrixPlan {
  MatrixFunction function;
  std::string_view op;
  Stack x;
  int64_t count;
  SmallVector<Part, 3> parts;  // of factorisations: their results
  int64_t room;                // doubles of scratch that one matrix takes
};

SmallVector<Part, 3> parts_of(const Factor& w, int64_t m, int64_t n) {
  const DType x = w.x.dtype;
  switch (w.function) {
    case MatrixFunction::lu:
      return {{x, m * n}, {DType::i32, std::min(m, n)}, {DType::i64, m}};
    case MatrixFunction::qr:
      return {{x, m * n}, {x, n * n}};
    case MatrixFunction::eigh:
      return {{x, n}, {x, n * n}};
    case MatrixFunction::svd:
      return {{x, m * n}, {x, n}, {x, n * n}};
    case MatrixFunction::exp:
      return {{x, n * n}};
    default:
      return {};
  }
}

// For the matrix, its results, and what steps in between need.
int64_t room_of(const Factor& w, int64_t m, int64_t n, std::span<const Part> parts) {
  if (parts.empty()) return 3 * n * n + 2 * n;
  int64_t room = m * n;
  for (const Part& part : parts) room += part.elements;
  return room + (w.function == MatrixFunction::exp ? exponential_room(n) : n);
}

// The results of matrix `a` one after the other into y.
void factor_one(const MatrixPlan& p, int64_t matrix, double* a, double* y) {
  const int64_t m = p.x.rows, n = p.x.columns;
  std::array<double*, 4> to{y};  // the last one is room for steps in between
  for (size_t k = 0; k < p.parts.size(); ++k) to[k + 1] = to[k] + p.parts[k].elements;
  bool found = true;
  switch (p.function) {
    case MatrixFunction::lu:
      std::copy_n(a, m * n, to[0]);
      factor_lu(to[0], m, n, to[1], to[2]);
      break;
    case MatrixFunction::qr:
      factor_qr(a, m, n, to[0], to[1]);
      break;
    case MatrixFunction::eigh:
      found = factor_symmetric(a, n, to[0], to[1], to[2]);
      break;
    case MatrixFunction::svd:
      found = factor_singular(a, m, n, to[0], to[1], to[2]);
      break;
    default:
      exponential(a, n, to[0], to[1]);
  }
  if (!found)
    throw Error(
        "{}: matrix {} of 'x' has elements that are not finite, or its steps do not converge", p.op,
        matrix);
}

void run_factorization(const MatrixPlan& p, std::byte* const* args, KernelScope& scope) {
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  each_matrix(scope.workers, p.count, [&](int64_t matrix, int64_t slot) {
    double *a = scratch + slot * p.room, *y = a + p.x.rows * p.x.columns;
    p.x.load(args[0], matrix, a);
    factor_one(p, matrix, a, y);
    for (size_t k = 0; k < p.parts.size(); ++k) {
      const Part& part = p.parts[k];
      Stack::store_row(part.dtype, args[k + 1], matrix * part.elements, y, part.elements);
      y += part.elements;
    }
  });
}

void run_one(const MatrixPlan& p, std::byte* const* args, int64_t matrix, double* a) {
  const int64_t n = p.x.rows;
  double *b = a + n * n, *work = b + n * n;
  p.x.load(args[0], matrix, a);
  const double* y = b;
  switch (p.function) {
    case MatrixFunction::cholesky:
      if (auto pivot = factor_cholesky(a, n))
        throw Error("{}: matrix {} of 'x' is not positive definite (row {} depends on those above)",
                    p.op, matrix, *pivot);
      y = a;
      break;
    case MatrixFunction::inverse:
      if (!invert(a, b, n)) throw Error("{}: matrix {} of 'x' is singular", p.op, matrix);
      break;
    case MatrixFunction::det: {
      const double det = determinant(a, n);
      return Stack::store_row(p.x.layout.dtype, args[1], matrix, &det, 1);
    }
    case MatrixFunction::cofactor:
      cofactors(a, b, work, reinterpret_cast<int64_t*>(work + n * n), n);
      break;
    default:
      GRADUS_CHECK(false);
  }
  Stack::store_row(p.x.layout.dtype, args[1], matrix * n * n, y, n * n);
}

void run_matrix(const MatrixPlan& p, std::byte* const* args, KernelScope& scope) {
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  each_matrix(scope.workers, p.count, [&](int64_t matrix, int64_t slot) {
    run_one(p, args, matrix, scratch + slot * p.room);
  });
}

struct SolvePlan {
  std::string_view op;
  Stack a, b;
  bool upper, transpose;
  int64_t count;
};

void transpose_square(double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i; ++j) std::swap(a[i * n + j], a[j * n + i]);
}

// a y = b by elimination: a becomes an upper triangle, y begins as b. False where a is singular.
bool eliminate(double* a, double* y, int64_t n, int64_t m) {
  for (int64_t c = 0; c < n; ++c) {
    const int64_t p = pivot_row(a, n, c);
    if (a[p * n + c] == 0) return false;
    swap_rows(a, n, p, c);
    swap_rows(y, m, p, c);
    for (int64_t i = c + 1; i < n; ++i) {
      const double f = a[i * n + c] / a[c * n + c];
      for (int64_t j = c + 1; j < n; ++j) a[i * n + j] -= f * a[c * n + j];
      for (int64_t j = 0; j < m; ++j) y[i * m + j] -= f * y[c * m + j];
    }
  }
  for (int64_t i = n; i-- > 0;) {
    for (int64_t k = n - 1; k > i; --k)
      for (int64_t j = 0; j < m; ++j) y[i * m + j] -= a[i * n + k] * y[k * m + j];
    for (int64_t j = 0; j < m; ++j) y[i * m + j] /= a[i * n + i];
  }
  return true;
}

void run_general(const SolvePlan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t n = p.a.rows, m = p.b.columns;
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  each_matrix(scope.workers, p.count, [&](int64_t matrix, int64_t slot) {
    double *a = scratch + slot * n * (n + m), *y = a + n * n;
    p.a.load(args[0], matrix, a);
    p.b.load(args[1], matrix, y);
    if (p.transpose) transpose_square(a, n);
    if (!eliminate(a, y, n, m)) throw Error("{}: matrix {} of 'a' is singular", p.op, matrix);
    p.b.store(args[2], matrix, y);
  });
}

void run_solve(const SolvePlan& p, std::byte* const* args, KernelScope& scope) {
  const int64_t n = p.a.rows, m = p.b.columns;
  auto* scratch = reinterpret_cast<double*>(scope.scratch);
  each_matrix(scope.workers, p.count, [&](int64_t matrix, int64_t slot) {
    double *a = scratch + slot * n * (n + m), *y = a + n * n;
    p.a.load(args[0], matrix, a);
    p.b.load(args[1], matrix, y);
    const int64_t down = p.transpose ? 1 : n, across = p.transpose ? n : 1;
    const bool backwards = p.upper != p.transpose;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t i = backwards ? n - 1 - step : step;
      for (int64_t before = 0; before < step; ++before) {
        const int64_t k = backwards ? n - 1 - before : before;
        const double f = a[i * down + k * across];
        for (int64_t j = 0; j < m; ++j) y[i * m + j] -= f * y[k * m + j];
      }
      for (int64_t j = 0; j < m; ++j) y[i * m + j] /= a[i * n + i];
    }
    p.b.store(args[2], matrix, y);
  });
}

size_t scratch_for(int64_t count, int64_t each) {
  return static_cast<size_t>(std::min(count, most_slots()) * each) * sizeof(double);
}

}  // namespace

Kernel make_kernel(const Factor& w) {
  const Stack x(w.x);
  SmallVector<Part, 3> parts = parts_of(w, x.rows, x.columns);
  const int64_t room = room_of(w, x.rows, x.columns, parts);
  MatrixPlan p{w.function, w.op->name, x, x.matrices(), std::move(parts), room};
  const size_t scratch = scratch_for(p.count, room);
  if (p.parts.empty()) return Kernel::of<run_matrix>(std::move(p), scratch);
  return Kernel::of<run_factorization>(std::move(p), scratch);
}

Kernel make_kernel(const Solve& w) {
  SolvePlan p{w.op->name, Stack(w.a), Stack(w.b), w.upper, w.transpose, Stack(w.a).matrices()};
  const int64_t n = p.a.rows;
  const size_t scratch = scratch_for(p.count, n * (n + p.b.columns));
  if (w.general) return Kernel::of<run_general>(std::move(p), scratch);
  return Kernel::of<run_solve>(std::move(p), scratch);
}

}  // namespace gradus::kernels
