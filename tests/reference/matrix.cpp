// Of the evaluator: functions of matrices.
#include <algorithm>
#include <cmath>

#include "gradus/error.h"
#include "tests/reference/parts.h"

namespace gradus::reference {

namespace {

struct Matrix {
  int64_t rows, columns;
  std::vector<double> elements = std::vector<double>(static_cast<size_t>(rows * columns));

  double& operator()(int64_t i, int64_t j) {
    return elements[static_cast<size_t>(i * columns + j)];
  }
  double operator()(int64_t i, int64_t j) const {
    return elements[static_cast<size_t>(i * columns + j)];
  }
};

// Matrices are a layout's last two dimensions.
int64_t matrices_of(const Layout& l) { return numel(std::span(l.shape).first(l.shape.size() - 2)); }

Matrix load(const Layout& l, const std::byte* first, int64_t number) {
  const Array x{l.dtype, const_cast<std::byte*>(first)};
  Matrix m{l.shape[l.shape.size() - 2], l.shape.back()};
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.columns; ++j)
      m(i, j) = x.get<double>(offset_of((number * m.rows + i) * m.columns + j, l));
  return m;
}

void store(const Matrix& m, DType dtype, std::byte* first, int64_t number) {
  const Array y{dtype, first};
  for (int64_t i = 0; i < m.rows * m.columns; ++i)
    y.set(number * m.rows * m.columns + i, m.elements[static_cast<size_t>(i)]);
}

// Makes the square part of [a | b] an upper triangle by adding multiples of rows to those below,
// the row with the largest element first. The sign of the rows' order; 0 where a is singular.
double eliminate(Matrix& m) {
  double sign = 1;
  for (int64_t c = 0; c < m.rows; ++c) {
    int64_t largest = c;
    for (int64_t i = c + 1; i < m.rows; ++i)
      if (std::fabs(m(i, c)) > std::fabs(m(largest, c))) largest = i;
    if (m(largest, c) == 0) return 0;
    if (largest != c) sign = -sign;
    for (int64_t j = 0; j < m.columns; ++j) std::swap(m(c, j), m(largest, j));
    for (int64_t i = c + 1; i < m.rows; ++i) {
      const double factor = m(i, c) / m(c, c);
      for (int64_t j = c; j < m.columns; ++j) m(i, j) -= factor * m(c, j);
    }
  }
  return sign;
}

double determinant(Matrix m) {
  double det = eliminate(m);
  for (int64_t i = 0; i < m.rows; ++i) det *= m(i, i);
  return det;
}

// The determinant of what is left without row i and column j, with the sign of a chessboard.
double cofactor(const Matrix& a, int64_t i, int64_t j) {
  Matrix rest{a.rows - 1, a.rows - 1};
  for (int64_t r = 0; r < rest.rows; ++r)
    for (int64_t c = 0; c < rest.columns; ++c) rest(r, c) = a(r + (r >= i), c + (c >= j));
  const double det = determinant(std::move(rest));
  return (i + j) % 2 ? -det : det;
}

// Nothing where a is singular.
std::optional<Matrix> inverse(const Matrix& a) {
  const int64_t n = a.rows;
  Matrix m{n, 2 * n}, y{n, n};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      m(i, j) = a(i, j);
      m(i, n + j) = i == j;
    }
  if (eliminate(m) == 0) return std::nullopt;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = n - 1; i >= 0; --i) {
      double rest = m(i, n + j);
      for (int64_t k = i + 1; k < n; ++k) rest -= m(i, k) * y(k, j);
      y(i, j) = rest / m(i, i);
    }
  return y;
}

// Sets y to the lower factor; the first row without one, or -1.
int64_t factor(const Matrix& a, Matrix& y) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double rest = a(i, j);
      for (int64_t k = 0; k < j; ++k) rest -= y(i, k) * y(j, k);
      if (i == j && !(rest > 0)) return i;
      y(i, j) = i == j ? std::sqrt(rest) : rest / y(j, j);
    }
  return -1;
}

