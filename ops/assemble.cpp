#include "ops/assemble.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/bind_work.h"
#include "ops/edge.h"
#include "ops/operands.h"

namespace gradus::ops {

namespace {

bool legacy_empty(const Type& t) { return t.rank() == 1 && t.dims[0] == Dim(0); }
bool legacy_empty(const Layout& l) { return l.rank() == 1 && l.shape[0] == 0; }

}  // namespace

void Cat::infer(InferCall& call, const Attr& a) {
  if (call.operands() == 0) call.fail("there is nothing to join; give at least one operand");
  const Type* first = nullptr;
  DType dtype = call.tensor(0).dtype;
  for (size_t i = 0; i < call.operands(); ++i) {
    const Type& x = call.tensor(i);
    dtype = common_dtype(call, dtype, x.dtype);
    if (x.rank() == 0)
      call.fail("{} is {}; only tensors with dimensions can be joined (use `stack`)",
                call.name_of_operand(i), to_string(x));
    if (!first && !legacy_empty(x)) first = &x;
  }
  if (!first) first = &call.tensor(0);
  for (size_t i = 0; i < call.operands(); ++i)
    if (const Type& x = call.tensor(i); x.rank() != first->rank() && !legacy_empty(x))
      call.fail("{} is {}, another one is {}; they must have as many dimensions",
                call.name_of_operand(i), to_string(x), to_string(*first));
  Dims dims = first->dims;
  dims[a.dim] = 0;
  for (size_t i = 0; i < call.operands(); ++i) {
    const Type& x = call.tensor(i);
    if (legacy_empty(x)) continue;
    for (int d = 0; d < x.rank(); ++d) {
      if (d == a.dim) continue;
      if (x.dims[d].is_constant() && dims[d].is_constant() && !(x.dims[d] == dims[d]))
        call.fail("{} is {}, another one is {}; only dimension {} may differ",
                  call.name_of_operand(i), to_string(x), to_string(*first), a.dim);
      call.require_equal(dims[d], x.dims[d],
                         fmt::format("dimension {} of {}", d, call.name_of_operand(i)));
    }
    dims[a.dim] = dims[a.dim] + x.dims[a.dim];
  }
  call.out.emplace_back(dtype, std::move(dims), first->device);
}
void Cat::bind(BindCall& call, const Attr& a) {
  if (call.in.size() == 1 && call.in[0].dtype == call.out[0].dtype)
    return call.set_view(0, 0, call.in[0], 0);
  work::Move c;
  work::Window target = result_window(call);
  int64_t step = target.strides[a.dim], left = call.out[0].shape[a.dim];
  for (size_t i = 0; i < call.in.size(); ++i) {
    const Layout& x = call.in[i];
    if (legacy_empty(x)) continue;
    for (int d = 0; d < x.rank(); ++d)
      if (d != a.dim && x.shape[d] != call.out[0].shape[d])
        call.fail("operand {} is {}, the result {}; only dimension {} may differ", i,
                  to_string(x.shape), to_string(call.out[0].shape), a.dim);
    if (x.shape[a.dim] > left) call.fail("the operands are longer than the result");
    c.copy(x.shape, operand_window(call, i), target);
    target.offset += step * x.shape[a.dim];
    left -= x.shape[a.dim];
  }
  if (left != 0) call.fail("the operands are shorter than the result");
  call.set_work(std::move(c));
}
void Cat::vjp(VjpCall& d, const Attr& a) {
  const Dim& whole = d.y_type().dims[a.dim];
  Dim start = 0;
  for (size_t i = 0; i < d.operands.size(); ++i) {
    if (legacy_empty(d.x_type(i)) && whole != Dim(0)) continue;
    Dim end = start + d.x_type(i).dims[a.dim];
    d.give(i, [&] {
      return start == Dim(0) && end == whole ? d.dy() : slice(d.dy(), a.dim, start, end);
    });
    start = end;
  }
}
// Operands of type [0] have nothing to join but their say in the dtype.
BatchedResults Cat::batch(const BatchedCall& c, const Attr& a) {
  const Type& y = c.results[0];
  SmallVector<Value, 8> parts;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.own_rank(i) == y.rank()) parts.push_back(cast(c.stretched(i), y.dtype));
  return {cat(parts, a.dim + 1)};
}
bool Cat::edge(EdgeCall& call, const Attr& a) {
  const Layout& out = call.out;
  int64_t at = 0;
  for (uint32_t i = 0; i < call.in.size(); ++i) {
    if (!call.in[i]) return false;  // its size is not known here
    const Layout& x = *call.in[i];
    if (x.dtype != out.dtype) return false;
    if (x.numel() == 0) continue;
    Sources::Source s{i, Sizes(out.shape.size(), 0), x.shape, x.strides};
    s.first[a.dim] = at;
    at += x.shape[a.dim];
    call.found.sources.push_back(std::move(s));
  }
  return at == out.shape[a.dim];
}

