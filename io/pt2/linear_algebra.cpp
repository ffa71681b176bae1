// Factorisations of matrices, and solving with them. Operators of stacks of matrices take the same.
#include "gradus/registry.h"
#include "io/pt2/factorizations.h"
#include "io/pt2/operands.h"
#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// A matrix function; its operand is called `A` in newer schemas.
Value matrix_operand(Call& c) { return c.x(c.given("A") ? "A" : "self"); }

// What says whether it went well: it did, or the run ended.
void give_info(Call& c, size_t i) {
  if (c.results() <= i) return;
  if (!c.wants(i)) return c.give_nothing();
  c.give(full(c.world(), c.result(i).sizes, 0, c.result(i).dtype));
}

void matrix_rule(Call& c) {
  c.give(unary(c.ours(), matrix_operand(c)));
  give_info(c, 1);
}

// Without the results that only ATen's own derivatives read.
void determinant_rule(Call& c) {
  c.give(unary("det", matrix_operand(c)));
  for (size_t i = 1; i < c.results(); ++i) c.give_nothing();
}

void log_determinant_rule(Call& c) { c.give(unary("log", unary("det", matrix_operand(c)))); }

void sign_and_logarithm_rule(Call& c) {
  Value a = matrix_operand(c);
  if (find("slogdet")) {
    for (const Value& v : emit_all(c.world(), "slogdet", std::array{a})) c.give(v);
  } else {
    Value det = unary("det", a);
    c.give(unary("sign", det));
    c.give(unary("log", unary("abs", det)));
  }
  for (size_t i = 2; i < c.results(); ++i) c.give_nothing();
}

// Of the triangle that is read.
void cholesky_rule(Call& c) {
  Value a = c.x();
  const bool upper = c.flag("upper", false);
  Value y = unary("cholesky", upper ? swap_last(a) : a);
  c.give(upper ? swap_last(y) : y);
  give_info(c, 1);
}

// Triangles

Value triangle(const Value& a, bool upper, bool unit) {
  need_dims(a, 2, "its triangle");
  if (!unit) return a;
  Value rest = emit(upper ? "triu" : "tril", {a}, {{"diagonal", upper ? 1 : -1}});
  return rest + eye(*a.world, a.dims().back(), a.dtype());
}

Value solved(const Value& a, const Value& b, bool upper, bool transposed) {
  need_dims(a, 2, "its triangle");
  need_dims(b, 2, "its right side");
  // Stacks broadcast: as the product of both would.
  Dims stack = matmul(a, b).dims();
  stack.resize(stack.size() - 2);
  auto stacked = [&](const Value& m) {
    Dims shape = stack;
    shape.push_back(m.dims()[m.dims().size() - 2]);
    shape.push_back(m.dims().back());
    return expand(m, shape);
  };
  return emit("triangular_solve", {stacked(a), stacked(b)},
              {{"upper", upper}, {"transpose", transposed}});
}

void solve_triangular_rule(Call& c) {
  const bool upper = c.flag("upper", false);
  Value a = triangle(c.x(), upper, c.flag("unitriangular", false)), b = c.x("B");
  if (c.flag("left", true)) return c.give(solved(a, b, upper, false));
  // x a = b is a^T x^T = b^T.
  c.give(swap_last(solved(a, swap_last(b), upper, true)));
}

void old_solve_triangular_rule(Call& c) {
  const bool upper = c.flag("upper", true);
  Value a = triangle(c.x("A"), upper, c.flag("unitriangular", false));
  c.give(solved(a, c.x(), upper, c.flag("transpose", false)));
  c.give(c.x("A"));
}

// a x = b by the factor of a = f f^T, or of f^T f.
Value solved_by_factor(const Value& f, const Value& b, bool upper) {
  Value y = solved(f, b, upper, upper);
  return solved(f, y, upper, !upper);
}
void cholesky_solve_rule(Call& c) {
  c.give(solved_by_factor(c.x("input2"), c.x(), c.flag("upper", false)));
}
void cholesky_inverse_rule(Call& c) {
  Value f = c.x();
  need_dims(f, 2, "its factor");
  Value one = expand(eye(c.world(), f.dims().back(), f.dtype()), f.dims());
  c.give(solved_by_factor(f, one, c.flag("upper", false)));
}

// General systems

void solve_rule(Call& c) {
  Value a = c.x("A"), b = c.x("B");
  need_dims(a, 2, "its matrix");
  const bool left = c.flag("left", true);
  // A stack of vectors has a's shape without its last size.
  Dims vectors = a.dims();
  vectors.pop_back();
  const bool vector = b.rank() == 1 || b.dims() == vectors;
  if (vector) b = unsqueeze(b, b.rank());
  if (!left) a = swap_last(a), b = vector ? b : swap_last(b);
  Value x = find("solve") ? binary("solve", a, b) : matmul(unary("inverse", a), b);
  if (vector) x = squeeze(x, -1);
  c.give(left || vector ? x : swap_last(x));
  for (size_t i = 1; i < c.results(); ++i) {
    if (c.op().starts_with("linalg_solve_ex"))
      give_info(c, i);
    else
      c.give_nothing();
  }
}

