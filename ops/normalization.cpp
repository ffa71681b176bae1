#include "ops/normalization.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/families.h"
#include "ops/operands.h"
#include "ops/reduction.h"
#include "ops/reduction_rules.h"

namespace gradus::ops {

namespace {

Value sum_along(const Value& x, int64_t dim) {
  return sum(x, reduced_dims(Ints{dim}, x.rank()), true);
}

// x less its greatest along dim: an infinite greatest one gives NaN, as the quotient it stands for.
Value below_greatest(const Value& x, int64_t dim) {
  Value wide = widened(x);
  Value greatest = emit<Amax>({wide}, {.dim = Ints{dim}, .keepdim = true, .allow_empty = true});
  return wide - greatest;
}

Value standardized(const Value& x, const Ints& dims, double eps) {
  return emit<Standardize>({x}, {.dim = dims, .eps = eps});
}

// y w + b, in x's dtype.
Value affine(const Value& y, const Value& w, const Value& b, DType dtype) {
  Value scaled = w.defined() ? y * w : y;
  return cast(b.defined() ? scaled + b : scaled, dtype);
}

const Value& with_channels(const ComposeCall& c, int least_rank) {
  const Value& x = floating_operand(c, 0);
  if (x.rank() < least_rank)
    c.fail("operand 'x' is {}; it must have at least {} dimensions, the second are the channels",
           to_string(x.type), least_rank);
  return x;
}

}  // namespace

void Softmax::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  int64_t dim = a.dim;
  Value powers = emit<Exp>(below_greatest(x, dim));
  c.give(cast(powers / sum_along(powers, dim), x.dtype()));
}
Value Softmax::dx(VjpCall& d, const Attr& a) {
  Value y = widened(d.y()), dy = widened(d.dy());
  Value shared = sum_along(y * dy, a.dim);
  return y * (dy - shared);
}

void LogSoftmax::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  int64_t dim = a.dim;
  Value shifted = below_greatest(x, dim);
  Value total = sum_along(emit<Exp>(shifted), dim);
  c.give(cast(shifted - emit<Log>(total), x.dtype()));
}
Value LogSoftmax::dx(VjpCall& d, const Attr& a) {
  Value dy = widened(d.dy());
  Value total = sum_along(dy, a.dim);
  Value share = emit<Exp>(widened(d.y()));
  return dy - share * total;
}

void Softmin::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  c.give(emit<Softmax>({-x}, {.dim = a.dim}));
}

void Standardize::compose(ComposeCall& c, const Attr& a) {
  const Value& x = floating_operand(c, 0);
  Value wide = widened(x);
  // Checks the dimensions, too.
  Value mean = emit<Mean>({wide}, {.dim = a.dim, .keepdim = true});
  Ints dims = reduced_dims(a, x.rank());
  Value centred = wide - mean;
  Value squares = sum(centred * centred, dims, true);
  Value variance = over_count(squares, reduced_count(x.dims(), dims));
  Value scale = emit<Rsqrt>(variance + a.eps);
  c.give(cast(centred * scale, x.dtype()));
  c.give(scale);
}
Value Standardize::dx(VjpCall& d, const Attr& a) {
  const Dims& shape = d.x_type().dims;
  Ints dims = reduced_dims(a, d.x_type().rank());
  Dim n = reduced_count(shape, dims);
  Value y = widened(d.y(0));
  const Value& scale = d.y(1);
  auto through_scale = [&] {
    Value weight = over_count(d.dy(1) * (scale * scale), n);
    return y * weight;
  };
  if (!d.has_dy(0)) return -through_scale();
  Value dy = widened(d.dy(0));
  Value mean = over_count(sum(dy, dims, true), n);
  Value slope = over_count(sum(y * dy, dims, true), n);
  Value rest = dy - mean;
  Value dx = scale * (rest - y * slope);
  return d.has_dy(1) ? dx - through_scale() : dx;
}

// Over all dimensions but the added one where none is named.
BatchedResults Standardize::batch(const BatchedCall& c, const Attr& a) {
  const Value x = c.rows(0);
  Ints dims = reduced_dims(a, x.rank() - 1);
  for (int64_t& d : dims) ++d;
  SmallVector<Value, 1> in{x};
  BatchedResults out = emit_all<Standardize>(c.world, in, {.dim = dims, .eps = a.eps});
  for (size_t r = 0; r < out.size(); ++r) out[r] = reshape(out[r], c.with_batch(c.results[r].dims));
  return out;
}

