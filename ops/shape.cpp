#include "ops/shape.h"

#include <algorithm>

#include "base/error.h"
#include "ops/rules.h"

namespace gradus::ops {

int dimension_of(const ComposeCall& call, int64_t dim, int rank) {
  int64_t n = std::max(rank, 1);
  if (dim < -n || dim >= n)
    call.fail("dimension {} is out of range for a tensor of rank {} (from {} to {})", dim, rank, -n,
              n - 1);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

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

void Reshape::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  call.out.emplace_back(
      x.dtype, resolved_shape(call, x.dims, attributes_as<Attr>(call.attributes).shape), x.device);
}
void Reshape::bind(BindCall& call) { bind_row_major(call); }
void Reshape::vjp(VjpCall& d) {
  d.give(0, [&] { return reshape(d.dy(), d.x_type().dims); });
}

void Flatten::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  const Value& x = c.x();
  int first = dimension_of(c, a.start_dim, x.rank()), last = dimension_of(c, a.end_dim, x.rank());
  if (first > last) c.fail("start_dim {} comes after end_dim {}", a.start_dim, a.end_dim);
  if (x.rank() == 0) return c.give(reshape(x, {1}));
  Dims shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > first && i <= last)
      shape.back() = shape.back() * x.dims()[i];
    else
      shape.push_back(x.dims()[i]);
  }
  c.give(reshape(x, shape));
}

namespace {

// Which dimensions a squeeze drops, by the type.
SmallVector<bool, 6> dropped(const InferCall& call, const Squeeze::Attr& a, const Type& x) {
  SmallVector<bool, 6> drop(x.dims.size(), false);
  int only = a.dim ? call.dimension(*a.dim, x.rank()) : -1;
  for (int i = 0; i < x.rank(); ++i) drop[i] = x.dims[i] == Dim(1) && (only < 0 || i == only);
  return drop;
}

}  // namespace

void Squeeze::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  auto drop = dropped(call, attributes_as<Attr>(call.attributes), x);
  Dims dims;
  for (int i = 0; i < x.rank(); ++i)
    if (!drop[i]) dims.push_back(x.dims[i]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
// Dropping a size 1 is a view whatever the strides; so is keeping a symbolic size that is 1 now.
void Squeeze::bind(BindCall& call) { bind_row_major(call); }
void Squeeze::vjp(VjpCall& d) {
  d.give(0, [&] {
    const Attr& a = d.attr<Attr>();
    if (!a.dim || d.y_type().rank() == d.x_type().rank()) return reshape(d.dy(), d.x_type().dims);
    return unsqueeze(d.dy(), *a.dim < 0 ? *a.dim + d.x_type().rank() : *a.dim);
  });
}

void Unsqueeze::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  int dim = call.dimension(attributes_as<Attr>(call.attributes).dim, x.rank() + 1);
  Dims dims = x.dims;
  dims.insert(dims.begin() + dim, 1);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Unsqueeze::bind(BindCall& call) {
  const Layout& x = call.in[0];
  int64_t dim = attributes_as<Attr>(call.attributes).dim;
  if (dim < 0) dim += x.rank() + 1;
  Sizes strides = x.strides;
  strides.insert(strides.begin() + dim, dim < x.rank() ? x.shape[dim] * x.strides[dim] : 1);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}
void Unsqueeze::vjp(VjpCall& d) {
  d.give(0, [&] {
    int64_t dim = d.attr<Attr>().dim;
    return squeeze(d.dy(), dim < 0 ? dim + d.y_type().rank() : dim);
  });
}

void Transpose::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  const Attr& a = attributes_as<Attr>(call.attributes);
  int i = call.dimension(a.dim0, x.rank()), j = call.dimension(a.dim1, x.rank());
  Dims dims = x.dims;
  if (x.rank() > 0) std::swap(dims[i], dims[j]);
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Transpose::bind(BindCall& call) {
  const Layout& x = call.in[0];
  const Attr& a = attributes_as<Attr>(call.attributes);
  Sizes strides = x.strides;
  int64_t r = x.rank();
  if (r > 0)
    std::swap(strides[a.dim0 < 0 ? a.dim0 + r : a.dim0], strides[a.dim1 < 0 ? a.dim1 + r : a.dim1]);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}
void Transpose::vjp(VjpCall& d) {
  d.give(0, [&] { return transpose(d.dy(), d.attr<Attr>().dim0, d.attr<Attr>().dim1); });
}

void Permute::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  const Attr& a = attributes_as<Attr>(call.attributes);
  if (a.dims.size() != x.dims.size())
    call.fail("'dims' lists {} dimensions, {} has {}", a.dims.size(), to_string(x), x.rank());
  Dims dims;
  SmallVector<bool, 6> seen(x.dims.size(), false);
  for (int64_t dim : a.dims) {
    int k = call.dimension(dim, x.rank());
    if (seen[k]) call.fail("dimension {} is listed twice in 'dims'", dim);
    seen[k] = true;
    dims.push_back(x.dims[k]);
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void Permute::bind(BindCall& call) {
  const Layout& x = call.in[0];
  Sizes strides;
  for (int64_t dim : attributes_as<Attr>(call.attributes).dims)
    strides.push_back(x.strides[dim < 0 ? dim + x.rank() : dim]);
  call.set_view(0, 0, with_dims(x, call.out[0].shape, std::move(strides)), 0);
}
void Permute::vjp(VjpCall& d) {
  d.give(0, [&] {
    const Ints& dims = d.attr<Attr>().dims;
    Ints inverse(dims.size());
    int64_t n = static_cast<int64_t>(dims.size());
    for (int64_t k = 0; k < n; ++k) inverse[dims[k] < 0 ? dims[k] + n : dims[k]] = k;
    return permute(d.dy(), inverse);
  });
}
BatchedResults Permute::batch(const BatchedCall& c) {
  const int rank = c.own_rank(0);
  Ints dims{0};
  for (int64_t d : c.attr<Attr>().dims) dims.push_back((d < 0 ? d + rank : d) + 1);
  return {emit<Permute>({c.operands[0]}, {.dims = dims})};
}

void Movedim::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  int rank = c.x().rank();
  if (a.source.size() != a.destination.size())
    c.fail("'source' lists {} dimensions and 'destination' {}; they must be as many",
           a.source.size(), a.destination.size());
  Ints dims(rank, -1);
  SmallVector<bool, 6> moved(rank, false);
  for (size_t i = 0; i < a.source.size(); ++i) {
    int from = dimension_of(c, a.source[i], rank), to = dimension_of(c, a.destination[i], rank);
    if (rank == 0) continue;
    if (moved[from] || dims[to] >= 0)
      c.fail("dimension {} is listed twice", moved[from] ? a.source[i] : a.destination[i]);
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

void Expand::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  Dims dims = attributes_as<Attr>(call.attributes).shape;
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
void Expand::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
}
BatchedResults Expand::batch(const BatchedCall& c) {
  Value x = c.aligned(0, c.results[0].rank());
  return {expand(x, c.with_batch(c.results[0].dims))};
}

std::span<const ir::Operator* const> shape_family() { return fold<ShapeOperators>(); }

}  // namespace gradus::ops