Value power_of_matrix(Call& c, Value a, int64_t n) {
  need_dims(a, 2, "its matrix");
  if (n < -INT64_MAX) c.fail("its n is {}", n);
  if (n < 0) a = unary("inverse", a), n = -n;
  if (n == 0) return expand(eye(c.world(), a.dims().back(), a.dtype()), a.dims());
  Value result;
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) result = result.defined() ? matmul(result, a) : a;
    if (n > 1) a = matmul(a, a);
  }
  return result;
}
void matrix_power_rule(Call& c) { c.give(power_of_matrix(c, c.x(), c.integer("n"))); }

// The distances of all rows of one stack from all of another: [.., i, j].
void all_distances_rule(Call& c) {
  Value x = c.x("x1"), y = c.x("x2");
  const double p = c.number("p", 2);
  if (find("cdist")) return c.give(emit("cdist", {x, y}, {{"p", p}}));
  Value difference = unsqueeze(x, x.rank() - 1) - unsqueeze(y, y.rank() - 2);
  c.give(emit("norm", {difference}, {{"p", p}, {"dim", ir::Literal::list(Ints{-1})}}));
}

// Those of each row from the ones after it, in order.
void pair_distances_rule(Call& c) {
  Value x = c.x();
  if (x.rank() != 2) c.fail("its operand is a matrix");
  const Dim n = x.dims()[0];
  Value i = arange(c.world(), n), later = lt(unsqueeze(i, 1), unsqueeze(i, 0));
  Value pairs = emit("nonzero", {later}, {{"count", floor_div(n * (n - 1), 2)}});
  Value left = index_select(x, select(pairs, 1, 0), 0),
        right = index_select(x, select(pairs, 1, 1), 0);
  c.give(emit("norm", {left - right},
              {{"p", c.number("p", 2)}, {"dim", ir::Literal::list(Ints{-1})}}));
}

constexpr RuleEntry linear_algebra_table[] = {
    {"inverse", matrix_rule, "inverse"},
    {"linalg_inv", matrix_rule, "inverse"},
    {"linalg_inv_ex", matrix_rule, "inverse"},
    {"det", determinant_rule},
    {"linalg_det", determinant_rule},
    {"_linalg_det", determinant_rule},
    {"logdet", log_determinant_rule},
    {"slogdet", sign_and_logarithm_rule},
    {"linalg_slogdet", sign_and_logarithm_rule},
    {"_linalg_slogdet", sign_and_logarithm_rule},
    {"linalg_cholesky", cholesky_rule},
    {"linalg_cholesky_ex", cholesky_rule},
    {"cholesky", cholesky_rule},
    {"linalg_solve_triangular", solve_triangular_rule},
    {"triangular_solve", old_solve_triangular_rule},
    {"cholesky_solve", cholesky_solve_rule},
    {"cholesky_inverse", cholesky_inverse_rule},
    {"linalg_solve", solve_rule},
    {"linalg_solve_ex", solve_rule},
    {"_linalg_solve_ex", solve_rule},
    {"linalg_matrix_power", matrix_power_rule},
    {"matrix_power", matrix_power_rule},
    {"linalg_svd", svd_rule},
    {"_linalg_svd", svd_rule},
    {"svd", svd_rule},
    {"linalg_svdvals", singular_values_rule},
    {"linalg_eigh", symmetric_eigen_rule},
    {"_linalg_eigh", symmetric_eigen_rule},
    {"linalg_eigvalsh", symmetric_eigen_rule},
    {"linalg_qr", qr_rule},
    {"linalg_lu", lu_rule},
    {"linalg_lu_factor", lu_factor_rule},
    {"linalg_lu_factor_ex", lu_factor_rule},
    {"linalg_matrix_exp", matrix_exponential_rule},
    {"matrix_exp", matrix_exponential_rule},
    {"linalg_pinv", pseudoinverse_rule},
    {"pinverse", pseudoinverse_rule},
    {"linalg_cond", condition_rule},
    {"linalg_lstsq", least_squares_rule},
    {"pdist", pair_distances_rule},
    {"_pdist_forward", pair_distances_rule},
    {"cdist", all_distances_rule},
    {"_cdist_forward", all_distances_rule},
};

}  // namespace

constinit const Rules linear_algebra_rules = linear_algebra_table;

}  // namespace gradus::pt2
