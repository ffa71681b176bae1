// Matrix products. `matmul` is the primitive; the others are ways to write it.
#pragma once

#include "ops/table.h"

namespace gradus::ops {

using namespace std::literals;

struct Matmul {  // y[…, i, j] = sum over k of a[…, i, k] * b[…, k, j]
  static constexpr auto name = "matmul"sv,
                        doc = "y = a b over the last two dimensions, the others broadcast; a 1-d "
                              "operand is a row on the left, a column on the right"sv;
  static constexpr std::array inputs{"a"sv, "b"sv};
  static void infer(InferCall&);
  static void bind(BindCall&);
  static void vjp(VjpCall&);  // da = dy b^T, db = a^T dy
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

using MatmulOperators = std::tuple<Matmul, Mm, Bmm>;

}  // namespace gradus::ops
