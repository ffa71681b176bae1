// Reductions over dimensions, running ones, norms.
#include <cmath>

#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

Value reduced_over(std::string_view op, const Value& x, const Ints& dims, bool keepdim,
                   LiteralList attributes = {}) {
  attributes.push_back({"dim", ir::Literal::list(dims)});
  attributes.push_back({"keepdim", keepdim});
  return emit(op, {x}, attributes);
}
Value reduced_over(Call& c, std::string_view op, const Value& x) {
  return reduced_over(op, x, dims_or_all(c, "dim", x.rank()), c.flag("keepdim", false));
}

// In the result's dtype; integers are added up as i64.
void sum_over_rule(Call& c) {
  c.give(cast(reduced_over(c, c.ours(), in_result_dtype(c)), c.result().dtype));
}

Value without_nan(const Value& x) {
  return is_floating(x.dtype()) ? where(unary("isnan", x), num(0.0), x) : x;
}
void nansum_rule(Call& c) {
  c.give(cast(reduced_over(c, "sum", without_nan(in_result_dtype(c))), c.result().dtype));
}
void nanmean_rule(Call& c) {
  Value x = in_result_dtype(c);
  Value count = cast(logical_not(unary("isnan", x)), x.dtype());
  Value total = reduced_over(c, "sum", without_nan(x));
  c.give(total / reduced_over(c, "sum", count));
}

void product_rule(Call& c) {
  Value x = in_result_dtype(c);
  LiteralList attributes;
  if (c.given("dim") && x.rank() > 0)
    attributes = {{"dim", c.dim("dim", x.rank())}, {"keepdim", c.flag("keepdim", false)}};
  c.give(cast(emit("prod", {x}, attributes), c.result().dtype));
}

// Variance

double correction_of(Call& c) {
  if (!c.given("correction")) return c.flag("unbiased", true) ? 1 : 0;
  return c.number("correction");
}

// By the operator where the correction is an integer. Else the variance without one, times
// n / (n - correction).
Value variance_of(Call& c, const Value& x, const Ints& dims, bool keepdim) {
  const double correction = correction_of(c);
  if (correction == std::floor(correction) && std::abs(correction) <= INT32_MAX)
    return reduced_over(c.ours(), x, dims, keepdim,
                        {{"correction", static_cast<int64_t>(correction)}});
  Dim n = 1;
  for (int64_t d : dims) n = n * x.dims()[static_cast<size_t>(d)];
  Value count = full(c.world(), {}, 0, DType::f64) + Value::number(n);
  Value ratio = count / binary("maximum", count - correction, num(0.0));
  if (c.ours() == "std") ratio = unary("sqrt", ratio);
  return reduced_over(c.ours(), x, dims, keepdim, {{"correction", 0}}) * cast(ratio, x.dtype());
}

void variance_rule(Call& c) {
  Value x = c.x();
  const Ints dims = dims_or_all(c, "dim", x.rank());
  const bool keepdim = c.flag("keepdim", false);
  c.give(variance_of(c, x, dims, keepdim));
  if (c.results() > 1) c.give(reduced_over("mean", x, dims, keepdim));
}

// Extrema

void extremum_rule(Call& c) { c.give(reduced_over(c, c.ours(), c.x())); }

// The place of the element in a tensor without dimensions.
Value place_of_one(Call& c) { return full(c.world(), {}, 0, DType::i64); }

// Values and places along a dimension.
void extremum_along_rule(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) return c.give(x), c.give(place_of_one(c));
  auto out = emit_all(c.world(), c.ours(), std::array{x},
                      {{"dim", c.dim("dim", -1, x.rank())}, {"keepdim", c.flag("keepdim", false)}});
  for (const Value& v : out) c.give(v);
}

void both_extrema_rule(Call& c) {
  Value x = c.x();
  Ints dims;
  if (c.given("dim") && x.rank() > 0) dims = {c.dim("dim", x.rank())};
  const bool keepdim = c.flag("keepdim", false);
  c.give(reduced_over("amin", x, dims, keepdim));
  c.give(reduced_over("amax", x, dims, keepdim));
}

