#include "ops/factorizations.h"

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_functions.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

const Type& floating_matrix(InferCall& call, size_t i) {
  const Type& x = call.tensor(i);
  std::string_view name = call.op.operand(i).name;
  if (x.rank() < 2)
    call.fail("'{}' is {}; it must be a matrix or a stack of them", name, to_string(x));
  if (!x.is_floating())
    call.fail("'{}' is {}; it must have a floating dtype, cast it first", name, to_string(x));
  return x;
}
const Type& floating_square(InferCall& call, size_t i) {
  const Type& x = floating_matrix(call, i);
  call.require_equal(
      x.dims[x.dims.size() - 2], x.dims.back(),
      fmt::format("the rows and columns of '{}' {}", call.op.operand(i).name, to_string(x.dims)));
  return x;
}

// A type with x's stack of other matrices, or of what else these sizes are.
Type stacked(const Type& x, std::initializer_list<Dim> sizes, DType dtype) {
  Dims dims(x.dims.begin(), x.dims.end() - 2);
  for (const Dim& size : sizes) dims.push_back(size);
  return Type(dtype, std::move(dims), x.device);
}
Type stacked(const Type& x, std::initializer_list<Dim> sizes) { return stacked(x, sizes, x.dtype); }

Dim rows_of(const Dims& dims) { return dims[dims.size() - 2]; }

const Type& tall_matrix(InferCall& call) {
  const Type& x = floating_matrix(call, 0);
  const Dim rows = rows_of(x.dims), columns = x.dims.back();
  if (rows.is_constant() && columns.is_constant() && rows.value() < columns.value())
    call.fail("'x' is {}; it must have at least as many rows as columns", to_string(x));
  return x;
}
void bind_factor(BindCall& call, work::MatrixFunction function, const Layout& x) {
  call.set_work(work::Factor{&call.op, function, x});
}
void bind_tall(BindCall& call, work::MatrixFunction function) {
  const Layout& x = call.in[0];
  if (x.shape[x.shape.size() - 2] < x.shape.back())
    call.fail("'x' is {}; it must have at least as many rows as columns: transpose it",
              to_string(x.shape));
  bind_factor(call, function, x);
}

Value lower(const Value& x, int64_t diagonal) { return emit<Tril>({x}, {.diagonal = diagonal}); }
Value triangular(const Value& a, const Value& b, bool upper, bool transpose) {
  return emit<TriangularSolve>({a, b}, {.upper = upper, .transpose = transpose});
}
// x a^-T, a upper triangular.
Value divided_by_transposed(const Value& x, const Value& a) {
  return swap_last(triangular(a, swap_last(x), true, false));
}
Value unit_of(const Value& x, DType dtype) { return eye(*x.world, x.dims().back(), dtype); }
Value scaled_columns(const Value& x, const Value& s) { return x * unsqueeze(s, -2); }
Value scaled_rows(const Value& x, const Value& s) { return x * unsqueeze(s, -1); }

// Off the diagonal x / gaps, on it 0.
Value over_gaps(const Value& x, const Value& gaps) {
  Value own = unit_of(x, DType::boolean);
  Value divisor = where(own, num(1.0), gaps);
  return where(own, num(0.0), x / divisor);
}

}  // namespace

void SquareSolve::infer(InferCall& call) {
  const Type &a = floating_square(call, 0), &b = call.tensor(1);
  if (a.dtype != b.dtype || a.device != b.device || a.rank() != b.rank())
    call.fail("'a' is {} and 'b' is {}; they must have one dtype, device and rank", to_string(a),
              to_string(b));
  for (size_t d = 0; d + 1 < a.dims.size(); ++d)
    call.require_equal(
        a.dims[d], b.dims[d],
        fmt::format("dimension {} of 'a' {} and 'b' {}", d, to_string(a.dims), to_string(b.dims)));
  call.out.push_back(b);
}
void SquareSolve::bind(BindCall& call, const Attr& a) {
  call.set_work(work::Solve{&call.op, call.in[0], call.in[1], false, a.transpose, true});
}
// b = op(a) y, so db = op(a)^-T dy, and op(a) gets -db y^T.
void SquareSolve::vjp(VjpCall& d, const Attr& a) {
  if (!d.wants(0) && !d.wants(1)) return;
  Value db = emit<SquareSolve>({d.x(0), d.dy()}, {.transpose = !a.transpose});
  d.give(0, [&] {
    const Value& y = d.y();
    return -(a.transpose ? matmul(y, swap_last(db)) : matmul(db, swap_last(y)));
  });
  d.give(1, [&] { return db; });
}

