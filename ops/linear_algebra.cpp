#include "ops/linear_algebra.h"

#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/declared.h"
#include "ops/families.h"

namespace gradus::ops {

namespace {

// Operand i: a floating square matrix, or a stack of them.
const Type& square(InferCall& call, size_t i) {
  const Type& x = call.tensor(i);
  std::string_view name = call.op.operand(i).name;
  if (x.rank() < 2)
    call.fail("'{}' is {}; it must be a square matrix or a stack of them", name, to_string(x));
  if (!x.is_floating())
    call.fail("'{}' is {}; it must have a floating dtype, cast it first", name, to_string(x));
  call.require_equal(x.dims[x.dims.size() - 2], x.dims.back(),
                     fmt::format("the rows and columns of '{}' {}", name, to_string(x.dims)));
  return x;
}

Value solve(const Value& a, const Value& b, bool upper, bool transpose) {
  return emit<TriangularSolve>({a, b}, {.upper = upper, .transpose = transpose});
}
Value lower_part(const Value& x, int64_t diagonal) {
  return emit<Tril>({x}, {.diagonal = diagonal});
}

}  // namespace

void TriangularSolve::infer(InferCall& call) {
  const Type &a = square(call, 0), &b = call.tensor(1);
  if (a.dtype != b.dtype || a.device != b.device)
    call.fail("'a' is {} and 'b' is {}; they must have one dtype and device", to_string(a),
              to_string(b));
  if (a.rank() != b.rank())
    call.fail(
        "'a' is {} and 'b' is {}; they must have as many dimensions (unsqueeze a vector, "
        "expand a single matrix)",
        to_string(a), to_string(b));
  for (size_t d = 0; d + 1 < a.dims.size(); ++d)
    call.require_equal(
        a.dims[d], b.dims[d],
        fmt::format("dimension {} of 'a' {} and 'b' {}", d, to_string(a.dims), to_string(b.dims)));
  call.out.push_back(b);
}
void TriangularSolve::bind(BindCall& call, const Attr& a) {
  call.set_work(work::Solve{&call.op, call.in[0], call.in[1], a.upper, a.transpose});
}
// b = op(a) y, so db = op(a)^-T dy, and op(a) gets -db y^T.
void TriangularSolve::vjp(VjpCall& d, const Attr& a) {
  if (!d.wants(0) && !d.wants(1)) return;
  Value db = solve(d.x(0), d.dy(), a.upper, !a.transpose);
  d.give(0, [&] {
    const Value& y = d.y();
    Value da = a.transpose ? matmul(y, swap_last(db)) : matmul(db, swap_last(y));
    Value kept = a.upper ? emit<Triu>(da) : emit<Tril>(da);
    return -kept;
  });
  d.give(1, [&] { return db; });
}

void AnyMatrixFunction::infer(InferCall& call) { call.out.push_back(square(call, 0)); }

// dx = the symmetric part of y^-T p y^-1, where p is the lower triangle of y^T dy, its diagonal
// halved. I. Murray, Differentiation of the Cholesky decomposition (2016), equation 10.
Value Cholesky::dx(VjpCall& d) {
  const Value& y = d.y();
  Value full = matmul(swap_last(y), d.dy());
  Value with_diagonal = lower_part(full, 0);
  Value without = lower_part(full, -1);
  Value p = (with_diagonal + without) * 0.5;
  Value left = solve(y, p, false, true);
  Value both = solve(y, swap_last(left), false, true);
  return (both + swap_last(both)) * 0.5;
}

Value Inverse::dx(VjpCall& d) {
  Value yt = swap_last(d.y());
  Value left = matmul(yt, d.dy());
  Value both = matmul(left, yt);
  return -both;
}

void Det::infer(InferCall& call) {
  const Type& x = square(call, 0);
  call.out.emplace_back(x.dtype, Dims(x.dims.begin(), x.dims.end() - 2), x.device);
}
Value Det::dx(VjpCall& d) {
  Value cofactors = emit<Cofactor>(d.x());
  Value dy = unsqueeze(unsqueeze(d.dy(), -1), -1);
  return dy * cofactors;
}

Value Cofactor::dx(VjpCall& d) { return emit<CofactorAlong>(d.x(), d.dy()); }

namespace {

// For each row of x, x with that row of v in its place: [.., n, n, n], and where these rows are.
struct RowsInPlace {
  RowsInPlace(World& world, const Value& x, const Value& v) {
    here = unsqueeze(eye(world, x.dims().back(), DType::boolean), -1);
    elsewhere = logical_not(here);
    matrices = where(here, unsqueeze(v, -3), unsqueeze(x, -3));
  }
  // Of one matrix for each row, the sum of what lies in others.
  Value sum_elsewhere(const Value& y) const { return sum(keep_where(elsewhere, y), {-3}, false); }

  Value here, elsewhere, matrices;
};

}  // namespace

void CofactorAlong::infer(InferCall& call) {
  const Type &x = square(call, 0), &v = square(call, 1);
  if (x.dtype != v.dtype || x.device != v.device || x.rank() != v.rank())
    call.fail("'x' is {} and 'v' is {}; they must have one type", to_string(x), to_string(v));
  for (size_t d = 0; d < x.dims.size(); ++d)
    call.require_equal(
        x.dims[d], v.dims[d],
        fmt::format("dimension {} of 'x' {} and 'v' {}", d, to_string(x.dims), to_string(v.dims)));
  call.out.push_back(x);
}
void CofactorAlong::compose(ComposeCall& c) {
  const RowsInPlace rows(c.world, c.x(0), c.x(1));
  c.give(rows.sum_elsewhere(emit<Cofactor>(rows.matrices)));
}
// Symmetric in v and dy.
void CofactorAlong::vjp(VjpCall& d) {
  d.give(0, [&] {
    const RowsInPlace rows(d.world, d.x(0), d.x(1));
    Value dy = keep_where(rows.elsewhere, unsqueeze(d.dy(), -3));
    return rows.sum_elsewhere(emit<CofactorAlong>(rows.matrices, dy));
  });
  d.give(1, [&] { return emit<CofactorAlong>(d.x(0), d.dy()); });
}

Family linear_algebra_family() { return fold<LinearAlgebraOperators>(); }

}  // namespace gradus::ops
