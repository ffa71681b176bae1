// Factorisations of square matrices, and solving with them. All take stacks of matrices; elements
// are worked out in f64 and rounded when stored.
#pragma once

#include "gradus/table.h"
#include "ops/bind_work.h"

namespace gradus::ops {

using namespace std::literals;

// The other triangle of `a` is not read. A zero on the diagonal divides: infinities and NaN, no
// error.
struct TriangularSolve {
  static constexpr auto name = "triangular_solve"sv,
                        doc = "y with a y = b, a lower (or `upper`) triangular, or with a^T"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    bool upper = false, transpose = false;
    static constexpr auto fields() {
      return std::tuple(field("upper", &Attr::upper), field("transpose", &Attr::transpose));
    }
  };
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

// What functions of a square matrix x share; y has x's type.
struct AnyMatrixFunction {
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
};
template <work::MatrixFunction function>
struct OfMatrix : AnyMatrixFunction {
  static void bind(BindCall& call) { call.set_work(work::Factor{&call.op, function, call.in[0]}); }
};

// Only the lower triangle of x is read. Its derivative is the symmetric one, dx = dx^T.
struct Cholesky : OfMatrix<work::MatrixFunction::cholesky> {
  static constexpr auto name = "cholesky"sv,
                        doc = "lower triangular y with y y^T = x, x positive definite"sv;
  static Value dx(VjpCall&);
};

struct Inverse : OfMatrix<work::MatrixFunction::inverse> {
  static constexpr auto name = "inverse"sv, doc = "y with x y = 1; a singular x is refused"sv;
  static Value dx(VjpCall&);
};

struct Det : OfMatrix<work::MatrixFunction::det> {
  static constexpr auto name = "det"sv, doc = "y = the determinant of x"sv;
  static void infer(InferCall&);
  static Value dx(VjpCall&);  // dx = dy * cofactor(x), also where x is singular
};

// y[i, j] = (-1)^(i+j) times the determinant of x without row i and column j: det(x) * x^-T where
// that exists.
struct Cofactor : OfMatrix<work::MatrixFunction::cofactor> {
  static constexpr auto name = "cofactor"sv, doc = "y = d det(x) / dx, the cofactors of x"sv;
  static Value dx(VjpCall&);  // dx = cofactor_along(x, dy)
};

// The second derivative of det(x), times v. It is a polynomial in x, made of no inverse: sum(v *
// cofactor(x)) is the sum over i of det(m_i), m_i being x with v's row i in the place of its own.
// So y is the sum over i of cofactor(m_i) without its row i. The work is that of n times cofactor.
struct CofactorAlong {
  static constexpr auto name = "cofactor_along"sv,
                        doc = "y = d sum(v * cofactor(x)) / dx, linear in v"sv;
  static constexpr std::array inputs{"x"sv, "v"sv};
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
  static void compose(ComposeCall&);
  static void vjp(VjpCall&);
};

using LinearAlgebraOperators =
    std::tuple<TriangularSolve, Cholesky, Inverse, Det, Cofactor, CofactorAlong>;

}  // namespace gradus::ops
