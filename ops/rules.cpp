#include "gradus/rules.h"

#include "gradus/error.h"
#include "ops/assemble.h"
#include "ops/collectives.h"
#include "ops/creation.h"
#include "ops/declared.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduction.h"
#include "ops/slicing.h"

namespace gradus::ops {

Value operator+(const Value& a, const Value& b) { return emit<Add>(a, b); }
Value operator-(const Value& a, const Value& b) { return emit<Sub>(a, b); }
Value operator*(const Value& a, const Value& b) { return emit<Mul>(a, b); }
Value operator/(const Value& a, const Value& b) { return emit<Div>(a, b); }
Value operator-(const Value& a) { return emit<Neg>(a); }
Value operator+(const Value& a, double b) { return b == 0 ? a : emit<Add>(a, num(b)); }
Value operator-(const Value& a, double b) { return b == 0 ? a : emit<Sub>(a, num(b)); }
Value operator*(const Value& a, double b) { return b == 1 ? a : emit<Mul>(a, num(b)); }
Value operator/(const Value& a, double b) { return b == 1 ? a : emit<Div>(a, num(b)); }
Value operator+(double a, const Value& b) { return emit<Add>(num(a), b); }
Value operator-(double a, const Value& b) { return emit<Sub>(num(a), b); }
Value operator*(double a, const Value& b) { return a == 1 ? b : emit<Mul>(num(a), b); }
Value operator/(double a, const Value& b) { return emit<Div>(num(a), b); }
Value operator/(const Value& a, const Dim& b) {
  return b == Dim(1) ? a : emit<Div>(a, Value::number(b));
}
Value operator*(const Value& a, const Dim& b) {
  return b == Dim(1) ? a : emit<Mul>(a, Value::number(b));
}

Value eq(const Value& a, const Value& b) { return emit<Eq>(a, b); }
Value ne(const Value& a, const Value& b) { return emit<Ne>(a, b); }
Value lt(const Value& a, const Value& b) { return emit<Lt>(a, b); }
Value le(const Value& a, const Value& b) { return emit<Le>(a, b); }
Value gt(const Value& a, const Value& b) { return emit<Gt>(a, b); }
Value ge(const Value& a, const Value& b) { return emit<Ge>(a, b); }
Value logical_and(const Value& a, const Value& b) { return emit<LogicalAnd>(a, b); }
Value logical_or(const Value& a, const Value& b) { return emit<LogicalOr>(a, b); }
Value logical_not(const Value& a) { return emit<LogicalNot>(a); }

Value where(const Value& condition, const Value& a, const Value& b) {
  return emit<Where>({condition, a, b});
}
Value keep_where(const Value& condition, const Value& x) {
  return emit<Where>({condition, x, num(0.0)});
}

Value detach(const Value& x) { return emit<Detach>(x); }
Value cast(const Value& x, DType dtype) {
  return x.dtype() == dtype ? x : emit<Cast>({x}, {.dtype = dtype});
}

Value full(World& world, const Dims& shape, double value, DType dtype) {
  return emit_all<Full>(world, {}, {.shape = shape, .value = value, .dtype = dtype})[0];
}
Value zeros_of(World& world, Type type) {
  return share_as(full(world, type.dims, 0, type.dtype), type);
}
Value zeros_to_fill(World& world, Type type) {
  return share_as(expand(full(world, {}, 0, type.dtype), type.dims), type);
}
Value zeros_like(const Value& x) { return zeros_of(*x.world, x.type); }
Value ones_like(const Value& x) { return share_as(full(*x.world, x.dims(), 1, x.dtype()), x.type); }

Value arange(World& world, const Dim& n) { return emit_all<Arange>(world, {}, {.end = n})[0]; }
Value eye(World& world, const Dim& n, DType dtype) {
  return emit_all<Eye>(world, {}, {.n = n, .dtype = dtype})[0];
}

Value sum(const Value& x, const Ints& dims, bool keepdim) {
  if (dims.empty()) return x;
  return emit<Sum>({x}, {.dim = dims, .keepdim = keepdim});
}
Value sum_all(const Value& x) { return x.rank() == 0 ? x : emit<Sum>(x); }

Value sum_to(const Value& x, const Dims& shape) {
  if (x.dims() == shape) return x;
  size_t lead = x.dims().size() - shape.size();
  Ints leading, kept;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    if (i < lead)
      leading.push_back(static_cast<int64_t>(i));
    else if (shape[i - lead] == Dim(1) && x.dims()[i] != Dim(1))
      kept.push_back(static_cast<int64_t>(i));
  }
  Value y = sum(x, kept, true);
  return sum(y, leading, false);
}

