// Functions of matrices that are made of factorisations and products.
#pragma once

#include "gradus/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Slogdet {  // of a singular x: sign 0, logabsdet -inf
  static constexpr auto name = "slogdet"sv,
                        doc = "sign and logarithm of the magnitude of x's determinant"sv;
  static constexpr std::array results{"sign"sv, "logabsdet"sv};
  static void compose(ComposeCall&);
};

struct Logdet {
  static constexpr auto name = "logdet"sv,
                        doc = "y = log(det(x)); NaN where the determinant is negative"sv;
  static void compose(ComposeCall&);
};

struct MatrixPower {
  static constexpr auto name = "matrix_power"sv,
                        doc = "y = x x ... x, n times; of the inverse where n < 0"sv;
  struct Attr {
    int64_t n = 1;
    static constexpr auto fields() { return std::tuple(required("n", &Attr::n)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

// Singular values that are at most max(atol, rtol * the greatest) count for 0. rtol is the dtype's
// epsilon times the larger size where it is left out and atol is 0. The derivative is that of an x
// whose rank does not change.
struct Pinv {
  static constexpr auto name = "pinv"sv, doc = "y = the pseudoinverse of x, by svd"sv;
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    double atol = 0;
    std::optional<double> rtol;
    static constexpr auto fields() {
      return std::tuple(field("atol", &Attr::atol), field("rtol", &Attr::rtol));
    }
  };
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&);
};

// Any basis is as good as another, but for signs: the derivative of one of several vectors is
// refused. Where functions of y are the same `for_any_basis`, as y y^T is, theirs exists, and is
// what y gives that turns no more than it has to.
struct Complement {
  static constexpr auto name = "complement"sv;
  static constexpr auto doc =
      "y with orthonormal columns, which complete the orthonormal columns of x to a basis"sv;
  static constexpr auto batch = batch_last_dimensions;
  struct Attr {
    bool for_any_basis = false;
    static constexpr auto fields() {
      return std::tuple(field("for_any_basis", &Attr::for_any_basis));
    }
  };
  static void compose(ComposeCall&, const Attr&);
  static Value dx(VjpCall&, const Attr&);
};

// ord: "fro"; "nuc", the sum of singular values; "2" and "-2", the greatest and the least of them;
// "1" and "-1", of the columns' sums of magnitudes; "inf" and "-inf", of the rows'.
struct MatrixNorm {
  static constexpr auto name = "matrix_norm"sv, doc = "y = a norm of the matrices x, over `dim`"sv;
  static constexpr int least_rank = 2;
  struct Attr {
    std::string ord = "fro";
    Ints dim{-2, -1};
    bool keepdim = false;
    static constexpr auto fields() {
      return std::tuple(field("ord", &Attr::ord), dimension("dim", &Attr::dim),
                        field("keepdim", &Attr::keepdim));
    }
  };
  static void compose(ComposeCall&, const Attr&);
};

struct Cross {  // other dimensions broadcast
  static constexpr auto name = "cross"sv,
                        doc =
                            "z_i = x_j y_k - x_k y_j for i, j, k in turn, along `dim` of size 3"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static constexpr std::array results{"z"sv};
  struct Attr {
    int64_t dim = -1;
    static constexpr auto fields() { return std::tuple(dimension("dim", &Attr::dim)); }
  };
  static void compose(ComposeCall&, const Attr&);
};

using MatrixFunctionOperators =
    std::tuple<Slogdet, Logdet, MatrixPower, Pinv, Complement, MatrixNorm, Cross>;

}  // namespace gradus::ops
