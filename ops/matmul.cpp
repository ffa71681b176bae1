#include "ops/matmul.h"

#include <algorithm>

#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/einsum.h"
#include "ops/families.h"

namespace gradus::ops {

namespace {

// The sizes of a product as the type rule and the derivative see them.
struct Sides {
  Dims batch;  // broadcast
  Dim m, n, k;
};

Dims batch_of(const Dims& d) { return d.size() > 2 ? Dims(d.begin(), d.end() - 2) : Dims(); }

Dims broadcast_batch(const InferCall& call, const Dims& a, const Dims& b) {
  Dims batch(std::max(a.size(), b.size()), Dim(1));
  for (const Dims* side : {&a, &b}) {
    size_t lead = batch.size() - side->size();
    for (size_t i = 0; i < side->size(); ++i) {
      Dim& common = batch[lead + i];
      const Dim& own = (*side)[i];
      if (own == Dim(1) || own == common) continue;
      if (common != Dim(1))
        call.require_equal(common, own, fmt::format("batch dimension {} of 'a' and 'b'", lead + i));
      if (common == Dim(1) || own.is_constant()) common = own;
    }
  }
  return batch;
}

// Where b is one matrix for all of a batch whose rows follow one another in `a`, the batch is just
// more rows.
void join_rows(work::Gemm& g) {
  while (!g.batch.empty() && g.batch.back().b_stride == 0 &&
         (g.m == 1 || g.batch.back().a_stride == g.m * g.a_row)) {
    if (g.m == 1) g.a_row = g.batch.back().a_stride;
    g.m *= g.batch.back().size;
    g.batch.pop_back();
  }
}

// 2-d sides of one that may have one dimension.
Value as_row(const Value& a) { return a.rank() == 1 ? unsqueeze(a, 0) : a; }
Value as_column(const Value& b) { return b.rank() == 1 ? unsqueeze(b, 1) : b; }

// All dimensions but the last as one: [B…, n, m] -> [B n, m].
Value as_matrix(const Value& x) {
  if (x.rank() == 2) return x;
  Dims shape{numel(std::span(x.dims()).first(x.dims().size() - 1)), x.dims().back()};
  return reshape(x, shape);
}

}  // namespace

void Matmul::infer(InferCall& call, const Attr& attr) {
  const Type &a = call.tensor(0), &b = call.tensor(1);
  if (a.rank() == 0 || b.rank() == 0)
    call.fail(
        "'a' is {} and 'b' is {}; both must have at least one dimension (multiply 0-d "
        "tensors with mul)",
        to_string(a), to_string(b));
  if (a.dtype != b.dtype)
    call.fail("'a' is {} and 'b' is {}; cast one of them, a product takes one dtype", to_string(a),
              to_string(b));
  if (a.dtype == DType::boolean)
    call.fail("'a' is {}; there is no product of bool matrices, cast them to a number",
              to_string(a));
  if (a.device != b.device)
    call.fail("'a' lies on {}, 'b' on {}; move one of them", to_string(a.device),
              to_string(b.device));
  const bool transposed = attr.transpose_b;
  if (transposed && b.rank() == 1)
    call.fail("'b' is {}; with transpose_b it must have at least two dimensions", to_string(b));
  const size_t inner = b.dims.size() - (b.rank() == 1 || transposed ? 1 : 2);
  call.require_equal(a.dims.back(), b.dims[inner],
                     fmt::format("the inner sizes of 'a' {} and 'b' {}, a's last and b's {}",
                                 to_string(a.dims), to_string(b.dims),
                                 b.rank() == 1 ? "only one"
                                 : transposed  ? "last"
                                               : "last but one"));
  Dims shape = broadcast_batch(call, batch_of(a.dims), batch_of(b.dims));
  if (a.rank() > 1) shape.push_back(a.dims[a.dims.size() - 2]);
  if (b.rank() > 1) shape.push_back(b.dims[b.dims.size() - (transposed ? 2 : 1)]);
  call.out.emplace_back(a.dtype, std::move(shape), a.device);
}

void Matmul::bind(BindCall& call, const Attr& attr) {
  const Layout &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const size_t ra = a.shape.size(), rb = b.shape.size();
  work::Gemm g;
  g.dtype = a.dtype;
  g.m = ra == 1 ? 1 : a.shape[ra - 2];
  g.k = a.shape[ra - 1];
  // Where b's rows and columns are among its dimensions.
  const bool transposed = attr.transpose_b;
  const size_t row = rb - (rb == 1 || transposed ? 1 : 2), column = rb - (transposed ? 2 : 1);
  g.n = rb == 1 ? 1 : b.shape[column];
  g.a_row = ra == 1 ? 0 : a.strides[ra - 2];
  g.a_column = a.strides[ra - 1];
  g.b_row = b.strides[row];
  g.b_column = rb == 1 ? 0 : b.strides[column];
  const size_t batch = y.shape.size() - (ra > 1) - (rb > 1);
  auto stride = [&](const Layout& side, size_t d) -> int64_t {
    size_t own = side.shape.size() > 2 ? side.shape.size() - 2 : 0;
    if (d + own < batch) return 0;
    size_t i = d + own - batch;
    return side.shape[i] == 1 ? 0 : side.strides[i];
  };
  for (size_t d = 0; d < batch; ++d) {
    work::Gemm::Batch next{y.shape[d], stride(a, d), stride(b, d)};
    if (next.size == 1) continue;
    if (!g.batch.empty() && g.batch.back().a_stride == next.a_stride * next.size &&
        g.batch.back().b_stride == next.b_stride * next.size) {
      next.size *= g.batch.back().size;
      g.batch.pop_back();
    }
    g.batch.push_back(next);
  }
  join_rows(g);
  call.set_work(work::Product{std::move(g)});
}

void Matmul::vjp(VjpCall& d, const Attr& attr) {
  const bool transposed = attr.transpose_b;
  const bool row = d.x_type(0).rank() == 1, column = d.x_type(1).rank() == 1;
  auto cotangent = [&] {  // with the dimensions that 1-d operands dropped
    Value dy = d.dy();
    if (column) dy = unsqueeze(dy, -1);
    if (row) dy = unsqueeze(dy, -2);
    return dy;
  };
  d.give(0, [&] {
    Value b = as_column(d.x(1));
    Value da = matmul(cotangent(), transposed ? b : swap_last(b));
    return row ? squeeze(da, -2) : da;
  });
  d.give(1, [&] {
    Value a = as_row(d.x(0)), dy = cotangent();
    // One matrix b for a whole batch: its gradient is one product over batch and rows together.
    if (d.x_type(1).rank() <= 2) {
      a = as_matrix(a);
      dy = as_matrix(dy);
    }
    Value db = transposed ? matmul(swap_last(dy), a) : matmul(swap_last(a), dy);
    return column ? squeeze(db, -1) : db;
  });
}
// Operands of one dimension become rows and columns, then batches are aligned.
BatchedResults Matmul::batch(const BatchedCall& c) {
  const int most = std::max({c.own_rank(0), c.own_rank(1), 2});
  SmallVector<Value, 2> sides;
  for (size_t i = 0; i < 2; ++i) {
    Value x = c.operands[i];
    if (c.own_rank(i) == 1) x = unsqueeze(x, i == 0 ? -2 : -1);
    if (c.batched[i] && x.rank() - 1 < most) {
      Dims dims{c.size};
      for (int d = x.rank() - 1; d < most; ++d) dims.push_back(1);
      dims.append(x.dims().begin() + 1, x.dims().end());
      x = reshape(x, dims);
    }
    sides.push_back(x);
  }
  Value y = c.world.emit(c.op, c.attributes, sides)[0];
  return {reshape(y, c.with_batch(c.results[0].dims))};
}

namespace {

void want_rank(const ComposeCall& c, size_t operand, int rank) {
  const Value& v = c.x(operand);
  if (!v.is_tensor() || v.rank() != rank)
    c.fail("'{}' must have {} dimension{}, {}; matmul takes any number of them",
           c.op.operand(operand).name, rank, rank == 1 ? "" : "s",
           v.is_tensor() ? "its shape is " + to_string(v.dims()) : "it is a number");
}
void want_tensor(const ComposeCall& c, size_t operand) {
  if (!c.x(operand).is_tensor())
    c.fail("'{}' must be a tensor, not a number", c.op.operand(operand).name);
}

Value stack_product(const ComposeCall& c, size_t first) {
  want_rank(c, first, 3);
  want_rank(c, first + 1, 3);
  const Dim &a = c.x(first).dims()[0], &b = c.x(first + 1).dims()[0];
  bool differ = a.is_constant() && b.is_constant() ? a != b : (a == Dim(1)) != (b == Dim(1));
  if (differ)
    c.fail("'a' is a stack of {} matrices, 'b' of {}; matmul broadcasts them", a.to_string(),
           b.to_string());
  return matmul(c.x(first), c.x(first + 1));
}

// n * x in x's dtype.
Value scaled(const ComposeCall& c, std::string_view attribute, const NumberLiteral& n,
             const Value& x) {
  if (n.is_one()) return x;
  ir::Number number = n;
  if (!x.type.is_floating() && n.is_floating()) {
    if (static_cast<double>(n.as_integer()) != n.as_double())
      c.fail("'{}' is {}, which {} cannot hold; write an integer", attribute, n.as_double(),
             name_of(x.dtype()));
    number = ir::Number::of(n.as_integer());
  }
  return x * Value{nullptr, number, {}, {}};
}

// beta c + alpha product, c broadcast to the product's shape.
void add_scaled(ComposeCall& call, const Value& product) {
  const auto& a = call.attr<AddmmAttr>();
  const Value& c = call.x(0);
  want_tensor(call, 0);
  bool fits = c.rank() <= product.rank() && c.dtype() == product.dtype();
  for (size_t i = 0, lead = product.dims().size() - c.dims().size(); fits && i < c.dims().size();
       ++i) {
    const Dim &own = c.dims()[i], &whole = product.dims()[lead + i];
    fits = own == Dim(1) || own == whole ||
           (whole != Dim(1) && !(own.is_constant() && whole.is_constant()));
  }
  if (!fits)
    call.fail("'c' is {}, which does not broadcast to the product, {}", to_string(c.type),
              to_string(product.type));
  Value y = scaled(call, "alpha", a.alpha, product);
  if (a.beta.as_double() == 0) return call.give(y);
  Value added = scaled(call, "beta", a.beta, c);
  call.give(added + y);
}

}  // namespace

void Mm::compose(ComposeCall& c) {
  want_rank(c, 0, 2);
  want_rank(c, 1, 2);
  c.give(matmul(c.x(0), c.x(1)));
}

void Bmm::compose(ComposeCall& c) { c.give(stack_product(c, 0)); }

void Mv::compose(ComposeCall& c) {
  want_rank(c, 0, 2);
  want_rank(c, 1, 1);
  c.give(matmul(c.x(0), c.x(1)));
}

void Dot::compose(ComposeCall& c) {
  want_rank(c, 0, 1);
  want_rank(c, 1, 1);
  c.give(matmul(c.x(0), c.x(1)));
}

void Outer::compose(ComposeCall& c) {
  want_rank(c, 0, 1);
  want_rank(c, 1, 1);
  Value column = unsqueeze(c.x(0), 1), row = unsqueeze(c.x(1), 0);
  c.give(column * row);
}

void Addmm::compose(ComposeCall& c) {
  want_rank(c, 1, 2);
  want_rank(c, 2, 2);
  add_scaled(c, matmul(c.x(1), c.x(2)));
}

void Baddbmm::compose(ComposeCall& c) { add_scaled(c, stack_product(c, 1)); }

void Linear::compose(ComposeCall& c) {
  want_tensor(c, 0);
  want_tensor(c, 1);
  const Value& w = c.x(1);
  if (w.rank() != 1 && w.rank() != 2)
    c.fail("'w' is {}; it must be [out, in], or [in] for one output", to_string(w.type));
  Value y = w.rank() == 1 ? matmul(c.x(0), w) : matmul_transposed(c.x(0), w);
  if (!c.given(2)) return c.give(y);
  want_tensor(c, 2);
  const Value& b = c.x(2);
  if (b.rank() > std::min(w.rank() - 1, 1) || b.dtype() != y.dtype())
    c.fail("'b' is {}; it must hold one number of {} per output of 'w', {}", to_string(b.type),
           name_of(y.dtype()), to_string(w.type));
  c.give(y + b);
}

void Bilinear::compose(ComposeCall& c) {
  want_tensor(c, 0);
  want_tensor(c, 1);
  want_rank(c, 2, 3);
  const Value &x1 = c.x(0), &x2 = c.x(1), &w = c.x(2);
  if (x1.rank() != x2.rank() || x1.rank() == 0)
    c.fail("'x1' is {} and 'x2' is {}; they must have the same dimensions but for the last one",
           to_string(x1.type), to_string(x2.type));
  const Dim &out = w.dims()[0], &in1 = w.dims()[1], &in2 = w.dims()[2];
  // First over i for all o and j at once, then over j.
  Value w1 = reshape(permute(w, {1, 0, 2}), {in1, out * in2});
  Dims partial(x1.dims().begin(), x1.dims().end() - 1);
  partial.push_back(out);
  partial.push_back(in2);
  Value t = reshape(matmul(x1, w1), partial);
  Value y = squeeze(matmul(t, unsqueeze(x2, -1)), -1);
  c.give(c.given(3) ? y + c.x(3) : y);
}

void Trace::compose(ComposeCall& c) {
  want_rank(c, 0, 2);
  c.give(sum_all(diagonal(c.x(0))));
}

Family matmul_family() {
  return fold<decltype(std::tuple_cat(MatmulOperators(), EinsumOperators()))>();
}

}  // namespace gradus::ops
