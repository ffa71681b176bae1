#include "ops/shape.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"

namespace gradus::ops {

namespace {

// Takes sizes that both lists have out of both, so that what is left divides more often.
void cancel(Dims& a, Dims& b) {
  for (size_t i = 0; i < a.size();) {
    auto it = std::find(b.begin(), b.end(), a[i]);
    if (it == b.end()) {
      ++i;
      continue;
    }
    b.erase(it);
    a.erase(a.begin() + i);
  }
}

[[noreturn]] void wrong_count(const InferCall& call, const Dims& from, const Dims& to) {
  call.fail("{} has {} elements, the shape {} has {}; their numbers must agree", to_string(from),
            numel(from).to_string(), to_string(to), numel(to).to_string());
}

Dims resolved_shape(const InferCall& call, const Dims& from, const Dims& shape) {
  Dims known;
  int open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == Dim(-1)) {
      if (open >= 0) call.fail("only one size of 'shape' may be -1, {} has more", to_string(shape));
      open = static_cast<int>(i);
    } else {
      if (shape[i].is_constant() && shape[i].value() < 0)
        call.fail("the size {} of 'shape' is negative; only -1 stands for an inferred size",
                  shape[i].value());
      known.push_back(shape[i]);
    }
  }
  auto constant_zero = [](const Dims& d) {
    return std::find(d.begin(), d.end(), Dim(0)) != d.end();
  };
  Dims result = shape;
  if (open < 0 && constant_zero(from) && constant_zero(known)) return result;
  if (open >= 0 && constant_zero(known))
    call.fail("the size that -1 stands for in {} could be anything; write it", to_string(shape));
  Dims rest = from;
  if (!constant_zero(from)) cancel(rest, known);
  Dim total = numel(rest), divisor = numel(known);
  if (open >= 0) {
    Dim inferred = floor_div(total, divisor);
    Dim product = inferred * divisor;
    if (total.is_constant() && product.is_constant() && !(total == product))
      call.fail("{} has {} elements, which do not fill the shape {}", to_string(from),
                numel(from).to_string(), to_string(shape));
    call.require_equal(total, product, "numbers of elements of 'x' and of 'shape'");
    result[open] = inferred;
    return result;
  }
  if (total.is_constant() && divisor.is_constant() && !(total == divisor))
    wrong_count(call, from, shape);
  call.require_equal(total, divisor, "numbers of elements of 'x' and of 'shape'");
  return result;
}

Layout with_dims(const Layout& x, Sizes shape, Sizes strides) {
  return Layout(x.dtype, std::move(shape), std::move(strides));
}

// The result is operand 0's elements in row-major order: a view where the strides allow it.
void bind_row_major(BindCall& call) {
  const Layout& x = call.in[0];
  for (int64_t n : call.out[0].shape)
    if (n < 0) call.fail("the result would have a size of {}", n);
  if (x.numel() != call.out[0].numel())
    call.fail("{} has {} elements, the shape {} has {}", to_string(x.shape), x.numel(),
              to_string(call.out[0].shape), call.out[0].numel());
  if (auto strides = view_strides(x, call.out[0].shape))
    call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(*strides)), 0);
  else
    bind_copy(call);
}

}  // namespace

void Reshape::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(x.dtype, resolved_shape(call, x.dims, a.shape), x.device);
}
void Reshape::bind(BindCall& call) { bind_row_major(call); }
Value Reshape::dx(VjpCall& d) { return reshape(d.dy(), d.x_type().dims); }

void Flatten::compose(ComposeCall& c, const Attr& a) {
  const Value& x = c.x();
  if (a.start_dim > a.end_dim)
    c.fail("start_dim {} comes after end_dim {}", a.start_dim, a.end_dim);
  if (x.rank() == 0) return c.give(reshape(x, {1}));
  Dims shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > a.start_dim && i <= a.end_dim)
      shape.back() = shape.back() * x.dims()[i];
    else
      shape.push_back(x.dims()[i]);
  }
  c.give(reshape(x, shape));
}

void Squeeze::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dims dims;
  for (int i = 0; i < x.rank(); ++i)
    if (x.dims[i] != Dim(1) || (a.dim && i != *a.dim)) dims.push_back(x.dims[i]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
// Dropping a size 1 is a view whatever the strides; so is keeping a symbolic size that is 1 now.
void Squeeze::bind(BindCall& call) { bind_row_major(call); }
Value Squeeze::dx(VjpCall& d, const Attr& a) {
  if (!a.dim || d.y_type().rank() == d.x_type().rank()) return reshape(d.dy(), d.x_type().dims);
  return unsqueeze(d.dy(), *a.dim);
}

void Unsqueeze::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dims dims = x.dims;
  dims.insert(dims.begin() + a.dim, 1);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Unsqueeze::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  Sizes strides = x.strides;
  strides.insert(strides.begin() + a.dim, a.dim < x.rank() ? x.shape[a.dim] * x.strides[a.dim] : 1);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}