namespace {

// The sizes of two stacks, broadcast.
Dims common_stack(const ComposeCall& c, const Value& a, const Value& b) {
  Dims x(a.dims().begin(), a.dims().end() - 2), y(b.dims().begin(), b.dims().end() - 2);
  if (x.size() < y.size()) std::swap(x, y);
  for (size_t k = 1; k <= y.size(); ++k) {
    Dim &to = x[x.size() - k], &from = y[y.size() - k];
    if (to == Dim(1)) to = from;
    if (!(from == Dim(1))) same_size(c, to, from, "the stacks of 'a' and 'b' broadcast");
  }
  return x;
}
Value with_stack(const Value& x, Dims stack) {
  stack.push_back(rows_of(x.dims()));
  stack.push_back(x.dims().back());
  return expand(x, stack);
}

// Whether b is a stack of vectors.
bool holds_vectors(const Value& a, const Value& b) {
  if (b.rank() == 1) return true;
  return b.rank() + 1 == a.rank() && std::equal(b.dims().begin(), b.dims().end(), a.dims().begin());
}

}  // namespace

void Solve::compose(ComposeCall& c, const Attr& attr) {
  Value a = floating_operand(c, 0), b = floating_operand(c, 1);
  if (a.rank() < 2 || b.rank() < 1)
    c.fail("'a' is {} and 'b' is {}; 'a' must be a square matrix or a stack of them",
           to_string(a.type), to_string(b.type));
  const bool vectors = holds_vectors(a, b);
  if (vectors) b = unsqueeze(b, -1);
  if (!attr.left && !vectors) b = swap_last(b);
  const Dims stack = common_stack(c, a, b);
  Value y =
      emit<SquareSolve>({with_stack(a, stack), with_stack(b, stack)}, {.transpose = !attr.left});
  if (vectors) return c.give(squeeze(y, -1));
  c.give(attr.left ? y : swap_last(y));
}

void LuFactor::infer(InferCall& call) {
  const Type& x = floating_matrix(call, 0);
  const Dim rows = rows_of(x.dims), columns = x.dims.back();
  call.out.push_back(x);
  call.out.push_back(stacked(x, {min(rows, columns)}, DType::i32));
  call.out.push_back(stacked(x, {rows}, DType::i64));
}
void LuFactor::bind(BindCall& call) { bind_factor(call, work::MatrixFunction::lu, call.in[0]); }
// The first k rows and columns of x[order], k the lesser size, are l1 u1, l1 and u1 the first parts
// of l and u. They get l1^-T (the lower part of a + the upper part of b) u1^-T, where a is l1^T dl1
// and b is du1 u1^T. Rows beyond are l2 u1, so that b gets less of l2^T dl2 u1^-T; columns beyond
// are l1 u2, so that a gets less of du2 u2^T. S. Walter and L. Lehmann, Algorithmic differentiation
// of linear algebra functions (2010), section 4, has k = m = n.
Value LuFactor::dx(VjpCall& d) {
  const Value &lu = d.y(), dy = d.dy();
  const int down = lu.rank() - 2, across = down + 1;
  const Dim rows = rows_of(lu.dims()), columns = lu.dims().back();
  const bool square = rows == columns;
  if (!square && !(rows.is_constant() && columns.is_constant()))
    throw Error("lu_factor: 'x' is {}; its derivative has to know which size is the lesser one",
                to_string(d.x_type()));
  const bool tall = !square && rows.value() > columns.value(), wide = !square && !tall;
  const Dim k = tall ? columns : rows;
  auto first = [&](const Value& x) {
    return tall ? slice(x, down, 0, k) : wide ? slice(x, across, 0, k) : x;
  };
  auto rest = [&](const Value& x) {
    return tall ? slice(x, down, k, rows) : slice(x, across, k, columns);
  };
  Value part = first(lu), dpart = first(dy);
  Value l = lower(part, -1) + unit_of(part, lu.dtype()), u = emit<Triu>(part);
  Value of_l = matmul(swap_last(l), lower(dpart, -1)), du = emit<Triu>(dpart), beyond;
  if (tall) {
    beyond = divided_by_transposed(rest(dy), u);
    du = du - emit<Triu>(matmul(swap_last(rest(lu)), beyond));
  } else if (wide) {
    beyond = triangular(l, rest(dy), false, true);
    of_l = of_l - matmul_transposed(rest(dy), rest(lu));
  }
  Value inner = lower(of_l, -1) + emit<Triu>(matmul_transposed(du, u));
  Value picked = divided_by_transposed(triangular(l, inner, false, true), u);
  if (!square) picked = cat(std::array{picked, beyond}, tall ? down : across);
  Value order = expand(unsqueeze(d.y(2), -1), d.x_type().dims);
  return scatter_add(zeros_to_fill(d.world, d.x_type()), order, picked, down);
}

