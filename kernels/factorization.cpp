#include "kernels/factorization.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradus::kernels {

void factor_lu(double* a, int64_t m, int64_t n, double* pivots, double* order) {
  std::iota(order, order + m, 0.0);
  for (int64_t c = 0; c < std::min(m, n); ++c) {
    int64_t p = c;
    for (int64_t i = c; i < m; ++i) {
      const double v = std::fabs(a[i * n + c]);
      if (v > std::fabs(a[p * n + c])) p = i;
      if (v != v) {
        p = i;
        break;
      }
    }
    pivots[c] = static_cast<double>(p + 1);
    if (p != c) {
      std::swap_ranges(a + p * n, a + (p + 1) * n, a + c * n);
      std::swap(order[p], order[c]);
    }
    if (a[c * n + c] == 0) continue;
    for (int64_t i = c + 1; i < m; ++i) {
      const double f = a[i * n + c] /= a[c * n + c];
      for (int64_t j = c + 1; j < n; ++j) a[i * n + j] -= f * a[c * n + j];
    }
  }
}

namespace {

double length_of(const double* x, int64_t n, int64_t step) {
  double scale = 0, sum = 1;
  for (int64_t i = 0; i < n; ++i) {
    const double v = std::fabs(x[i * step]);
    if (v == 0) continue;
    if (scale < v) {
      sum = 1 + sum * (scale / v) * (scale / v);
      scale = v;
    } else {
      sum += (v / scale) * (v / scale);
    }
  }
  return scale * std::sqrt(sum);
}

// y := y - tau v (v . y), for columns from `first` on of y's rows c .. m; v is 1 in row c and lies
// below the diagonal in column c of `a`.
void reflect(const double* a, double tau, int64_t m, int64_t n, int64_t c, double* y,
             int64_t first) {
  for (int64_t j = first; j < n; ++j) {
    double dot = y[c * n + j];
    for (int64_t i = c + 1; i < m; ++i) dot += a[i * n + c] * y[i * n + j];
    dot *= tau;
    y[c * n + j] -= dot;
    for (int64_t i = c + 1; i < m; ++i) y[i * n + j] -= dot * a[i * n + c];
  }
}

}  // namespace

void factor_qr(double* a, int64_t m, int64_t n, double* q, double* r) {
  double* taus = r;  // row 0 holds them until r is written
  for (int64_t c = 0; c < n; ++c) {
    const double below = c + 1 < m ? length_of(a + (c + 1) * n + c, m - c - 1, n) : 0;
    taus[c] = 0;
    if (below == 0) continue;
    const double head = a[c * n + c];
    const double beta = -std::copysign(std::hypot(head, below), head);
    taus[c] = (beta - head) / beta;
    for (int64_t i = c + 1; i < m; ++i) a[i * n + c] /= head - beta;
    reflect(a, taus[c], m, n, c, a, c + 1);
    a[c * n + c] = beta;
  }
  std::fill(q, q + m * n, 0.0);
  for (int64_t i = 0; i < n; ++i) q[i * n + i] = 1;
  for (int64_t c = n; c-- > 0;) reflect(a, taus[c], m, n, c, q, c);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? 0 : a[i * n + j];
}

namespace {

// The Padé approximant of degree 13 of e^x is p(x) / p(-x); p's coefficients.
constexpr double pade[] = {64764752532480000.,
                           32382376266240000.,
                           7771770303897600.,
                           1187353796428800.,
                           129060195264000.,
                           10559470521600.,
                           670442572800.,
                           33522128640.,
                           1323241920.,
                           40840800.,
                           960960.,
                           16380.,
                           182.,
                           1.};

void multiply(const double* a, const double* b, double* y, int64_t n) {
  std::fill(y, y + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k) {
      const double f = a[i * n + k];
      for (int64_t j = 0; j < n; ++j) y[i * n + j] += f * b[k * n + j];
    }
}

// y := a^-1 y for what factor_lu made of a.
void solve_factored(const double* a, const double* order, double* y, double* rows, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    std::copy_n(y + static_cast<int64_t>(order[i]) * n, n, rows + i * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < i; ++k)
      for (int64_t j = 0; j < n; ++j) rows[i * n + j] -= a[i * n + k] * rows[k * n + j];
  for (int64_t i = n; i-- > 0;) {
    for (int64_t k = i + 1; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) rows[i * n + j] -= a[i * n + k] * rows[k * n + j];
    for (int64_t j = 0; j < n; ++j) rows[i * n + j] /= a[i * n + i];
  }
  std::copy_n(rows, n * n, y);
}

double largest_column_sum(const double* a, int64_t n) {
  double largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::fabs(a[i * n + j]);
    if (!(sum <= largest)) largest = sum;
  }
  return largest;
}

}  // namespace

// N. Higham, The scaling and squaring method for the matrix exponential revisited (2005), algorithm
// 2.3 with degree 13 for all.
void exponential(const double* a, int64_t n, double* y, double* work) {
  const int64_t nn = n * n;
  double *x = work, *x2 = x + nn, *x4 = x2 + nn, *x6 = x4 + nn, *u = x6 + nn, *t = u + nn;
  double *pivots = t + nn, *order = pivots + n;
  const double norm = largest_column_sum(a, n);
  if (!std::isfinite(norm)) {
    std::fill(y, y + nn, std::nan(""));
    return;
  }
  const int halvings =
      norm > 5.371920351148152
          ? std::max(0, static_cast<int>(std::ceil(std::log2(norm / 5.371920351148152))))
          : 0;
  for (int64_t i = 0; i < nn; ++i) x[i] = std::ldexp(a[i], -halvings);
  multiply(x, x, x2, n);
  multiply(x2, x2, x4, n);
  multiply(x2, x4, x6, n);
  // The odd powers, but for one factor x, and the even ones.
  auto half = [&](int first, double* result) {
    for (int64_t i = 0; i < nn; ++i)
      t[i] = pade[first + 12] * x6[i] + pade[first + 10] * x4[i] + pade[first + 8] * x2[i];
    multiply(x6, t, result, n);
    for (int64_t i = 0; i < nn; ++i)
      result[i] += pade[first + 6] * x6[i] + pade[first + 4] * x4[i] + pade[first + 2] * x2[i];
    for (int64_t i = 0; i < n; ++i) result[i * n + i] += pade[first];
  };
  half(1, y);
  multiply(x, y, u, n);
  half(0, y);
  for (int64_t i = 0; i < nn; ++i) {
    const double odd = u[i], even = y[i];
    u[i] = even - odd;
    y[i] = even + odd;
  }
  factor_lu(u, n, n, pivots, order);
  solve_factored(u, order, y, t, n);
  for (int k = 0; k < halvings; ++k) {
    multiply(y, y, t, n);
    std::copy_n(t, nn, y);
  }
}

}  // namespace gradus::kernels