Value Unsqueeze::dx(VjpCall& d, const Attr& a) { return squeeze(d.dy(), a.dim); }

void Transpose::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dims dims = x.dims;
  if (x.rank() > 0) std::swap(dims[a.dim0], dims[a.dim1]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Transpose::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  Sizes strides = x.strides;
  if (x.rank() > 0) std::swap(strides[a.dim0], strides[a.dim1]);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}

void Permute::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (a.dims.size() != x.dims.size())
    call.fail("'dims' lists {} dimensions, {} has {}", a.dims.size(), to_string(x), x.rank());
  refuse_repeated(call, a.dims);
  Dims dims;
  for (int64_t dim : a.dims) dims.push_back(x.dims[dim]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Permute::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  Sizes strides;
  for (int64_t dim : a.dims) strides.push_back(x.strides[dim]);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}
Value Permute::dx(VjpCall& d, const Attr& a) {
  Ints inverse(a.dims.size());
  for (size_t k = 0; k < a.dims.size(); ++k) inverse[a.dims[k]] = static_cast<int64_t>(k);
  return permute(d.dy(), inverse);
}
BatchedResults Permute::batch(const BatchedCall& c, const Attr& a) {
  Ints dims{0};
  for (int64_t d : a.dims) dims.push_back(d + 1);
  return {emit<Permute>({c.operands[0]}, {.dims = dims})};
}

void Movedim::compose(ComposeCall& c, const Attr& a) {
  int rank = c.x().rank();
  if (a.source.size() != a.destination.size())
    c.fail("'source' lists {} dimensions and 'destination' {}; they must be as many",
           a.source.size(), a.destination.size());
  Ints dims(rank, -1);
  SmallVector<bool, 6> moved(rank, false);
  for (size_t i = 0; i < a.source.size(); ++i) {
    const int64_t from = a.source[i], to = a.destination[i];
    if (rank == 0) continue;
    if (moved[from] || dims[to] >= 0)
      c.fail("dimension {} is listed twice", moved[from] ? from : to);
    moved[from] = true;
    dims[to] = from;
  }
  int next = 0;
  for (int64_t& d : dims) {
    if (d >= 0) continue;
    while (moved[next]) ++next;
    d = next++;
  }
  c.give(permute(c.x(), dims));
}

void Expand::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  Dims dims = a.shape;
  if (dims.size() < x.dims.size())
    call.fail("the shape {} has fewer dimensions than {}", to_string(dims), to_string(x));
  size_t lead = dims.size() - x.dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == Dim(-1)) {
      if (i < lead)
        call.fail("-1 in {} stands before the dimensions of {}; write a size", to_string(dims),
                  to_string(x));
      dims[i] = x.dims[i - lead];
      continue;
    }
    if (dims[i].is_constant() && dims[i].value() < 0)
      call.fail("the size {} of 'shape' is negative; only -1 keeps a size", dims[i].value());
    if (i < lead || x.dims[i - lead] == Dim(1)) continue;
    const Dim& have = x.dims[i - lead];
    if (have.is_constant() && dims[i].is_constant() && !(have == dims[i]))
      call.fail("dimension {} of {} cannot become {}: only a size of 1 can be expanded", i - lead,
                to_string(x), dims[i].value());
    call.require_equal(have, dims[i], fmt::format("dimension {} of 'x' and of 'shape'", i - lead));
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Expand::bind(BindCall& call) {
  const Layout& x = call.in[0];
  const Sizes& shape = call.out[0].shape;
  size_t lead = shape.size() - x.shape.size();
  Sizes strides(shape.size(), 0);
  for (size_t i = 0; i < x.shape.size(); ++i) {
    int64_t want = shape[lead + i];
    if (want < 0 || (x.shape[i] != want && x.shape[i] != 1))
      call.fail("dimension {} of {} cannot become {}", i, to_string(x.shape), want);
    if (x.shape[i] == want) strides[lead + i] = x.strides[i];
  }
  call.set_view(0, 0, with_dims(x, shape, std::move(strides)), 0);
}
// The caller sums the gradient down to x's shape.
Value Expand::dx(VjpCall& d) { return d.dy(); }
BatchedResults Expand::batch(const BatchedCall& c) {
  Value x = c.aligned(0, c.results[0].rank());
  return {expand(x, c.with_batch(c.results[0].dims))};
}

std::span<const ir::Operator* const> shape_family() { return fold<ShapeOperators>(); }

}  // namespace gradus::ops