void Lu::compose(ComposeCall& c) {
  const Value& x = floating_operand(c, 0);
  auto results = emit_all<LuFactor>(c.world, std::array{x});
  const Value &lu = results[0], &order = results[2];
  const Dim rows = rows_of(x.dims()), columns = x.dims().back(), least = min(rows, columns);
  Value places = arange(c.world, rows);
  c.give(cast(eq(unsqueeze(order, -2), unsqueeze(places, -1)), x.dtype()));
  Value thin = slice(lu, lu.rank() - 1, 0, least), flat = slice(lu, lu.rank() - 2, 0, least);
  Value below = lower(thin, -1);
  Value one = cast(eq(unsqueeze(places, -1), unsqueeze(arange(c.world, least), 0)), x.dtype());
  c.give(below + one);
  c.give(emit<Triu>(flat));
}

void TallQr::infer(InferCall& call) {
  const Type& x = tall_matrix(call);
  call.out.push_back(x);
  call.out.push_back(stacked(x, {x.dims.back(), x.dims.back()}));
}
void TallQr::bind(BindCall& call) { bind_tall(call, work::MatrixFunction::qr); }
// dx = (dq + q s) r^-T, where s is symmetric and has the upper triangle of dr r^T - q^T dq. S.
// Walter, L. Lehmann and R. Lamour, On evaluating higher-order derivatives of the QR decomposition
// (2012).
Value TallQr::dx(VjpCall& d) {
  const Value &q = d.y(0), &r = d.y(1);
  Value m;
  if (d.has_dy(1)) m = matmul(d.dy(1), swap_last(r));
  if (d.has_dy(0)) {
    Value other = matmul(swap_last(q), d.dy(0));
    m = m.defined() ? m - other : -other;
  }
  Value upper = emit<Triu>(m);
  Value strict = emit<Triu>({m}, {.diagonal = 1});
  Value inner = matmul(q, upper + swap_last(strict));
  if (d.has_dy(0)) inner = d.dy(0) + inner;
  return divided_by_transposed(inner, r);
}

namespace {

// x's orthonormal columns and what completes them, in a square matrix.
Value completed(const Value& x, bool for_any_basis) {
  const Dim rows = rows_of(x.dims()), columns = x.dims().back();
  if (rows == columns) return x;
  return cat(std::array{x, emit<Complement>({x}, {.for_any_basis = for_any_basis})}, x.rank() - 1);
}

}  // namespace

void Qr::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() < 2) c.fail("'x' is {}; it must be a matrix or a stack of them", to_string(x.type));
  const Dim rows = rows_of(x.dims()), columns = x.dims().back();
  const bool wide = rows.is_constant() && columns.is_constant() && rows.value() < columns.value();
  const int last = x.rank() - 1;
  auto results = emit_all<TallQr>(c.world, std::array{wide ? slice(x, last, 0, rows) : x});
  const Value& q = results[0];
  if (a.full && !wide) {
    c.give(completed(q, false));
    return c.give(pad_zeros(results[1], last - 1, 0, rows - columns));
  }
  c.give(q);
  if (!wide) return c.give(results[1]);
  Value rest = matmul(swap_last(q), slice(x, last, rows, columns));
  c.give(cat(std::array{results[1], rest}, last));
}