void place_rule(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) return c.give(place_of_one(c));
  LiteralList attributes{{"keepdim", c.flag("keepdim", false)}};
  if (c.given("dim")) attributes.push_back({"dim", c.dim("dim", x.rank())});
  c.give(emit(c.ours(), {x}, attributes));
}

// Truth

// Any number but 0 is true, NaN too.
Value truth_of(const Value& x) { return x.dtype() == DType::boolean ? x : ne(x, num(int64_t{0})); }

void truth_rule(Call& c) {
  Value x = truth_of(c.x());
  const bool keepdim = c.flag("keepdim", false);
  // Over no dimensions it is the truth of each element, unlike sums.
  const bool none = c.op().ends_with(".dims") && c.given("dim") && c.integers("dim", {}).empty();
  const Ints dims = none ? Ints() : dims_or_all(c, "dim", x.rank());
  for (size_t i = dims.size(); i-- > 0;)
    x = emit(c.ours(), {x}, {{"dim", dims[i]}, {"keepdim", keepdim}});
  c.give(cast(x, c.result().dtype));
}

void count_nonzero_rule(Call& c) {
  Value x = cast(truth_of(c.x()), DType::i64);
  c.give(reduced_over("sum", x, dims_or_all(c, "dim", x.rank()), false));
}

// Norms

Value norm_over(const Value& x, double p, const Ints& dims, bool keepdim) {
  return reduced_over("norm", x, dims, keepdim, {{"p", p}});
}

void vector_norm_rule(Call& c) {
  Value x = in_result_dtype(c);
  const double p = c.number(c.given("ord") ? "ord" : "p", 2);
  c.give(norm_over(x, p, dims_or_all(c, "dim", x.rank()), c.flag("keepdim", false)));
}

void distance_rule(Call& c) {
  Value x = in_result_dtype(c) - in_result_dtype(c, "other");
  c.give(norm_over(x, c.number("p", 2), {}, false));
}

// The singular values of the matrices that lie along two dimensions, in a last one.
Value singular_values_along(Call& c, const Value& x, const Ints& dims) {
  Value matrices =
      emit("movedim", {x},
           {{"source", ir::Literal::list(dims)}, {"destination", ir::Literal::list(Ints{-2, -1})}});
  return emit_all(c.world(), existing(c, "svd"), std::array{matrices})[1];
}

struct MatrixNorm {
  Value x;
  Ints dims;  // rows, columns
  bool keepdim;
};

// Of sums of magnitudes along one dimension, the greatest or least along the other.
Value extreme_sum(const MatrixNorm& m, int64_t sum_dim, int64_t dim, bool greatest) {
  Value sums = sum(unary("abs", m.x), {sum_dim}, true);
  Value y = reduced_over(greatest ? "amax" : "amin", sums, {dim}, true);
  return m.keepdim ? y : reshape(y, sum(m.x, m.dims, false).dims());
}

Value of_singular_values(Call& c, const MatrixNorm& m, std::string_view reduction) {
  Value y = reduced_over(reduction, singular_values_along(c, m.x, m.dims), {-1}, false);
  return m.keepdim ? reshape(y, sum(m.x, m.dims, true).dims()) : y;
}

Value matrix_norm(Call& c, const MatrixNorm& m, double p) {
  if (std::abs(p) == 1) return extreme_sum(m, m.dims[0], m.dims[1], p > 0);
  if (std::isinf(p)) return extreme_sum(m, m.dims[1], m.dims[0], p > 0);
  if (std::abs(p) == 2) return of_singular_values(c, m, p > 0 ? "amax" : "amin");
  c.fail("there is no matrix norm of order {}", p);
}
Value matrix_norm(Call& c, const MatrixNorm& m, const std::string& order) {
  if (order == "nuc") return of_singular_values(c, m, "sum");
  if (order != "fro") c.fail("there is no matrix norm '{}'", order);
  return norm_over(m.x, 2, m.dims, m.keepdim);
}