// Rows exchanged as LAPACK does, the multiples below the diagonal.
std::vector<Matrix> lu(Matrix a) {
  const int64_t steps = std::min(a.rows, a.columns);
  Matrix pivots{1, steps}, order{1, a.rows};
  for (int64_t i = 0; i < a.rows; ++i) order(0, i) = static_cast<double>(i);
  for (int64_t c = 0; c < steps; ++c) {
    int64_t largest = c;
    for (int64_t i = c + 1; i < a.rows; ++i)
      if (std::fabs(a(i, c)) > std::fabs(a(largest, c))) largest = i;
    pivots(0, c) = static_cast<double>(largest + 1);
    std::swap(order(0, c), order(0, largest));
    for (int64_t j = 0; j < a.columns; ++j) std::swap(a(c, j), a(largest, j));
    for (int64_t i = c + 1; i < a.rows && a(c, c) != 0; ++i) {
      a(i, c) /= a(c, c);
      for (int64_t j = c + 1; j < a.columns; ++j) a(i, j) -= a(i, c) * a(c, j);
    }
  }
  return {a, pivots, order};
}

Matrix unit(int64_t n) {
  Matrix y{n, n};
  for (int64_t i = 0; i < n; ++i) y(i, i) = 1;
  return y;
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix y{a.rows, b.columns};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t k = 0; k < a.columns; ++k) y(i, j) += a(i, k) * b(k, j);
  return y;
}

// By the reflections 1 - 2 v v^T / v^T v, as whole matrices.
std::vector<Matrix> qr(Matrix a) {
  const int64_t m = a.rows, n = a.columns;
  Matrix q = unit(m);
  for (int64_t c = 0; c < n; ++c) {
    double squares = 0;
    for (int64_t i = c + 1; i < m; ++i) squares += a(i, c) * a(i, c);
    if (squares == 0) continue;
    const double length = std::sqrt(a(c, c) * a(c, c) + squares);
    std::vector<double> v(static_cast<size_t>(m));
    for (int64_t i = c; i < m; ++i) v[static_cast<size_t>(i)] = a(i, c);
    v[static_cast<size_t>(c)] += a(c, c) < 0 ? -length : length;
    double norm = 0;
    for (double x : v) norm += x * x;
    Matrix reflection = unit(m);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < m; ++j)
        reflection(i, j) -= 2 * v[static_cast<size_t>(i)] * v[static_cast<size_t>(j)] / norm;
    a = product(reflection, a);
    q = product(q, reflection);
  }
  Matrix thin{m, n}, r{n, n};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) thin(i, j) = q(i, j);
    for (int64_t i = 0; i <= j; ++i) r(i, j) = a(i, j);
  }
  return {thin, r};
}

// Jacobi's rotations, in long double, so that vectors hold where a was squared: values, and the
// vectors as columns. The largest element of each is positive.
struct Eigen {
  std::vector<long double> values, vectors;
};
Eigen eigen(std::vector<long double> a, size_t n) {
  std::vector<long double> v(n * n);
  for (size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  for (int sweep = 0; sweep < 60; ++sweep)
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        const long double off = a[p * n + q];
        if (off == 0) continue;
        const long double zeta = (a[q * n + q] - a[p * n + p]) / (2 * off);
        const long double t = std::copysign(1 / (std::fabs(zeta) + std::hypot(zeta, 1.0L)), zeta);
        const long double c = 1 / std::hypot(t, 1.0L), s = c * t;
        auto turn = [c, s](long double& x, long double& y) {
          const long double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (size_t k = 0; k < n; ++k) turn(a[k * n + p], a[k * n + q]);
        for (size_t k = 0; k < n; ++k) turn(a[p * n + k], a[q * n + k]);
        for (size_t k = 0; k < n; ++k) turn(v[k * n + p], v[k * n + q]);
      }
  Eigen e;
  for (size_t i = 0; i < n; ++i) e.values.push_back(a[i * n + i]);
  e.vectors = std::move(v);
  return e;
}
// Columns of the vectors in the order of their values.
std::vector<size_t> order_of(const Eigen& e, bool descending) {
  std::vector<size_t> order(e.values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    return descending ? e.values[i] > e.values[j] : e.values[i] < e.values[j];
  });
  return order;
}
// 1, or -1 where the vector's largest element is negative.
long double sign_of(const Eigen& e, size_t column) {
  const size_t n = e.values.size();
  size_t largest = 0;
  for (size_t i = 1; i < n; ++i)
    if (std::fabs(e.vectors[i * n + column]) > std::fabs(e.vectors[largest * n + column]))
      largest = i;
  return e.vectors[largest * n + column] < 0 ? -1 : 1;
}

