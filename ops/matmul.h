// Matrix products. `matmul` is the primitive; the others are ways to write it.
#pragma once

#include "gradus/table.h"
#include "ops/number_literal.h"

namespace gradus::ops {

using namespace std::literals;

struct MatmulAttr {
  // Whether b lies as b[…, j, k], so that a derivative by b comes out that way as well.
  bool transpose_b = false;
  static constexpr auto fields() {
    return std::tuple(field("transpose_b", &MatmulAttr::transpose_b));
  }
};

struct Matmul {  // y[…, i, j] = sum over k of a[…, i, k] * b[…, k, j]
  static constexpr auto name = "matmul"sv;
  static constexpr auto linear = ir::Linear::in_each;
  static constexpr auto doc =
      "y = a b, or a b^T, over the last two dimensions, the others broadcast; a 1-d operand is a "
      "row on the left, a column on the right"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static constexpr auto recompute_cost = ir::again::multiplies;
  using Attr = MatmulAttr;
  static void infer(InferCall&, const Attr&);
  static void bind(BindCall&, const Attr&);
  static void vjp(VjpCall&, const Attr&);  // da = dy b^T, db = a^T dy
  static BatchedResults batch(const BatchedCall&);
};

struct Mm {  // y = a b, matrices
  static constexpr auto name = "mm"sv, doc = "y = a b of two matrices"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static void compose(ComposeCall&);
};

struct Bmm {  // y[i] = a[i] b[i], matrices
  static constexpr auto name = "bmm"sv, doc = "y[i] = a[i] b[i] of two stacks of matrices"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static void compose(ComposeCall&);
};

struct Mv {  // y = a x, a matrix and a vector
  static constexpr auto name = "mv"sv, doc = "y = a x of a matrix and a vector"sv;
  static constexpr std::array inputs{"a"sv, "x"sv};
  static void compose(ComposeCall&);
};

struct Dot {  // z = sum of x * y, vectors
  static constexpr auto name = "dot"sv, doc = "z = sum of x * y of two vectors"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static void compose(ComposeCall&);
};

struct Outer {  // z[i, j] = x[i] * y[j]
  static constexpr auto name = "outer"sv, doc = "z[i, j] = x[i] * y[j]"sv;
  static constexpr std::array inputs{"x"sv, "y"sv};
  static void compose(ComposeCall&);
};

struct AddmmAttr {
  NumberLiteral beta = 1, alpha = 1;
  static constexpr auto fields() {
    return std::tuple(field("beta", &AddmmAttr::beta), field("alpha", &AddmmAttr::alpha));
  }
};

struct Addmm {  // y = beta c + alpha a b; beta = 0 leaves c unread
  static constexpr auto name = "addmm"sv,
                        doc = "y = beta * c + alpha * a b, matrices; c broadcasts"sv;
  static constexpr std::array inputs{"c"sv, "a"sv, "b"sv};
  using Attr = AddmmAttr;
  static void compose(ComposeCall&);
};

struct Baddbmm {  // y[i] = beta c[i] + alpha a[i] b[i]
  static constexpr auto name = "baddbmm"sv;
  static constexpr auto doc =
      "y[i] = beta * c[i] + alpha * a[i] b[i], stacks of matrices; c broadcasts"sv;
  static constexpr std::array inputs{"c"sv, "a"sv, "b"sv};
  using Attr = AddmmAttr;
  static void compose(ComposeCall&);
};

struct Linear {  // y[…, o] = sum over i of x[…, i] w[o, i] + b[o]
  static constexpr auto name = "linear"sv, doc = "y = x w^T + b over the last dimension"sv;
  static constexpr std::array inputs{"x"sv, "w"sv, "b?"sv};
  static void compose(ComposeCall&);
};

struct Bilinear {  // y[…, o] = sum over i, j of x1[…, i] w[o, i, j] x2[…, j] + b[o]
  static constexpr auto name = "bilinear"sv,
                        doc = "y[.., o] = sum over i, j of x1[.., i] w[o, i, j] x2[.., j] + b[o]"sv;
  static constexpr std::array inputs{"x1"sv, "x2"sv, "w"sv, "b?"sv};
  static void compose(ComposeCall&);
};

struct Trace {  // y = sum of x[i, i]
  static constexpr auto name = "trace"sv, doc = "y = sum of x[i, i] of a matrix"sv;
  static void compose(ComposeCall&);
};

using MatmulOperators =
    std::tuple<Matmul, Mm, Bmm, Mv, Dot, Outer, Addmm, Baddbmm, Linear, Bilinear, Trace>;

}  // namespace gradus::ops