// Two dimensions in the order in which they are given; the last ones.
Ints matrix_dims(Call& c, int rank) {
  Ints dims = c.integers("dim", {-2, -1});
  for (int64_t& d : dims) d = d < 0 ? d + rank : d;
  if (dims.size() != 2 || dims[0] == dims[1] || rank < 2) c.fail("it wants two dimensions");
  return dims;
}

bool is_text(std::string_view op) { return op.ends_with("_str") || op.ends_with("str_ord"); }

void matrix_norm_rule(Call& c) {
  Value x = in_result_dtype(c);
  MatrixNorm m{x, matrix_dims(c, x.rank()), c.flag("keepdim", false)};
  c.give(is_text(c.op()) || !c.given("ord") ? matrix_norm(c, m, c.text("ord", "fro"))
                                            : matrix_norm(c, m, c.number("ord")));
}

// Without an order the 2-norm of all that the dimensions hold; else of vectors or of matrices.
void linalg_norm_rule(Call& c) {
  const int rank = c.rank();
  const bool matrix = c.given("dim") ? c.integers("dim").size() == 2 : rank == 2;
  if (c.given("ord") && (matrix || is_text(c.op()))) return matrix_norm_rule(c);
  vector_norm_rule(c);
}

// Running reductions

void scan_rule(Call& c) {
  Value x = in_result_dtype(c);
  Value y = emit(c.ours(), {as_row(x)}, {{"dim", c.dim("dim", x.rank())}});
  c.give(cast(x.rank() == 0 ? squeeze(y, 0) : y, c.result().dtype));
}

void running_extremum_rule(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) return c.give(x), c.give(place_of_one(c));
  // What is turned has the other order. The least integer has no negative, but turned bits.
  auto turned = [&](const Value& v) {
    if (is_floating(v.dtype())) return -v;
    return unary(v.dtype() == DType::boolean ? "logical_not" : "bitwise_not", v);
  };
  const bool least = c.op() == "cummin.default";
  auto out = emit_all(c.world(), "cummax", std::array{least ? turned(x) : x},
                      {{"dim", c.dim("dim", x.rank())}});
  c.give(least ? turned(out[0]) : out[0]);
  c.give(out[1]);
}

void logsumexp_rule(Call& c) { c.give(reduced_over(c, "logsumexp", in_result_dtype(c))); }

constexpr RuleEntry reduction_table[] = {
    {"sum", sum_over_rule},
    {"mean", sum_over_rule},
    {"nansum", nansum_rule},
    {"nanmean", nanmean_rule},
    {"prod", product_rule},
    {"var", variance_rule},
    {"std", variance_rule},
    {"var_mean", variance_rule, "var"},
    {"std_mean", variance_rule, "std"},
    {"amax", extremum_rule},
    {"amin", extremum_rule},
    {"max.default", extremum_rule, "amax"},
    {"min.default", extremum_rule, "amin"},
    {"max.dim", extremum_along_rule, "max_dim"},
    {"min.dim", extremum_along_rule, "min_dim"},
    {"aminmax", both_extrema_rule},
    {"argmax", place_rule},
    {"argmin", place_rule},
    {"median.dim", extremum_along_rule, "median_dim"},
    {"any", truth_rule},
    {"all", truth_rule},
    {"_is_any_true", truth_rule, "any"},
    {"_is_all_true", truth_rule, "all"},
    {"count_nonzero", count_nonzero_rule},
    {"norm", vector_norm_rule},
    {"linalg_vector_norm", vector_norm_rule},
    {"linalg_norm", linalg_norm_rule},
    {"linalg_matrix_norm", matrix_norm_rule},
    {"dist", distance_rule},
    {"logsumexp", logsumexp_rule},
    {"special_logsumexp", logsumexp_rule},
    {"cumsum", scan_rule},
    {"cumprod", scan_rule},
    {"logcumsumexp", scan_rule},
    {"cummax", running_extremum_rule},
    {"cummin", running_extremum_rule},
};

}  // namespace

constinit const Rules reduction_rules = reduction_table;

}  // namespace gradus::pt2
