#include "io/pt2/factorizations.h"

#include <cmath>

#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

Value factored(Call& c) { return c.x(c.given("A") ? "A" : "self"); }

SmallVector<Value, 2> results_of(Call& c, std::string_view op, const LiteralList& attributes = {}) {
  return emit_all(c.world(), existing(c, op), std::array{factored(c)}, attributes);
}

bool is_square(const Value& x) {
  const Dims& d = x.dims();
  return d.size() >= 2 && d[d.size() - 2] == d.back();
}

Value singular_values(Call& c) { return results_of(c, "svd")[1]; }

}  // namespace

void singular_values_rule(Call& c) { c.give(singular_values(c)); }

// U, S and V^H, or V in the old operator. Signs of vectors are arbitrary, and so is the basis of
// what the full form adds: ATen has no derivative of it, and here it is that of functions that are
// the same for any basis.
void svd_rule(Call& c) {
  const bool old = c.op().starts_with("svd");
  const bool reduced =
      old ? c.flag("some", true) : !c.flag("full_matrices", c.op().starts_with("linalg_svd"));
  const bool vectors = c.flag("compute_uv", true);
  auto out = results_of(c, "svd", {{"full", vectors && !reduced}});
  if (!vectors) return c.give_nothing(), c.give(out[1]), c.give_nothing();
  c.give(out[0]), c.give(out[1]);
  c.give(old ? swap_last(out[2]) : out[2]);
}

void symmetric_eigen_rule(Call& c) {
  auto out = results_of(c, "eigh", {{"uplo", c.text("UPLO", "L")}});
  c.give(out[0]);
  if (c.results() == 1) return;
  if (c.flag("compute_v", true))
    c.give(out[1]);
  else
    c.give_nothing();
}

void qr_rule(Call& c) {
  const std::string mode = c.text("mode", "reduced");
  auto out = results_of(c, "qr", {{"full", mode == "complete"}});
  if (mode == "r")
    c.give_nothing();
  else
    c.give(out[0]);
  c.give(out[1]);
}

void lu_rule(Call& c) {
  if (!c.flag("pivot", true)) c.fail("a factorisation without pivoting is not supported");
  for (const Value& v : results_of(c, "lu")) c.give(v);
}

void lu_factor_rule(Call& c) {
  if (!c.flag("pivot", true)) c.fail("a factorisation without pivoting is not supported");
  auto out = results_of(c, "lu_factor");
  c.give(out[0]), c.give(out[1]);
  if (c.results() > 2) c.give(full(c.world(), c.result(2).sizes, 0, c.result(2).dtype));
}

void matrix_exponential_rule(Call& c) { c.give(unary(existing(c, "matrix_exp"), factored(c))); }

// Of a Hermitian matrix the lower triangle alone is read; the derivative is that of any matrix.
Value pseudoinverse_operand(Call& c) {
  Value x = factored(c);
  if (!c.flag("hermitian", false)) return x;
  need_dims(x, 2, "its matrix");
  Value below = emit("tril", {x}, {{"diagonal", -1}});
  Value whole = emit("tril", {x}, {}) + swap_last(below);
  Value passed = where(emit("isfinite", {x}), x - detach(x), num(0.0));  // 0
  return detach(whole) + passed;
}

void pseudoinverse_rule(Call& c) {
  if (c.is_tensor("rcond") || c.is_tensor("rtol") || c.is_tensor("atol"))
    c.fail("a tolerance that is a tensor is not supported");
  LiteralList attributes;
  if (c.given("atol")) attributes.push_back({"atol", c.number("atol")});
  const char* relative = c.given("rcond") ? "rcond" : "rtol";
  if (c.given(relative)) attributes.push_back({"rtol", c.number(relative)});
  c.give(emit("pinv", {pseudoinverse_operand(c)}, attributes));
}

// The greatest singular value over the least, or the other way round for -2.
void condition_rule(Call& c) {
  const double p = c.op().ends_with("p_str") ? NAN : c.number("p", 2);
  if (std::abs(p) != 2) c.fail("only the orders 2 and -2 are supported");
  Value s = singular_values(c);
  const LiteralList last{{"dim", ir::Literal::list(Ints{-1})}};
  Value greatest = emit("amax", {s}, last), least = emit("amin", {s}, last);
  c.give(p > 0 ? greatest / least : least / greatest);
}

// Of a matrix of full rank that has at least as many rows as columns: by q r.
void least_squares_rule(Call& c) {
  Value b = c.x("b");
  for (size_t i = 1; i < c.results(); ++i)
    if (c.wants(i)) c.fail("only its solution is supported");
  auto out = results_of(c, "qr");
  if (b.rank() != out[0].rank() || !is_square(out[1]))
    c.fail("only matrices are supported, of at least as many rows as columns");
  c.give(emit("triangular_solve", {out[1], matmul(swap_last(out[0]), b)}, {{"upper", true}}));
  for (size_t i = 1; i < c.results(); ++i) c.give_nothing();
}

}  // namespace gradus::pt2
