#include "ops/matrix_functions.h"

#include <cmath>
#include <limits>

#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/declared.h"
#include "ops/factorizations.h"
#include "ops/linear_algebra.h"
#include "ops/operands.h"
#include "ops/shape.h"
#include "ops/slicing.h"
#include "ops/statistics.h"

namespace gradus::ops {

namespace {

const Value& matrix_operand(const ComposeCall& c) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() < 2) c.fail("'x' is {}; it must be a matrix or a stack of them", to_string(x.type));
  return x;
}
const Value& square_operand(const ComposeCall& c) {
  const Value& x = matrix_operand(c);
  same_size(c, x.dims()[x.dims().size() - 2], x.dims().back(), "'x' must be square");
  return x;
}

struct SignAndLog {
  Value sign, logarithm;
};
// From the diagonal of u, and the parity of the exchanges.
SignAndLog determinant(const ComposeCall& c) {
  const Value& x = square_operand(c);
  auto factors = emit_all<LuFactor>(c.world, std::array{x});
  Value u = emit<Diagonal>({factors[0]}, {.dim1 = -2, .dim2 = -1});
  Value steps = arange(c.world, x.dims().back()) + num(int64_t{1});
  Value exchanged = cast(ne(cast(factors[1], DType::i64), steps), x.dtype());
  Value parity = emit<Prod>({1.0 - exchanged * 2.0}, {.dim = -1});
  Value signs = emit<Prod>({emit<Sign>(u)}, {.dim = -1});
  return {signs * parity, sum(emit<Log>(emit<Abs>(u)), {-1}, false)};
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

}  // namespace

void Slogdet::compose(ComposeCall& c) {
  SignAndLog y = determinant(c);
  c.give(y.sign);
  c.give(y.logarithm);
}

void Logdet::compose(ComposeCall& c) {
  SignAndLog y = determinant(c);
  Value beyond = where(lt(y.sign, num(0.0)), num(std::nan("")), zeros_like(y.sign));
  c.give(y.logarithm + beyond);
}

void MatrixPower::compose(ComposeCall& c, const Attr& a) {
  const Value& x = square_operand(c);
  if (a.n == 0) return c.give(expand(eye(c.world, x.dims().back(), x.dtype()), x.dims()));
  Value power = a.n < 0 ? emit<Inverse>(x) : x, y;
  uint64_t rest = a.n < 0 ? uint64_t{0} - static_cast<uint64_t>(a.n) : static_cast<uint64_t>(a.n);
  for (;;) {
    if (rest & 1) y = y.defined() ? matmul(y, power) : power;
    rest >>= 1;
    if (rest == 0) return c.give(y);
    power = matmul(power, power);
  }
}

void Pinv::compose(ComposeCall& c, const Attr& a) {
  const Value& x = matrix_operand(c);
  auto factors = emit_all<Svd>(c.world, std::array{x});
  const Value &u = factors[0], &s = factors[1], &vh = factors[2];
  Value greatest = emit<Amax>({s}, {.dim = Ints{-1}, .keepdim = true, .allow_empty = true});
  const double given = a.rtol ? *a.rtol : a.atol > 0 ? 0 : epsilon_of(x.dtype());
  Value least = greatest * given;
  if (!a.rtol && a.atol <= 0) least = least * max(x.dims()[x.dims().size() - 2], x.dims().back());
  least = emit<Maximum>(least, num(a.atol));
  Value counts = gt(s, least);
  Value inverse = keep_where(counts, 1.0 / where(counts, s, num(1.0)));
  c.give(matmul(swap_last(vh) * unsqueeze(inverse, -2), swap_last(u)));
}
// With y the pseudoinverse: -(y^T dy y^T) + (1 - x y) dy^T y y^T + y^T y dy^T (1 - y x). G. Golub
// and V. Pereyra, The differentiation of pseudo-inverses (1973), equation 4.12.
Value Pinv::dx(VjpCall& d) {
  const Value &x = d.x(), &y = d.y();
  Value yt = swap_last(y), dyt = swap_last(d.dy());
  Value inner = matmul(matmul(yt, d.dy()), yt);
  Value left = matmul(matmul(dyt, y), yt);
  Value outside = left - matmul(x, matmul(y, left));
  Value right = matmul(yt, matmul(y, dyt));
  Value beside = right - matmul(matmul(right, y), x);
  return outside + beside - inner;
}