Value expand(const Value& x, const Dims& shape) {
  return x.dims() == shape ? x : emit<Expand>({x}, {.shape = shape});
}
Value reshape(const Value& x, const Dims& shape) {
  return x.dims() == shape ? x : emit<Reshape>({x}, {.shape = shape});
}
Value unsqueeze(const Value& x, int64_t dim) { return emit<Unsqueeze>({x}, {.dim = dim}); }
Value squeeze(const Value& x, int64_t dim) { return emit<Squeeze>({x}, {.dim = dim}); }
Value transpose(const Value& x, int64_t dim0, int64_t dim1) {
  return emit<Transpose>({x}, {.dim0 = dim0, .dim1 = dim1});
}
Value permute(const Value& x, const Ints& dims) { return emit<Permute>({x}, {.dims = dims}); }
Value contiguous(const Value& x) { return emit<Contiguous>({x}); }
Value select(const Value& x, int64_t dim, const Dim& index) {
  return emit<Select>({x}, {.dim = dim, .index = index});
}
Value slice(const Value& x, int64_t dim, const Dim& start, const Dim& end, int64_t step) {
  return emit<Slice>({x}, {.dim = dim, .start = start, .end = end, .step = step});
}
Value cat(std::span<const Value> xs, int64_t dim) {
  return emit_all<Cat>(*xs[0].world, xs, {.dim = dim})[0];
}
SmallVector<Value, 2> split(const Value& x, const Dims& sizes, int64_t dim) {
  return emit_all<Split>(*x.world, {&x, 1}, {.sizes = sizes, .dim = dim});
}
Value pad_zeros(const Value& x, int64_t dim, const Dim& before, const Dim& after) {
  if (before == Dim(0) && after == Dim(0)) return x;
  Dims amounts(2 * static_cast<size_t>(x.rank() - dim - 1), 0);  // the last dimension comes first
  amounts.push_back(before);
  amounts.push_back(after);
  return emit<ConstantPadNd>({x}, {.pad = amounts});
}
Value argmax(const Value& x) { return emit<ArgMax>(x); }
Value index_select(const Value& x, const Value& index, int64_t dim) {
  return emit<IndexSelect>({x, index}, {.dim = dim});
}
Value gather(const Value& x, const Value& index, int64_t dim) {
  return emit<Gather>({x, index}, {.dim = dim});
}
Value scatter_add(const Value& x, const Value& index, const Value& src, int64_t dim) {
  return emit<ScatterAdd>({x, index, src}, {.dim = dim});
}
Value given_back(VjpCall& d, int64_t dim) {
  if (!d.has_dy(0)) return {};
  Value zeros = zeros_to_fill(d.world, d.x_type());
  return scatter_add(zeros, d.y(1), d.dy(0), dim);
}
Value matmul(const Value& a, const Value& b) { return emit<Matmul>(a, b); }
Value matmul_transposed(const Value& a, const Value& b) {
  return emit<Matmul>({a, b}, {.transpose_b = true});
}
Value mm(const Value& a, const Value& b) { return emit<Mm>(a, b); }
Value bmm(const Value& a, const Value& b) { return emit<Bmm>(a, b); }
Value diagonal(const Value& x) { return emit<Diagonal>(x); }
Value swap_last(const Value& x) { return transpose(x, -2, -1); }

Value restore_dims(const Value& y, const Ints& dims, bool keepdim, int rank) {
  if (keepdim) return y;
  Value r = y;
  for (int64_t d : dims)
    if (rank > 0) r = unsqueeze(r, d);
  return r;
}

}  // namespace gradus::ops
