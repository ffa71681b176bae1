// Of the evaluator: functions of matrices.
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
  }
  return y;
}

}  // namespace

void evaluate(const Factor& w, Args args) {
  for (int64_t i = 0; i < matrices_of(w.x); ++i)
    store(function_of(w, load(w.x, args[0], i), i), w.x.dtype, args[1], i);
}

void evaluate(const Solve& w, Args args) {
  for (int64_t number = 0; number < matrices_of(w.a); ++number) {
    const Matrix a = load(w.a, args[0], number);
    Matrix y = load(w.b, args[1], number);
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
