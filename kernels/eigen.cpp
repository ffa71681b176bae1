// Eigenvalues of symmetric matrices and singular values.
#include <algorithm>
#include <cmath>

#include "kernels/factorization.h"

namespace gradus::kernels {

namespace {

constexpr double unit = 0x1p-52;

// The two steps below are tred2 and tql2 of EISPACK (H. Bowdler, R. Martin, C. Reinsch and J.
// Wilkinson, Handbook for Automatic Computation II, Linear Algebra), in the form that has the
// vectors in columns.

// v, symmetric -> an orthogonal v with v^T a v tridiagonal: its diagonal d, and e below that.
void make_tridiagonal(double* v, int64_t n, double* d, double* e) {
  for (int64_t j = 0; j < n; ++j) d[j] = v[(n - 1) * n + j];
  for (int64_t i = n - 1; i > 0; --i) {
    double scale = 0, h = 0;
    for (int64_t k = 0; k < i; ++k) scale += std::fabs(d[k]);
    if (scale == 0) {
      e[i] = d[i - 1];
      for (int64_t j = 0; j < i; ++j) {
        d[j] = v[(i - 1) * n + j];
        v[i * n + j] = v[j * n + i] = 0;
      }
      d[i] = h;
      continue;
    }
    for (int64_t k = 0; k < i; ++k) {
      d[k] /= scale;
      h += d[k] * d[k];
    }
    const double f = d[i - 1], g = f > 0 ? -std::sqrt(h) : std::sqrt(h);
    e[i] = scale * g;
    h -= f * g;
    d[i - 1] = f - g;
    std::fill(e, e + i, 0.0);
    for (int64_t j = 0; j < i; ++j) {
      const double dj = d[j];
      v[j * n + i] = dj;
      double sum = e[j] + v[j * n + j] * dj;
      for (int64_t k = j + 1; k < i; ++k) {
        sum += v[k * n + j] * d[k];
        e[k] += v[k * n + j] * dj;
      }
      e[j] = sum;
    }
    double dot = 0;
    for (int64_t j = 0; j < i; ++j) {
      e[j] /= h;
      dot += e[j] * d[j];
    }
    const double half = dot / (h + h);
    for (int64_t j = 0; j < i; ++j) e[j] -= half * d[j];
    for (int64_t j = 0; j < i; ++j) {
      for (int64_t k = j; k < i; ++k) v[k * n + j] -= d[j] * e[k] + e[j] * d[k];
      d[j] = v[(i - 1) * n + j];
      v[i * n + j] = 0;
    }
    d[i] = h;
  }
  for (int64_t i = 0; i + 1 < n; ++i) {
    v[(n - 1) * n + i] = v[i * n + i];
    v[i * n + i] = 1;
    const double h = d[i + 1];
    if (h != 0) {
      for (int64_t k = 0; k <= i; ++k) d[k] = v[k * n + i + 1] / h;
      for (int64_t j = 0; j <= i; ++j) {
        double g = 0;
        for (int64_t k = 0; k <= i; ++k) g += v[k * n + i + 1] * v[k * n + j];
        for (int64_t k = 0; k <= i; ++k) v[k * n + j] -= g * d[k];
      }
    }
    for (int64_t k = 0; k <= i; ++k) v[k * n + i + 1] = 0;
  }
  for (int64_t j = 0; j < n; ++j) {
    d[j] = v[(n - 1) * n + j];
    v[(n - 1) * n + j] = 0;
  }
  v[n * n - 1] = 1;
  e[0] = 0;
}

// One implicit QL step of the rows l .. m, with the shift that is taken from d already.
void ql_step(double* v, int64_t n, double* d, double* e, int64_t l, int64_t m, double dl1,
             double el1) {
  double p = d[m], c = 1, c2 = 1, c3 = 1, s = 0, s2 = 0;
  for (int64_t i = m - 1; i >= l; --i) {
    c3 = c2;
    c2 = c;
    s2 = s;
    const double g = c * e[i], h = c * p, r = std::hypot(p, e[i]);
    e[i + 1] = s * r;
    s = e[i] / r;
    c = p / r;
    p = c * d[i] - s * g;
    d[i + 1] = h + s * (c * g + s * d[i]);
    for (int64_t k = 0; k < n; ++k) {
      const double right = v[k * n + i + 1], left = v[k * n + i];
      v[k * n + i + 1] = s * left + c * right;
      v[k * n + i] = c * left - s * right;
    }
  }
  p = -s * s2 * c3 * el1 * e[l] / dl1;
  e[l] = s * p;
  d[l] = c * p;
}

// The eigenvalues of the tridiagonal matrix into d; v's columns become their vectors.
bool make_diagonal(double* v, int64_t n, double* d, double* e) {
  for (int64_t i = 1; i < n; ++i) e[i - 1] = e[i];
  e[n - 1] = 0;
  double shift = 0, largest = 0;
  for (int64_t l = 0; l < n; ++l) {
    largest = std::max(largest, std::fabs(d[l]) + std::fabs(e[l]));
    int64_t m = l;
    while (m < n - 1 && std::fabs(e[m]) > unit * largest) ++m;
    int steps = 0;
    while (m > l && std::fabs(e[l]) > unit * largest) {
      if (++steps > 60) return false;
      double g = d[l], p = (d[l + 1] - g) / (2 * e[l]);
      const double r = std::copysign(std::hypot(p, 1.0), p);
      d[l] = e[l] / (p + r);
      d[l + 1] = e[l] * (p + r);
      const double dl1 = d[l + 1], h = g - d[l], el1 = e[l + 1];
      for (int64_t i = l + 2; i < n; ++i) d[i] -= h;
      shift += h;
      ql_step(v, n, d, e, l, m, dl1, el1);
    }
    d[l] += shift;
    e[l] = 0;
  }
  return true;
}

bool all_finite(const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(x[i])) return false;
  return true;
}

// Whether the largest of n elements, the first of such, is negative.
bool points_back(const double* x, int64_t n, int64_t step) {
  int64_t largest = 0;
  for (int64_t i = 1; i < n; ++i)
    if (std::fabs(x[i * step]) > std::fabs(x[largest * step])) largest = i;
  return n > 0 && x[largest * step] < 0;
}
void negate(double* x, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; ++i) x[i * step] = -x[i * step];
}

}  // namespace