// 1 - x d x^T has the eigenvalues 1 - d and 1; y are the vectors of 1, the greatest. Those of x do
// not hinge on rounding where the elements of d, from 1 on, differ.
void Complement::compose(ComposeCall& c, const Attr&) {
  const Value& x = matrix_operand(c);
  const Dim rows = x.dims()[x.dims().size() - 2], columns = x.dims().back();
  if (rows.is_constant() && columns.is_constant() && rows.value() < columns.value())
    c.fail("'x' is {}; it must have at least as many rows as columns", to_string(x.type));
  Value d = cast(arange(c.world, columns), x.dtype()) / columns + 1.0;
  Value outside = eye(c.world, rows, x.dtype()) - matmul_transposed(x * d, x);
  Value vectors = emit_all<Eigh>(c.world, std::array{outside})[1];
  c.give(slice(vectors, x.rank() - 1, columns, rows));
}
// y^T x stays 0, so that y moves by -x (x^T x)^-1 dx^T y.
Value Complement::dx(VjpCall& d, const Attr& a) {
  const Value &x = d.x(), &y = d.y();
  const Dim& vectors = y.dims().back();
  if (!a.for_any_basis && !(vectors.is_constant() && vectors.value() <= 1))
    throw Error(
        "complement: 'x' is {}; the {} vectors that complete it are any basis, which has no "
        "derivative; take the reduced form of the factorization, or set for_any_basis if the "
        "result is the same for every basis",
        to_string(d.x_type()), vectors.to_string());
  Value along = matmul(swap_last(x), d.dy());
  Value gram = matmul(swap_last(x), x);
  Value moved = emit<SquareSolve>({gram, along}, {});
  return -matmul_transposed(y, moved);
}

namespace {

Value extreme(const Value& x, bool greatest) {
  const ExtremumAttr last{.dim = Ints{-1}, .keepdim = false};
  return greatest ? emit<Amax>({x}, last) : emit<Amin>({x}, last);
}
Value singular_values(const Value& x) { return emit_all<Svd>(*x.world, std::array{x})[1]; }

}  // namespace

void MatrixNorm::compose(ComposeCall& c, const Attr& a) {
  const Value& x = matrix_operand(c);
  if (a.dim.size() != 2 || a.dim[0] == a.dim[1]) c.fail("'dim' must name two dimensions");
  Value m = widened(emit<Movedim>({x}, {.source = a.dim, .destination = Ints{-2, -1}}));
  auto sums = [&](int64_t dim) { return sum(emit<Abs>(m), {dim}, false); };
  auto norm = [&]() -> Value {
    if (a.ord == "fro") return emit<Norm>({m}, {.dim = Ints{-2, -1}});
    if (a.ord == "nuc") return sum(singular_values(m), {-1}, false);
    if (a.ord == "2" || a.ord == "-2") return extreme(singular_values(m), a.ord == "2");
    if (a.ord == "1" || a.ord == "-1") return extreme(sums(-2), a.ord == "1");
    if (a.ord == "inf" || a.ord == "-inf") return extreme(sums(-1), a.ord == "inf");
    c.fail(
        "'ord' is \"{}\"; it must be \"fro\", \"nuc\", \"2\", \"-2\", \"1\", \"-1\", \"inf\" or "
        "\"-inf\"",
        a.ord);
  };
  Value y = cast(norm(), x.dtype());
  if (!a.keepdim) return c.give(y);
  Dims shape = x.dims();
  for (int64_t d : a.dim) shape[static_cast<size_t>(d)] = 1;
  c.give(reshape(y, shape));
}

void Cross::compose(ComposeCall& c, const Attr& a) {
  const Value &x = tensor_operand(c, 0), &y = tensor_operand(c, 1);
  if (x.rank() != y.rank() || x.rank() == 0)
    c.fail("'x' is {} and 'y' is {}; they must have as many dimensions", to_string(x.type),
           to_string(y.type));
  const auto d = static_cast<size_t>(a.dim);
  for (const Value* v : {&x, &y})
    if (!(v->dims()[d] == Dim(3)))
      c.fail("dimension {} of {} must have size 3", a.dim, to_string(v->type));
  auto turned = [&](const Value& v, int64_t by) {
    return emit<Roll>({v}, {.shifts = Ints{by}, .dims = Ints{a.dim}});
  };
  Value first = turned(x, -1) * turned(y, 1), second = turned(x, 1) * turned(y, -1);
  c.give(first - second);
}

}  // namespace gradus::ops