void Eigh::infer(InferCall& call, const Attr& a) {
  const Type& x = floating_square(call, 0);
  if (a.uplo != "L" && a.uplo != "U")
    call.fail("'uplo' is \"{}\"; it must be \"L\" or \"U\"", a.uplo);
  call.out.push_back(stacked(x, {x.dims.back()}));
  call.out.push_back(x);
}
void Eigh::bind(BindCall& call, const Attr& a) {
  Layout x = call.in[0];
  if (a.uplo == "U") std::swap(x.strides[x.strides.size() - 2], x.strides.back());
  bind_factor(call, work::MatrixFunction::eigh, x);
}
// dx = v (diag(dw) + v^T dv / (w_j - w_i)) v^T, of which the symmetric part. M. Giles, An extended
// collection of matrix derivative results (2008), section 3.1.
Value Eigh::dx(VjpCall& d) {
  const Value &w = d.y(0), &v = d.y(1);
  Value inner;
  if (d.has_dy(1)) {
    Value gaps = unsqueeze(w, -2) - unsqueeze(w, -1);
    inner = over_gaps(matmul(swap_last(v), d.dy(1)), gaps);
  }
  if (d.has_dy(0)) {
    Value diagonal = scaled_columns(unit_of(v, v.dtype()), d.dy(0));
    inner = inner.defined() ? inner + diagonal : diagonal;
  }
  Value left = matmul(v, inner);
  Value whole = matmul_transposed(left, v);
  return (whole + swap_last(whole)) * 0.5;
}

void TallSvd::infer(InferCall& call) {
  const Type& x = tall_matrix(call);
  const Dim n = x.dims.back();
  call.out.push_back(x);
  call.out.push_back(stacked(x, {n}));
  call.out.push_back(stacked(x, {n, n}));
}
void TallSvd::bind(BindCall& call) { bind_tall(call, work::MatrixFunction::svd); }
// dx = u ((skew(u^T du) / e) s + s (skew(vh dvh^T) / e) + diag(ds)) vh + (1 - u u^T) du s^-1 vh,
// where skew(a) = a - a^T and e_ij = s_j^2 - s_i^2. J. Townsend, Differentiating the singular value
// decomposition (2016).
Value TallSvd::dx(VjpCall& d) {
  const Value &u = d.y(0), &s = d.y(1), &vh = d.y(2);
  Value across = unsqueeze(s, -2), down = unsqueeze(s, -1);
  Value gaps = (across - down) * (across + down);
  auto turned = [&](const Value& m) { return over_gaps(m - swap_last(m), gaps); };
  Value inner, outside;
  auto add = [&](const Value& part) { inner = inner.defined() ? inner + part : part; };
  if (d.has_dy(1)) add(scaled_columns(unit_of(vh, vh.dtype()), d.dy(1)));
  if (d.has_dy(2)) add(scaled_rows(turned(matmul_transposed(vh, d.dy(2))), s));
  if (d.has_dy(0)) {
    Value along = matmul(swap_last(u), d.dy(0));
    add(scaled_columns(turned(along), s));
    // Nothing is outside of a square u's columns.
    if (!(rows_of(u.dims()) == u.dims().back()))
      outside = (d.dy(0) - matmul(u, along)) / unsqueeze(s, -2);
  }
  Value left = matmul(u, inner);
  if (outside.defined()) left = left + outside;
  return matmul(left, vh);
}

void Svd::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() < 2) c.fail("'x' is {}; it must be a matrix or a stack of them", to_string(x.type));
  const Dim rows = rows_of(x.dims()), columns = x.dims().back();
  const bool wide = rows.is_constant() && columns.is_constant() && rows.value() < columns.value();
  auto y = emit_all<TallSvd>(c.world, std::array{wide ? swap_last(x) : x});
  const Value u = a.full ? completed(y[0], true) : y[0];
  c.give(wide ? swap_last(y[2]) : u);
  c.give(y[1]);
  c.give(wide ? swap_last(u) : y[2]);
}

void MatrixExp::infer(InferCall& call) { call.out.push_back(floating_square(call, 0)); }
void MatrixExp::bind(BindCall& call) { bind_factor(call, work::MatrixFunction::exp, call.in[0]); }
// The exponential of [x^T, dy; 0, x^T] has dx where dy is. R. Mathias, A chain rule for matrix
// functions and applications (1996), theorem 2.1.
Value MatrixExp::dx(VjpCall& d) {
  const int rank = d.x().rank();
  const Dim n = d.x().dims().back();
  Value turned = swap_last(d.x()), dy = d.dy();
  Value top = cat(std::array{turned, dy}, rank - 1);
  Value bottom = pad_zeros(turned, rank - 1, n, 0);
  Value y = emit<MatrixExp>(cat(std::array{top, bottom}, rank - 2));
  return slice(slice(y, rank - 2, 0, n), rank - 1, n, n + n);
}

Family factorization_family() {
  return fold<decltype(std::tuple_cat(FactorizationOperators(), MatrixFunctionOperators()))>();
}

}  // namespace gradus::ops
