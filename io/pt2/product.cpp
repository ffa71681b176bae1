// Products of matrices and vectors.
#include <algorithm>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

// The operands in the dtype of the result.
Value factor(Call& c, std::string_view name) { return cast(c.x(name), c.result().dtype); }

void matrix_product(Call& c) { c.give(matmul(factor(c, "self"), factor(c, "mat2"))); }
void any_product(Call& c) { c.give(matmul(factor(c, "self"), factor(c, "other"))); }
void matrix_vector(Call& c) { c.give(matmul(factor(c, "self"), factor(c, "vec"))); }
void dot_product(Call& c) { c.give(matmul(factor(c, "self"), factor(c, "tensor"))); }

void linear(Call& c) {
  std::vector<Value> operands{factor(c, "input"), factor(c, "weight")};
  // A weight of one dimension is one output, without a dimension.
  if (operands[1].rank() == 1) {
    Value y = matmul(operands[0], operands[1]);
    return c.give(c.given("bias") ? y + factor(c, "bias") : y);
  }
  if (c.given("bias")) operands.push_back(factor(c, "bias"));
  c.give(emit_all(c.world(), "linear", operands)[0]);
}

bool is_number(const Value& v, double n) { return v.constant() && *v.constant() == n; }

// beta self + alpha product; beta = 0 leaves self unread.
Value added(Call& c, const Value& product) {
  Value alpha = c.given("alpha") ? c.x("alpha") : num(int64_t{1});
  Value beta = c.given("beta") ? c.x("beta") : num(int64_t{1});
  Value y = is_number(alpha, 1) ? product : product * alpha;
  if (!is_number(beta, 0)) {
    Value self = factor(c, "self");
    y = (is_number(beta, 1) ? self : self * beta) + y;
  }
  return cast(y, c.result().dtype);
}

LiteralList coefficients(Call& c) {
  LiteralList list;
  for (const char* name : {"beta", "alpha"})
    if (c.given(name)) list.push_back({name, as_literal(c.x(name))});
  return list;
}

void add_matrices(Call& c) {
  c.give(emit("addmm", {factor(c, "self"), factor(c, "mat1"), factor(c, "mat2")}, coefficients(c)));
}
void add_stacks(Call& c) {
  c.give(emit("baddbmm", {factor(c, "self"), factor(c, "batch1"), factor(c, "batch2")},
              coefficients(c)));
}
void add_matrix_vector(Call& c) { c.give(added(c, matmul(factor(c, "mat"), factor(c, "vec")))); }
void add_sum_of_stack(Call& c) {
  c.give(added(c, sum(bmm(factor(c, "batch1"), factor(c, "batch2")), {0}, false)));
}
Value outer_of(const Value& a, const Value& b) { return unsqueeze(a, 1) * unsqueeze(b, 0); }
void add_outer(Call& c) { c.give(added(c, outer_of(factor(c, "vec1"), factor(c, "vec2")))); }
void outer(Call& c) { c.give(outer_of(factor(c, "self"), factor(c, "vec2"))); }

void einsum(Call& c) {
  std::vector<Value> operands = c.tensors("tensors");
  for (Value& v : operands) {
    if (!v.defined()) c.fail("one of its tensors is None");
    v = cast(v, c.result().dtype);
  }
  c.give(emit_all(c.world(), "einsum", operands, {{"equation", c.text("equation", "")}})[0]);
}

// A letter for each dimension.
char letter(size_t i) {
  if (i >= 52) throw Error("it has more than 52 dimensions");
  return static_cast<char>(i < 26 ? 'a' + i : 'A' + (i - 26));
}

Value contracted(Call& c, const Value& a, const Value& b, const Ints& of_a, const Ints& of_b) {
  if (of_a.size() != of_b.size())
    c.fail("it pairs {} dimensions with {}", of_a.size(), of_b.size());
  if (!of_a.empty() && (a.rank() == 0 || b.rank() == 0))
    c.fail("a tensor without dimensions has none to pair");
  std::string left, right, result;
  for (int d = 0; d < a.rank(); ++d) {
    left += letter(static_cast<size_t>(d));
    if (std::ranges::find(of_a, d) == of_a.end()) result += left.back();
  }
  size_t next = left.size();
  for (int d = 0; d < b.rank(); ++d) {
    auto at = std::ranges::find(of_b, d);
    if (at != of_b.end()) {
      right += left.at(static_cast<size_t>(of_a[static_cast<size_t>(at - of_b.begin())]));
    } else {
      right += letter(next++);
      result += right.back();
    }
  }
  return emit("einsum", {a, b}, {{"equation", fmt::format("{},{}->{}", left, right, result)}});
}