void Stack::compose(ComposeCall& c, const Attr& a) {
  if (c.operands.empty()) c.fail("there is nothing to stack; give at least one operand");
  SmallVector<Value, 8> parts;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (!c.x(i).is_tensor()) c.fail("operand {} must be a tensor", i);
    if (c.x(i).rank() != c.x().rank())
      c.fail("operand {} is {}, the first one {}; they must have one shape", i,
             to_string(c.x(i).type), to_string(c.x().type));
    parts.push_back(unsqueeze(c.x(i), a.dim));
  }
  c.give(cat(parts, a.dim));
}

namespace {

// x repeated: each dimension of count != 1 gets one before it, which is expanded and joined.
Value repeated(ComposeCall& c, const Value& x, const Dims& counts) {
  size_t rank = x.dims().size();
  if (counts.size() < rank)
    c.fail("{} counts are given, {} has {} dimensions", counts.size(), to_string(x.type), rank);
  for (const Dim& n : counts)
    if (n.is_constant() && n.value() < 0) c.fail("a count of {} is negative", n.value());
  size_t lead = counts.size() - rank;
  Dims apart, wide, joined;
  for (size_t i = 0; i < counts.size(); ++i) {
    Dim size = i < lead ? Dim(1) : x.dims()[i - lead];
    if (i >= lead && !(counts[i] == Dim(1))) {
      apart.push_back(1);
      wide.push_back(counts[i]);
    }
    apart.push_back(size);
    wide.push_back(i < lead ? counts[i] : size);
    joined.push_back(size * counts[i]);
  }
  Value separate = reshape(x, apart);
  Value many = expand(separate, wide);
  return reshape(many, joined);
}

}  // namespace

void Repeat::compose(ComposeCall& c, const Attr& a) { c.give(repeated(c, c.x(), a.repeats)); }

void Tile::compose(ComposeCall& c, const Attr& a) {
  Dims counts = a.dims;
  while (counts.size() < c.x().dims().size()) counts.insert(counts.begin(), 1);
  c.give(repeated(c, c.x(), counts));
}

void RepeatInterleave::compose(ComposeCall& c, const Attr& a) {
  if (a.repeats.is_constant() && a.repeats.value() < 0)
    c.fail("'repeats' is {}; it must not be negative", a.repeats.value());
  Value x = c.x();
  if (!a.dim || x.rank() == 0) x = reshape(x, {ir::numel(x.dims())});
  const int64_t dim = a.dim.value_or(0);
  Value apart = unsqueeze(x, dim + 1);
  Dims wide = apart.dims(), joined = x.dims();
  wide[dim + 1] = a.repeats;
  joined[dim] = joined[dim] * a.repeats;
  Value many = expand(apart, wide);
  c.give(reshape(many, joined));
}

void Meshgrid::compose(ComposeCall& c) {
  Dims grid;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (!c.x(i).is_tensor() || c.x(i).rank() > 1)
      c.fail("operand {} must be a tensor of at most one dimension", i);
    grid.push_back(c.x(i).rank() == 0 ? Dim(1) : c.x(i).dims()[0]);
  }
  for (size_t i = 0; i < c.operands.size(); ++i) {
    Dims alone(grid.size(), 1);
    alone[i] = grid[i];
    Value along = reshape(c.x(i), alone);
    c.give(expand(along, grid));
  }
}

