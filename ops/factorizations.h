// Factorisations of matrices, and what is solved by them. All take stacks of matrices; elements are
// worked out in f64 and rounded when stored.
#pragma once

#include "gradus/table.h"
#include "ops/bind_work.h"

namespace gradus::ops {

using namespace std::literals;

// A singular `a` is refused.
struct SquareSolve {
  static constexpr auto name = "square_solve"sv,
                        doc = "y with a y = b for a square a, or with a^T y = b"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    bool transpose = false;
    static constexpr auto fields() { return std::tuple(field("transpose", &Attr::transpose)); }
  };
  static void infer(InferCall&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);
};

// b is a vector where it has one dimension, or one fewer than a and a's other sizes, as in ATen.
// Stacks broadcast.
struct Solve {
  static constexpr auto name = "solve"sv, doc = "y with a y = b, or y a = b where not `left`"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  struct Attr {
    bool left = true;
    static constexpr auto fields() { return std::tuple(field("left", &Attr::left)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

// lu holds u on and above the diagonal and l, whose diagonal is 1, below. As in LAPACK, row i was
// exchanged with row pivots[i] - 1 in step i; row i of l u is row order[i] of x.
struct LuFactor {
  static constexpr auto name = "lu_factor"sv,
                        doc = "x[order] = l u by partial pivoting, both in lu"sv;
  static constexpr std::array results{"lu"sv, "pivots"sv, "order"sv};
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
};

struct Lu {
  static constexpr auto name = "lu"sv, doc = "x = p l u, p a permutation"sv;
  static constexpr std::array results{"p"sv, "l"sv, "u"sv};
  static void compose(ComposeCall&);
};

// x has at least as many rows as columns.
struct TallQr {
  static constexpr auto name = "tall_qr"sv,
                        doc =
                            "x = q r, q with orthonormal columns, r square and upper triangular"sv;
  static constexpr std::array results{"q"sv, "r"sv};
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
};

// The reduced form; of the full one q is square, and `complement` of the reduced one's columns
// gives the others. Where names stand for sizes, x is taken to have more rows than columns.
struct Qr {
  static constexpr auto name = "qr"sv, doc = "x = q r, q with orthonormal columns, r trapezoidal"sv;
  static constexpr std::array results{"q"sv, "r"sv};
  struct Attr {
    bool full = false;
    static constexpr auto fields() { return std::tuple(field("full", &Attr::full)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Of x the triangle that uplo names is read, "L" or "U"; the derivative is the symmetric one. The
// largest element of each vector is positive. A derivative through the vectors, or a second one,
// divides by differences of eigenvalues: it is infinite or NaN where two are equal.
struct Eigh {
  static constexpr auto name = "eigh"sv;
  static constexpr auto doc =
      "x = vectors * values * vectors^T for a symmetric x, values ascending"sv;
  static constexpr std::array results{"values"sv, "vectors"sv};
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    std::string uplo = "L";
    static constexpr auto fields() { return std::tuple(field("uplo", &Attr::uplo)); }
  };
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static Value dx(VjpCall&);
};

// x has at least as many rows as columns. The largest element of each row of vh is positive. A
// derivative through u or vh, or a second one, is infinite or NaN where two singular values are
// equal; that of u divides by them, too.
struct TallSvd {
  static constexpr auto name = "tall_svd"sv,
                        doc = "x = u * s * vh, u and vh^T with orthonormal columns"sv;
  static constexpr std::array results{"u"sv, "s"sv, "vh"sv};
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
};

// The reduced form, of what tall_svd says; of the full one u and vh are square, and what depends on
// the vectors that the reduced one has not is taken to be the same for any basis of them.
struct Svd {
  static constexpr auto name = "svd"sv, doc = "x = u * s * vh, s descending"sv;
  static constexpr std::array results{"u"sv, "s"sv, "vh"sv};
  struct Attr {
    bool full = false;
    static constexpr auto fields() { return std::tuple(field("full", &Attr::full)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct MatrixExp {  // its derivative is a block of the exponential of a matrix of twice the size
  static constexpr auto name = "matrix_exp"sv, doc = "y = 1 + x + x x / 2 + x x x / 6 + ..."sv;
  static constexpr auto batch = batch_last_dimensions;
  static void infer(InferCall&);
  static void bind(BindCall&);
  static Value dx(VjpCall&);
};

using FactorizationOperators =
    std::tuple<SquareSolve, Solve, LuFactor, Lu, TallQr, Qr, Eigh, TallSvd, Svd, MatrixExp>;

}  // namespace gradus::ops