void tensordot(Call& c) {
  Value a = factor(c, "self"), b = factor(c, "other");
  c.give(
      contracted(c, a, b, dims_of(c, "dims_self", a.rank()), dims_of(c, "dims_other", b.rank())));
}

void inner(Call& c) {
  Value a = factor(c, "self"), b = factor(c, "other");
  if (a.rank() == 0 || b.rank() == 0) return c.give(a * b);
  c.give(contracted(c, a, b, {a.rank() - 1}, {b.rank() - 1}));
}

void vector_dot(Call& c) {
  Value a = factor(c, "x"), b = factor(c, "y");
  Value products = a * b;
  c.give(sum(products, {c.dim("dim", -1, products.rank())}, false));
}

// y[i] = a[i + 1] b[i + 2] - a[i + 2] b[i + 1]
void cross(Call& c) {
  Value a = factor(c, "self"), b = factor(c, "other");
  const Dims sizes = c.result().sizes;
  a = expand(a, sizes);
  b = expand(b, sizes);
  int64_t dim = -1;
  if (c.given("dim") || c.op().starts_with("linalg")) {
    dim = c.dim("dim", -1, a.rank());
  } else {
    for (size_t d = sizes.size(); d-- > 0;)
      if (sizes[d] == Dim(3)) dim = static_cast<int64_t>(d);
  }
  if (dim < 0 || !(size_at(sizes, dim) == Dim(3))) c.fail("no dimension has the size 3");
  auto rolled = [dim](const Value& x, int64_t by) {
    return emit("roll", {x},
                {{"shifts", Literal::list(Ints{by})}, {"dims", Literal::list(Ints{dim})}});
  };
  Value first = rolled(a, -1) * rolled(b, -2), second = rolled(a, -2) * rolled(b, -1);
  c.give(first - second);
}

// Blocks b, times each element of a.
void kron(Call& c) {
  Value a = factor(c, "self"), b = factor(c, "other");
  const auto rank = static_cast<size_t>(std::max(a.rank(), b.rank()));
  Dims of_a, of_b;
  for (size_t d = 0; d < rank; ++d) {
    auto size = [&](const Value& v) {
      const size_t lead = rank - v.dims().size();
      return d < lead ? Dim(1) : v.dims()[d - lead];
    };
    for (const Dim& n : {size(a), Dim(1)}) of_a.push_back(n);
    for (const Dim& n : {Dim(1), size(b)}) of_b.push_back(n);
  }
  c.give(reshape(reshape(a, of_a) * reshape(b, of_b), c.result().sizes));
}

void trace(Call& c) { c.give(cast(emit("trace", {c.x()}), c.result().dtype)); }

void bilinear(Call& c) {
  std::vector<Value> operands{factor(c, "input1"), factor(c, "input2"), factor(c, "weight")};
  if (c.given("bias")) operands.push_back(factor(c, "bias"));
  c.give(emit_all(c.world(), "bilinear", operands)[0]);
}

// From left to right.
void chain(Call& c, std::string_view name) {
  std::vector<Value> factors = c.tensors(name);
  if (factors.empty()) c.fail("it has no matrices");
  for (const Value& f : factors)
    if (!f.defined()) c.fail("one of its tensors is None");
  Value y = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) y = matmul(y, factors[i]);
  c.give(y);
}
void chain_product(Call& c) { chain(c, c.given("matrices") ? "matrices" : "tensors"); }

constexpr RuleEntry product_table[] = {
    {"mm", matrix_product},
    {"bmm", matrix_product},
    {"matmul", any_product},
    {"linalg_matmul", any_product},
    {"__matmul__", any_product},
    {"mv", matrix_vector},
    {"dot", dot_product},
    {"vdot", any_product},
    {"linear", linear},
    {"addmm", add_matrices},
    {"baddbmm", add_stacks},
    {"addmv", add_matrix_vector},
    {"addbmm", add_sum_of_stack},
    {"addr", add_outer},
    {"outer", outer},
    {"ger", outer},
    {"einsum", einsum},
    {"tensordot", tensordot},
    {"inner", inner},
    {"linalg_vecdot", vector_dot},
    {"linalg_cross", cross},
    {"cross", cross},
    {"kron", kron},
    {"trace", trace},
    {"bilinear", bilinear},
    {"chain_matmul", chain_product},
    {"linalg_multi_dot", chain_product},
};

}  // namespace

constinit const Rules product_rules = product_table;

}  // namespace gradus::pt2