void Flip::infer(InferCall& call, const Attr& a) {
  refuse_repeated(call, a.dims);
  call.out.push_back(call.tensor(0));
}
void Flip::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  work::Window source = operand_window(call, 0);
  bool turns = false;
  for (int64_t k : a.dims) {
    if (x.rank() == 0) break;
    if (x.shape[k] < 2) continue;
    turns = true;
    source.offset += (x.shape[k] - 1) * x.strides[k];
    source.strides[k] = -x.strides[k];
  }
  if (!turns) return call.set_view(0, 0, x, 0);
  work::Move c;
  c.copy(x.shape, std::move(source), result_window(call));
  call.set_work(std::move(c));
}

void Roll::infer(InferCall& call, const Attr& a) {
  if (a.dims.empty() && a.shifts.size() != 1)
    call.fail("{} shifts are given without 'dims'; write one shift, or as many dimensions",
              a.shifts.size());
  if (!a.dims.empty() && a.dims.size() != a.shifts.size())
    call.fail("{} shifts and {} dimensions are given; they must be as many", a.shifts.size(),
              a.dims.size());
  call.out.push_back(call.tensor(0));
}
void Roll::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  Sizes shift(std::max(x.rank(), 1), 0);
  auto add = [&](size_t d, int64_t n, int64_t by) {
    if (n > 0) shift[d] = (shift[d] + (by % n + n) % n) % n;
  };
  work::Window source = operand_window(call, 0), target = result_window(call);
  Sizes shape = x.shape;
  work::Move c;
  if (a.dims.empty()) {  // over the elements in row-major order
    if (!x.contiguous()) {
      work::Window flat{work::Window::scratch, x.dtype, contiguous_strides(x.shape), 0};
      c.copy(x.shape, source, flat);
      source = flat;
      c.scratch_bytes = x.numel() * static_cast<int64_t>(size_of(x.dtype));
    }
    shape = {x.numel()};
    source.strides = target.strides = {1};
    shift.assign(1, 0);
    add(0, shape[0], a.shifts[0]);
  } else {
    for (size_t i = 0; i < a.dims.size(); ++i)
      if (x.rank() > 0) add(a.dims[i], x.shape[a.dims[i]], a.shifts[i]);
  }
  // Each moved dimension is cut in two; the pieces of all of them change places.
  SmallVector<size_t, 4> moved;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shift[d] != 0) moved.push_back(d);
  if (moved.empty() && !a.dims.empty()) return call.set_view(0, 0, x, 0);
  bool none = numel(shape) == 0;
  for (uint64_t piece = 0; !none && piece < uint64_t{1} << moved.size(); ++piece) {
    Sizes part = shape;
    work::Window from = source, to = target;
    for (size_t k = 0; k < moved.size(); ++k) {
      size_t d = moved[k];
      bool wraps = piece >> k & 1;  // the last `shift` elements come first
      part[d] = wraps ? shift[d] : shape[d] - shift[d];
      (wraps ? from : to).offset +=
          (wraps ? shape[d] - shift[d] : shift[d]) * (wraps ? from : to).strides[d];
    }
    c.copy(part, std::move(from), std::move(to));
  }
  call.set_work(std::move(c));
}
Value Roll::dx(VjpCall& d, const Attr& a) {
  Ints back;
  for (int64_t s : a.shifts) back.push_back(s == INT64_MIN ? s : -s);
  return emit<Roll>({d.dy()}, {.shifts = back, .dims = a.dims});
}
// Without `dims` the elements of each index are a row.
BatchedResults Roll::batch(const BatchedCall& c, const Attr& a) {
  if (!a.dims.empty()) return batch_named_dimensions(c, a);
  const Dim each = ir::numel(c.results[0].dims);
  Value y = emit<Roll>({reshape(c.operands[0], {c.size, each})}, {.shifts = a.shifts, .dims = {1}});
  return {reshape(y, c.with_batch(c.results[0].dims))};
}

void TrianglePart::infer(InferCall& call) {
  check_least_rank(call.op, call.tensor(0), 2);
  call.out.push_back(call.tensor(0));
}

void Tril::bind(BindCall& call, const Attr& a) {
  call.set_work(work::Triangle{call.in[0], a.diagonal, true});
}
void Triu::bind(BindCall& call, const Attr& a) {
  call.set_work(work::Triangle{call.in[0], a.diagonal, false});
}

std::span<const ir::Operator* const> assemble_family() { return fold<AssembleOperators>(); }

}  // namespace gradus::ops
