#include "ops/rules.h"

#include <algorithm>

#include "base/error.h"

namespace gradus::ops {

Value operator+(const Value& a, const Value& b) { return emit("add", {a, b}); }
Value operator-(const Value& a, const Value& b) { return emit("sub", {a, b}); }
Value operator*(const Value& a, const Value& b) { return emit("mul", {a, b}); }
Value operator/(const Value& a, const Value& b) { return emit("div", {a, b}); }
Value operator-(const Value& a) { return emit("neg", {a}); }
Value operator+(const Value& a, double b) { return b == 0 ? a : emit("add", {a, num(b)}); }
Value operator-(const Value& a, double b) { return b == 0 ? a : emit("sub", {a, num(b)}); }
Value operator*(const Value& a, double b) { return b == 1 ? a : emit("mul", {a, num(b)}); }
Value operator/(const Value& a, double b) { return b == 1 ? a : emit("div", {a, num(b)}); }
Value operator+(double a, const Value& b) { return emit("add", {num(a), b}); }
Value operator-(double a, const Value& b) { return emit("sub", {num(a), b}); }
Value operator*(double a, const Value& b) { return a == 1 ? b : emit("mul", {num(a), b}); }
Value operator/(double a, const Value& b) { return emit("div", {num(a), b}); }
Value operator/(const Value& a, const Dim& b) {
  return b == Dim(1) ? a : emit("div", {a, Value::number(b)});
}
Value operator*(const Value& a, const Dim& b) {
  return b == Dim(1) ? a : emit("mul", {a, Value::number(b)});
}

Value eq(const Value& a, const Value& b) { return emit("eq", {a, b}); }
Value ne(const Value& a, const Value& b) { return emit("ne", {a, b}); }
Value lt(const Value& a, const Value& b) { return emit("lt", {a, b}); }
Value le(const Value& a, const Value& b) { return emit("le", {a, b}); }
Value gt(const Value& a, const Value& b) { return emit("gt", {a, b}); }
Value ge(const Value& a, const Value& b) { return emit("ge", {a, b}); }
Value logical_and(const Value& a, const Value& b) { return emit("logical_and", {a, b}); }
Value logical_or(const Value& a, const Value& b) { return emit("logical_or", {a, b}); }
Value logical_not(const Value& a) { return emit("logical_not", {a}); }

Value unary(std::string_view op, const Value& x) { return emit(op, {x}); }
Value binary(std::string_view op, const Value& a, const Value& b) { return emit(op, {a, b}); }
Value where(const Value& condition, const Value& a, const Value& b) {
  return emit("where", {condition, a, b});
}
Value keep_where(const Value& condition, const Value& x) {
  return emit("where", {condition, x, num(0.0)});
}

Value cast(const Value& x, DType dtype) {
  return x.dtype() == dtype ? x : emit("cast", {x}, {{"dtype", dtype, {}}});
}

Value full(World& world, const Dims& shape, double value, DType dtype) {
  return emit_all(
      world, "full", {},
      {{"shape", Literal::list(shape), {}}, {"value", value, {}}, {"dtype", dtype, {}}})[0];
}
Value zeros_of(World& world, const Type& type) { return full(world, type.dims, 0, type.dtype); }
Value zeros_to_fill(World& world, const Type& type) {
  return expand(full(world, {}, 0, type.dtype), type.dims);
}
Value zeros_like(const Value& x) { return full(*x.world, x.dims(), 0, x.dtype()); }
Value ones_like(const Value& x) { return full(*x.world, x.dims(), 1, x.dtype()); }

Value sum(const Value& x, const Ints& dims, bool keepdim) {
  if (dims.empty()) return x;
  return emit("sum", {x}, {{"dim", Literal::list(dims), {}}, {"keepdim", keepdim, {}}});
}
Value sum_all(const Value& x) { return x.rank() == 0 ? x : emit("sum", {x}); }

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
  return x.dims() == shape ? x : emit("expand", {x}, {{"shape", Literal::list(shape), {}}});
}
Value reshape(const Value& x, const Dims& shape) {
  return x.dims() == shape ? x : emit("reshape", {x}, {{"shape", Literal::list(shape), {}}});
}
Value unsqueeze(const Value& x, int64_t dim) { return emit("unsqueeze", {x}, {{"dim", dim, {}}}); }
Value squeeze(const Value& x, int64_t dim) { return emit("squeeze", {x}, {{"dim", dim, {}}}); }
Value transpose(const Value& x, int64_t dim0, int64_t dim1) {
  return emit("transpose", {x}, {{"dim0", dim0, {}}, {"dim1", dim1, {}}});
}
Value permute(const Value& x, const Ints& dims) {
  return emit("permute", {x}, {{"dims", Literal::list(dims), {}}});
}
Value slice(const Value& x, int64_t dim, const Dim& start, const Dim& end, int64_t step) {
  return emit("slice", {x},
              {{"dim", dim, {}}, {"start", start, {}}, {"end", end, {}}, {"step", step, {}}});
}
Value cat(std::span<const Value> xs, int64_t dim) {
  return emit_all(*xs[0].world, "cat", xs, {{"dim", dim, {}}})[0];
}
Value pad_zeros(const Value& x, int64_t dim, const Dim& before, const Dim& after) {
  if (before == Dim(0) && after == Dim(0)) return x;
  if (dim < 0) dim += x.rank();
  Dims amounts(2 * static_cast<size_t>(x.rank() - dim - 1), 0);  // the last dimension comes first
  amounts.push_back(before);
  amounts.push_back(after);
  return emit("constant_pad_nd", {x}, {{"pad", Literal::list(amounts), {}}});
}
Value matmul(const Value& a, const Value& b) { return emit("matmul", {a, b}); }
Value matmul_transposed(const Value& a, const Value& b) {
  return emit("matmul", {a, b}, {{"transpose_b", true, {}}});
}
Value mm(const Value& a, const Value& b) { return emit("mm", {a, b}); }
Value bmm(const Value& a, const Value& b) { return emit("bmm", {a, b}); }
Value swap_last(const Value& x) { return transpose(x, -2, -1); }

Value restore_dims(const Value& y, const Ints& dims, bool keepdim, int rank) {
  if (keepdim) return y;
  Value r = y;
  for (int64_t d : normalised_dims(dims, rank))
    if (rank > 0) r = unsqueeze(r, d);
  return r;
}

Ints normalised_dims(const std::optional<Ints>& dims, int rank) {
  Ints out;
  if (!dims) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  for (int64_t d : *dims) out.push_back(d < 0 ? d + std::max(rank, 1) : d);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace gradus::ops