bool factor_symmetric(const double* a, int64_t n, double* values, double* v, double* work) {
  if (n == 0) return true;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) v[i * n + j] = v[j * n + i] = a[i * n + j];
  if (!all_finite(v, n * n)) return false;
  make_tridiagonal(v, n, values, work);
  if (!make_diagonal(v, n, values, work)) return false;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t least = std::min_element(values + i, values + n) - values;
    if (least != i) {
      std::swap(values[i], values[least]);
      for (int64_t k = 0; k < n; ++k) std::swap(v[k * n + i], v[k * n + least]);
    }
    if (points_back(v + i, n, n)) negate(v + i, n, n);
  }
  return true;
}

namespace {

// Turns rows p and q of w, and of v, so that w's become orthogonal. False if they are already.
bool orthogonalise(double* w, double* v, int64_t m, int64_t n, int64_t p, int64_t q) {
  double *x = w + p * m, *y = w + q * m;
  double xx = 0, yy = 0, xy = 0;
  for (int64_t i = 0; i < m; ++i) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  if (std::fabs(xy) <= unit * std::sqrt(xx) * std::sqrt(yy) || xy == 0) return false;
  const double zeta = (yy - xx) / (2 * xy);
  const double t = std::copysign(1 / (std::fabs(zeta) + std::hypot(1.0, zeta)), zeta);
  const double c = 1 / std::hypot(1.0, t), s = c * t;
  auto turn = [&](double* first, double* second, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      const double old = first[i];
      first[i] = c * old - s * second[i];
      second[i] = s * old + c * second[i];
    }
  };
  turn(x, y, m);
  turn(v + p * n, v + q * n, n);
  return true;
}

// Row k of u [n, m] becomes one of length 1 that is orthogonal to those before it.
void complete(double* u, int64_t m, int64_t k) {
  double* row = u + k * m;
  for (int64_t axis = 0; axis < m; ++axis) {
    std::fill(row, row + m, 0.0);
    row[axis] = 1;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < k; ++j) {
        double dot = 0;
        for (int64_t i = 0; i < m; ++i) dot += row[i] * u[j * m + i];
        for (int64_t i = 0; i < m; ++i) row[i] -= dot * u[j * m + i];
      }
    double squares = 0;
    for (int64_t i = 0; i < m; ++i) squares += row[i] * row[i];
    if (squares * static_cast<double>(m) < 0.5) continue;
    for (int64_t i = 0; i < m; ++i) row[i] /= std::sqrt(squares);
    return;
  }
}

}  // namespace

// One-sided Jacobi: M. Hestenes, Inversion of matrices by biorthogonalization (1958). The columns
// are turned in pairs until all are orthogonal; a power of two keeps their squares in range.
bool factor_singular(double* a, int64_t m, int64_t n, double* u, double* s, double* vh) {
  if (!all_finite(a, m * n)) return false;
  double largest = 0;
  for (int64_t i = 0; i < m * n; ++i) largest = std::max(largest, std::fabs(a[i]));
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) u[j * m + i] = std::ldexp(a[i * n + j], -exponent);
  std::fill(vh, vh + n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) vh[i * n + i] = 1;
  bool turned = true;
  for (int sweep = 0; turned; ++sweep) {
    if (sweep == 60) return false;
    turned = false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) turned |= orthogonalise(u, vh, m, n, p, q);
  }
  for (int64_t k = 0; k < n; ++k) {
    double squares = 0;
    for (int64_t i = 0; i < m; ++i) squares += u[k * m + i] * u[k * m + i];
    s[k] = std::sqrt(squares);
  }
  for (int64_t k = 0; k < n; ++k) {
    const int64_t greatest = std::max_element(s + k, s + n) - s;
    if (greatest != k) {
      std::swap(s[k], s[greatest]);
      std::swap_ranges(u + k * m, u + (k + 1) * m, u + greatest * m);
      std::swap_ranges(vh + k * n, vh + (k + 1) * n, vh + greatest * n);
    }
    // Of what is as good as zero the direction is rounding.
    if (s[k] > unit * s[0] * 0x1p-40)
      for (int64_t i = 0; i < m; ++i) u[k * m + i] /= s[k];
    else
      complete(u, m, k);
    if (points_back(vh + k * n, n, 1)) {
      negate(vh + k * n, n, 1);
      negate(u + k * m, m, 1);
    }
    s[k] = std::ldexp(s[k], exponent);
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) a[i * n + j] = u[j * m + i];
  std::copy_n(a, m * n, u);
  return true;
}

}  // namespace gradus::kernels
