#include "ops/matmul.h"

#include <algorithm>

#include "ops/families.h"
#include "ops/gemm.h"
#include "ops/rules.h"

namespace gradus::ops {

namespace {

// The sizes of a product as the type rule and the derivative see them.
struct Sides {
  Dims batch;  // broadcast
  Dim m, n, k;
};

Dims batch_of(const Dims& d) {
  return d.size() > 2 ? Dims(d.begin(), d.end() - 2) : Dims();
}

Dims broadcast_batch(const InferCall& call, const Dims& a, const Dims& b) {
  Dims batch(std::max(a.size(), b.size()), Dim(1));
  for (const Dims* side : {&a, &b}) {
    size_t lead = batch.size() - side->size();
    for (size_t i = 0; i < side->size(); ++i) {
      Dim &common = batch[lead + i];
      const Dim& own = (*side)[i];
      if (own == Dim(1) || own == common) continue;
      if (common != Dim(1))
        call.require_equal(common, own, fmt::format("batch dimension {} of 'a' and 'b'", lead + i));
      if (common == Dim(1) || own.is_constant()) common = own;
    }
  }
  return batch;
}

void run_gemm(const void* parameters, std::byte* const* args, KernelScope& scope) {
  gemm(*static_cast<const Gemm*>(parameters), args[0], args[1], args[2], scope.scratch,
       scope.workers);
}

// Where b is one matrix for all of a batch whose rows follow one another in `a`, the batch is just
// more rows.
void join_rows(Gemm& g) {
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

void Matmul::infer(InferCall& call) {
  const Type &a = call.tensor(0), &b = call.tensor(1);
  if (a.rank() == 0 || b.rank() == 0)
    call.fail("'a' is {} and 'b' is {}; both must have at least one dimension (multiply 0-d "
              "tensors with mul)",
              to_string(a), to_string(b));
  if (a.dtype != b.dtype)
    call.fail("'a' is {} and 'b' is {}; cast one of them, a product wants one dtype", to_string(a),
              to_string(b));
  if (a.dtype == DType::boolean)
    call.fail("'a' is {}; there is no product of bool matrices, cast them to a number",
              to_string(a));
  if (a.device != b.device)
    call.fail("'a' lies on {}, 'b' on {}; move one of them", to_string(a.device),
              to_string(b.device));
  Dim ka = a.dims.back(), kb = b.dims[b.dims.size() - (b.rank() == 1 ? 1 : 2)];
  call.require_equal(ka, kb,
                     fmt::format("the inner sizes of 'a' {} and 'b' {}, a's last and b's {}",
                                 to_string(a.dims), to_string(b.dims),
                                 b.rank() == 1 ? "only one" : "last but one"));
  Dims shape = broadcast_batch(call, batch_of(a.dims), batch_of(b.dims));
  if (a.rank() > 1) shape.push_back(a.dims[a.dims.size() - 2]);
  if (b.rank() > 1) shape.push_back(b.dims.back());
  call.out.emplace_back(a.dtype, std::move(shape), a.device);
}

void Matmul::bind(BindCall& call) {
  const Layout &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const size_t ra = a.shape.size(), rb = b.shape.size();
  Gemm g;
  g.dtype = a.dtype;
  g.m = ra == 1 ? 1 : a.shape[ra - 2];
  g.k = a.shape[ra - 1];
  g.n = rb == 1 ? 1 : b.shape[rb - 1];
  g.a_row = ra == 1 ? 0 : a.strides[ra - 2];
  g.a_column = a.strides[ra - 1];
  g.b_row = b.strides[rb == 1 ? 0 : rb - 2];
  g.b_column = rb == 1 ? 0 : b.strides[rb - 1];
  const size_t batch = y.shape.size() - (ra > 1) - (rb > 1);
  auto stride = [&](const Layout& side, size_t d) -> int64_t {
    size_t own = side.shape.size() > 2 ? side.shape.size() - 2 : 0;
    if (d + own < batch) return 0;
    size_t i = d + own - batch;
    return side.shape[i] == 1 ? 0 : side.strides[i];
  };
  for (size_t d = 0; d < batch; ++d) {
    Gemm::Batch next{y.shape[d], stride(a, d), stride(b, d)};
    if (next.size == 1) continue;
    if (!g.batch.empty() && g.batch.back().a_stride == next.a_stride * next.size &&
        g.batch.back().b_stride == next.b_stride * next.size) {
      next.size *= g.batch.back().size;
      g.batch.pop_back();
    }
    g.batch.push_back(next);
  }
  join_rows(g);
  size_t scratch = gemm_scratch_bytes(g);
  call.set_kernel(run_gemm, std::move(g), scratch);
}

void Matmul::vjp(VjpCall& d) {
  const bool row = d.x_type(0).rank() == 1, column = d.x_type(1).rank() == 1;
  auto cotangent = [&] {  // with the dimensions that 1-d operands dropped
    Value dy = d.dy();
    if (column) dy = unsqueeze(dy, -1);
    if (row) dy = unsqueeze(dy, -2);
    return dy;
  };
  d.give(0, [&] {
    Value b = as_column(d.x(1));
    Value da = matmul(cotangent(), swap_last(b));
    return row ? squeeze(da, -2) : da;
  });
  d.give(1, [&] {
    Value a = as_row(d.x(0)), dy = cotangent();
    // One matrix b for a whole batch: its gradient is one product over batch and rows together.
    if (d.x_type(1).rank() <= 2) {
      a = as_matrix(a);
      dy = as_matrix(dy);
    }
    Value db = matmul(swap_last(a), dy);
    return column ? squeeze(db, -1) : db;
  });
}

namespace {

void want_rank(const ComposeCall& c, int rank) {
  for (size_t i = 0; i < 2; ++i)
    if (c.x(i).rank() != rank || !c.x(i).is_tensor())
      c.fail("'{}' must have {} dimensions, its shape is {}; matmul takes any", i ? "b" : "a", rank,
             to_string(c.x(i).dims()));
}

}  // namespace

void Mm::compose(ComposeCall& c) {
  want_rank(c, 2);
  c.give(matmul(c.x(0), c.x(1)));
}

void Bmm::compose(ComposeCall& c) {
  want_rank(c, 3);
  const Dim &a = c.x(0).dims()[0], &b = c.x(1).dims()[0];
  bool differ = a.is_constant() && b.is_constant() ? a != b : (a == Dim(1)) != (b == Dim(1));
  if (differ)
    c.fail("'a' is a stack of {} matrices, 'b' of {}; matmul broadcasts them", a.to_string(),
           b.to_string());
  c.give(matmul(c.x(0), c.x(1)));
}

Family matmul_family() { return fold<MatmulOperators>(); }

}  // namespace gradus::ops