std::vector<Matrix> eigh(const Matrix& a) {
  const auto n = static_cast<size_t>(a.rows);
  std::vector<long double> x(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j)
      x[i * n + j] = x[j * n + i] = a(static_cast<int64_t>(i), static_cast<int64_t>(j));
  const Eigen e = eigen(x, n);
  Matrix values{1, a.rows}, vectors{a.rows, a.rows};
  for (int64_t j = 0; const size_t column : order_of(e, false)) {
    values(0, j) = static_cast<double>(e.values[column]);
    for (size_t i = 0; i < n; ++i)
      vectors(static_cast<int64_t>(i), j) =
          static_cast<double>(sign_of(e, column) * e.vectors[i * n + column]);
    ++j;
  }
  return {values, vectors};
}

// By the eigenvectors of a^T a.
std::vector<Matrix> svd(const Matrix& a) {
  const auto n = static_cast<size_t>(a.columns);
  std::vector<long double> squared(n * n);
  for (int64_t i = 0; i < a.rows; ++i)
    for (size_t p = 0; p < n; ++p)
      for (size_t q = 0; q < n; ++q)
        squared[p * n + q] +=
            static_cast<long double>(a(i, static_cast<int64_t>(p))) * a(i, static_cast<int64_t>(q));
  const Eigen e = eigen(squared, n);
  Matrix u{a.rows, a.columns}, s{1, a.columns}, vt{a.columns, a.columns};
  for (int64_t k = 0; const size_t column : order_of(e, true)) {
    std::vector<long double> image(static_cast<size_t>(a.rows));
    long double squares = 0;
    for (int64_t i = 0; i < a.rows; ++i) {
      long double& x = image[static_cast<size_t>(i)];
      for (size_t j = 0; j < n; ++j)
        x += a(i, static_cast<int64_t>(j)) * sign_of(e, column) * e.vectors[j * n + column];
      squares += x * x;
    }
    const long double length = std::sqrt(squares);
    s(0, k) = static_cast<double>(length);
    for (int64_t i = 0; i < a.rows; ++i)
      u(i, k) = static_cast<double>(image[static_cast<size_t>(i)] / length);
    for (size_t j = 0; j < n; ++j)
      vt(k, static_cast<int64_t>(j)) =
          static_cast<double>(sign_of(e, column) * e.vectors[j * n + column]);
    ++k;
  }
  return {u, s, vt};
}

// The series of e^(a / 16), squared four times: each squaring may double what rounding errors are.
Matrix exponential(Matrix a) {
  for (double& x : a.elements) x /= 16;
  Matrix y = unit(a.rows), term = y;
  for (int k = 1; k < 80; ++k) {
    term = product(term, a);
    for (size_t i = 0; i < y.elements.size(); ++i) y.elements[i] += term.elements[i] /= k;
  }
  for (int k = 0; k < 4; ++k) y = product(y, y);
  return y;
}

std::vector<Matrix> factors_of(const Factor& w, const Matrix& a, int64_t number) {
  const bool finite = std::ranges::all_of(a.elements, [](double x) { return std::isfinite(x); });
  const bool needs = w.function == MatrixFunction::eigh || w.function == MatrixFunction::svd;
  if (needs && !finite)
    throw Error(
        "{}: matrix {} of 'x' has elements that are not finite, or its steps do not converge",
        w.op->name, number);
  switch (w.function) {
    case MatrixFunction::lu:
      return lu(a);
    case MatrixFunction::qr:
      return qr(a);
    case MatrixFunction::eigh:
      return eigh(a);
    case MatrixFunction::svd:
      return svd(a);
    default:
      return {finite ? exponential(a)
                     : Matrix{a.rows, a.columns, std::vector<double>(a.elements.size(), NAN)}};
  }
}