void LayerNorm::compose(ComposeCall& c, const Attr& a) {
  Value x = floating_operand(c, 0);
  size_t rank = x.dims().size(), last = a.normalized_shape.size();
  if (last == 0 || last > rank)
    c.fail("'normalized_shape' is {}; it must name the last sizes of 'x', {}",
           to_string(a.normalized_shape), to_string(x.type));
  Dims shape = x.dims();
  Ints dims;
  for (size_t i = rank - last; i < rank; ++i) {
    const Dim& want = a.normalized_shape[i + last - rank];
    same_size(c, x.dims()[i], want,
              fmt::format("dimension {} of 'x' and its size in 'normalized_shape'", i));
    shape[i] = want;
    dims.push_back(static_cast<int64_t>(i));
  }
  auto weights = [&](size_t i) -> Value {
    if (!c.given(i)) return {};
    const Value& w = floating_operand(c, i);
    if (w.dims().size() != last)
      c.fail("operand '{}' is {}; it must have the shape 'normalized_shape', {}",
             c.op.operand(i).name, to_string(w.type), to_string(a.normalized_shape));
    for (size_t k = 0; k < last; ++k)
      same_size(
          c, w.dims()[k], a.normalized_shape[k],
          fmt::format("dimension {} of '{}' and of 'normalized_shape'", k, c.op.operand(i).name));
    return w;
  };
  Value w = weights(1), b = weights(2);
  DType dtype = x.dtype();
  // A size that only a run can prove is checked by it.
  x = expand(widened(x), shape);
  c.give(affine(standardized(x, dims, a.eps), w, b, dtype));
}

void BatchNormTrain::compose(ComposeCall& c, const Attr& a) {
  const Value& x = with_channels(c, 2);
  Value w = per_channel(c, 1, x), b = per_channel(c, 2, x);
  Ints dims{0};
  for (int d = 2; d < x.rank(); ++d) dims.push_back(d);
  c.give(affine(standardized(widened(x), dims, a.eps), w, b, x.dtype()));
}

void BatchNormEval::compose(ComposeCall& c, const Attr& a) {
  const Value& x = with_channels(c, 2);
  for (size_t i : {1, 2}) floating_operand(c, i);
  Value mean = detach(per_channel(c, 1, x)), var = detach(per_channel(c, 2, x));
  Value w = per_channel(c, 3, x), b = per_channel(c, 4, x);
  Value scale = emit<Rsqrt>(widened(var) + a.eps);
  Value centred = widened(x) - widened(mean);
  c.give(affine(centred * scale, w, b, x.dtype()));
}

void GroupNorm::compose(ComposeCall& c, const Attr& a) {
  const Value& x = with_channels(c, 2);
  const Dim& channels = x.dims()[1];
  if (a.groups < 1) c.fail("'groups' is {}; it must be positive", a.groups);
  if (channels.is_constant() && channels.value() % a.groups != 0)
    c.fail("'groups' is {}, which does not divide the channels of 'x', {}", a.groups,
           to_string(x.type));
  Value w = per_channel(c, 1, x), b = per_channel(c, 2, x);
  Dim each = floor_div(channels, a.groups);
  for (int d = 2; d < x.rank(); ++d) each = each * x.dims()[d];
  Value grouped = reshape(widened(x), {x.dims()[0], a.groups, each});
  Value y = reshape(standardized(grouped, {2}, a.eps), x.dims());
  c.give(affine(y, w, b, x.dtype()));
}

void InstanceNorm::compose(ComposeCall& c, const Attr& a) {
  const Value& x = with_channels(c, 3);
  Value w = per_channel(c, 1, x), b = per_channel(c, 2, x);
  Ints dims;
  for (int d = 2; d < x.rank(); ++d) dims.push_back(d);
  c.give(affine(standardized(widened(x), dims, a.eps), w, b, x.dtype()));
}

Family normalization_family() { return fold<NormalizationOperators>(); }

}  // namespace gradus::ops