// What a y = b, both of many rows, has for y; nothing where a is singular.
std::optional<Matrix> solution(const Matrix& a, const Matrix& b) {
  const int64_t n = a.rows;
  Matrix m{n, n + b.columns}, y = b;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) m(i, j) = a(i, j);
    for (int64_t j = 0; j < b.columns; ++j) m(i, n + j) = b(i, j);
  }
  if (eliminate(m) == 0) return std::nullopt;
  for (int64_t j = 0; j < b.columns; ++j)
    for (int64_t i = n - 1; i >= 0; --i) {
      y(i, j) = m(i, n + j);
      for (int64_t k = n - 1; k > i; --k) y(i, j) -= m(i, k) * y(k, j);
      y(i, j) /= m(i, i);
    }
  return y;
}

Matrix function_of(const Factor& w, const Matrix& a, int64_t number) {
  Matrix y{a.rows, a.columns};
  switch (w.function) {
    case MatrixFunction::cholesky:
      if (const int64_t row = factor(a, y); row >= 0)
        throw Error("{}: matrix {} of 'x' is not positive definite (row {} depends on those above)",
                    w.op->name, number, row);
      break;
    case MatrixFunction::inverse: {
      auto result = inverse(a);
      if (!result) throw Error("{}: matrix {} of 'x' is singular", w.op->name, number);
      return std::move(*result);
    }
    case MatrixFunction::det:
      return Matrix{1, 1, {determinant(a)}};
    case MatrixFunction::cofactor:
      for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < a.columns; ++j) y(i, j) = cofactor(a, i, j);
      break;
    default:
      break;
  }
  return y;
}

}  // namespace

void evaluate(const Factor& w, Args args) {
  if (w.function > MatrixFunction::cofactor) {
    for (int64_t i = 0; i < matrices_of(w.x); ++i) {
      const std::vector<Matrix> factors = factors_of(w, load(w.x, args[0], i), i);
      for (size_t k = 0; k < factors.size(); ++k) {
        const bool lu = w.function == MatrixFunction::lu;
        const DType dtype = lu && k == 1 ? DType::i32 : lu && k == 2 ? DType::i64 : w.x.dtype;
        store(factors[k], dtype, args[k + 1], i);
      }
    }
    return;
  }
  for (int64_t i = 0; i < matrices_of(w.x); ++i)
    store(function_of(w, load(w.x, args[0], i), i), w.x.dtype, args[1], i);
}

void evaluate(const Solve& w, Args args) {
  for (int64_t number = 0; number < matrices_of(w.a); ++number) {
    const Matrix a = load(w.a, args[0], number);
    Matrix y = load(w.b, args[1], number);
    if (w.general) {
      Matrix turned = a;
      for (int64_t i = 0; i < a.rows && w.transpose; ++i)
        for (int64_t j = 0; j < a.rows; ++j) turned(i, j) = a(j, i);
      auto found = solution(turned, y);
      if (!found) throw Error("{}: matrix {} of 'a' is singular", w.op->name, number);
      store(*found, w.b.dtype, args[2], number);
      continue;
    }
    auto at = [&](int64_t i, int64_t k) { return w.transpose ? a(k, i) : a(i, k); };
    // The rows in the order in which they can be known.
    const bool from_last = w.upper != w.transpose;
    auto row = [&](int64_t step) { return from_last ? a.rows - 1 - step : step; };
    for (int64_t j = 0; j < y.columns; ++j)
      for (int64_t step = 0; step < a.rows; ++step) {
        const int64_t i = row(step);
        for (int64_t known = 0; known < step; ++known)
          y(i, j) -= at(i, row(known)) * y(row(known), j);
        y(i, j) /= a(i, i);
      }
    store(y, w.b.dtype, args[2], number);
  }
}

}  // namespace gradus::reference
