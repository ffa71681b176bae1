#include "ops/indexing.h"

#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/edge.h"
#include "ops/index_operands.h"
#include "ops/index_work.h"
#include "ops/reduction_rules.h"
#include "ops/scan.h"

namespace gradus::ops {

namespace {

// Sizes that must not be larger, where the types know them.
void at_most(const InferCall& call, const Type& small, std::string_view small_name,
             const Type& large, std::string_view large_name, int but = -1) {
  for (int d = 0; d < small.rank(); ++d)
    if (d != but && small.dims[d].is_constant() && large.dims[d].is_constant() &&
        small.dims[d].value() > large.dims[d].value())
      call.fail("dimension {} of '{}' is larger than that of '{}': {} and {}", d, small_name,
                large_name, to_string(small), to_string(large));
}
void at_most(const BindCall& call, const Layout& small, std::string_view small_name,
             const Layout& large, std::string_view large_name, int but = -1) {
  for (int d = 0; d < small.rank(); ++d)
    if (d != but && small.shape[d] > large.shape[d])
      call.fail("dimension {} of '{}' is larger than that of '{}': {} and {}", d, small_name,
                large_name, to_string(small.shape), to_string(large.shape));
}

// The checks that gather and its adjoints share.
void infer_elements(InferCall& call, const DimAttr& a) {
  const Type &x = call.tensor(0), &index = index_tensor(call, 1);
  if (index.rank() != x.rank())
    call.fail("operand 'index' is {}, 'x' is {}; they must have as many dimensions",
              to_string(index), to_string(x));
  at_most(call, index, "index", x, "x", a.dim);
}

void infer_scatter(InferCall& call, const DimAttr& a) {
  infer_elements(call, a);
  const Type &x = call.tensor(0), &index = call.tensor(1);
  same_dtype(call, x, 2);
  if (!call.is_number(2)) {
    const Type& src = call.tensor(2);
    if (src.rank() != index.rank())
      call.fail("operand 'src' is {}, 'index' is {}; they must have as many dimensions",
                to_string(src), to_string(index));
    at_most(call, index, "index", src, "src");
  }
  call.out.push_back(x);
}

ElementPlan element_plan(const BindCall& call, const DimAttr& a, IndexAction action,
                         const Layout& indexed) {
  const Layout &x = call.in[0], &index = call.in[1];
  const int dim = static_cast<int>(a.dim);
  at_most(call, index, "index", x, "x", dim);
  ElementPlan p;
  p.sides.dtype = x.dtype;
  p.sides.action = action;
  p.shape = index.shape;
  p.indexed_strides = indexed.strides;
  p.index = {1, index.dtype, index.strides, 1, 0, false, dim};
  if (x.rank() > 0) {
    p.index.size = x.shape[dim];
    p.index.step = indexed.strides[dim];
    p.indexed_strides[dim] = 0;
  }
  return p;
}

void bind_scatter(BindCall& call, const DimAttr& a, IndexAction action) {
  ElementPlan p = element_plan(call, a, action, call.out[0]);
  p.sides.plain = 2;
  p.sides.plain_is_number = call.number[2];
  p.sides.number_dtype = call.in[2].dtype;
  if (call.number[2]) {
    p.plain_strides.assign(p.shape.size(), 0);
  } else {
    at_most(call, call.in[1], "index", call.in[2], "src");
    p.plain_strides = call.in[2].strides;
  }
  bind_elements(call, std::move(p));
}

// What was read of dy at the index, with zeros for elements of src that were not used.
Value gather_for_src(VjpCall& d, int64_t dim) {
  Value g = gather(d.dy(), d.x(1), dim);
  for (int k = 0; k < g.rank(); ++k) g = pad_zeros(g, k, 0, d.x_type(2).dims[k] - g.dims()[k]);
  return g;
}

// How many indices there are for each of a batch that differ within it.
Dim indices_of_each(const BatchedCall& c) {
  return c.own_rank(1) == 0 ? Dim(1) : c.operands[1].dims()[1];
}

// Those along dimension `dim` of x, which counts the batch in front, for each element that they
// pick.
Value index_of_elements(const BatchedCall& c, const Value& x, int64_t dim) {
  Dims alone(x.dims().size(), 1), picked = x.dims();
  alone[0] = c.size;
  alone[dim] = picked[dim] = indices_of_each(c);
  return expand(reshape(c.operands[1], alone), picked);
}

// An index that all of the batch share picks along the dimension behind the added one. Otherwise
// there is an index for each element, which is what Each takes.
template <class Each, class Attr>
BatchedResults batch_along(const BatchedCall& c, Attr a) {
  SmallVector<Value, 4> in;
  for (size_t i = 0; i < c.operands.size(); ++i) in.push_back(i == 1 ? c.operands[i] : c.rows(i));
  ++a.dim;
  Value y;
  if (c.batched[1]) {
    in[1] = index_of_elements(c, in[0], a.dim);
    y = emit_all<Each>(c.world, in, {.dim = a.dim})[0];
  } else {
    y = c.world.emit(c.op, make_attributes(a), in)[0];
  }
  return {reshape(y, c.with_batch(c.results[0].dims))};
}

// The operand, read where an index says: one for `each` element, or one along the dimension.
bool find_picked(EdgeCall& call, int64_t dim, bool each) {
  if (!call.in[0] || !call.in[1] || call.in[0]->rank() == 0 || call.in[1]->rank() == 0)
    return false;
  const Layout &x = *call.in[0], &index = *call.in[1], &out = call.out;
  Sources::Source s{0, Sizes(out.shape.size(), 0), out.shape, x.strides};
  s.strides[dim] = 0;
  call.found.sources.push_back(std::move(s));
  Sources::Index i;
  i.step = x.strides[dim];
  i.shape = index.shape;
  i.check = {0, index.dtype, index.strides, x.shape[dim], 0, false, static_cast<int>(dim)};
  if (each) {
    i.strides = index.strides;
  } else {
    i.strides.assign(out.shape.size(), 0);
    i.strides[dim] = index.strides[0];
  }
  call.found.index = std::move(i);
  return true;
}

}  // namespace

void Gather::infer(InferCall& call, const Attr& a) {
  infer_elements(call, a);
  call.out.emplace_back(call.tensor(0).dtype, call.tensor(1).dims, call.tensor(0).device);
}
void Gather::bind(BindCall& call, const Attr& a) {
  ElementPlan p = element_plan(call, a, IndexAction::read, call.in[0]);
  p.sides.indexed = 0;
  p.sides.plain = 2;
  p.plain_strides = call.out[0].strides;
  bind_elements(call, std::move(p));
}
Value Gather::dx(VjpCall& d, const Attr& a) {
  Value zeros = zeros_to_fill(d.world, d.x_type());
  return scatter_add(zeros, d.x(1), d.dy(), a.dim);
}

bool Gather::edge(EdgeCall& call, const Attr& a) { return find_picked(call, a.dim, true); }

void Scatter::infer(InferCall& call, const Attr& a) { infer_scatter(call, a); }
void Scatter::bind(BindCall& call, const Attr& a) { bind_scatter(call, a, IndexAction::write); }
void Scatter::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return emit<Scatter>({d.dy(), d.x(1), num(0.0)}, {.dim = a.dim}); });
  d.give(2, [&] { return gather_for_src(d, a.dim); });
}

void ScatterAdd::infer(InferCall& call, const Attr& a) { infer_scatter(call, a); }
void ScatterAdd::bind(BindCall& call, const Attr& a) { bind_scatter(call, a, IndexAction::add); }
void ScatterAdd::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return d.dy(); });
  d.give(2, [&] { return gather_for_src(d, a.dim); });
}

namespace {

// A tensor of no dimensions counts as one of one element.
Layout as_row(const Layout& x) { return x.rank() == 0 ? Layout(x.dtype, {1}, {1}) : x; }

// How many places the index picks: of a 0-d x, one.
Dim infer_along(const InferCall& call) {
  const Type &x = call.tensor(0), &index = index_tensor(call, 1);
  if (index.rank() > 1)
    call.fail("operand 'index' is {}; it must have one dimension", to_string(index));
  const Dim length = index.rank() == 0 ? Dim(1) : index.dims[0];
  if (x.rank() > 0) return length;
  if (length.is_constant() && length.value() != 1)
    call.fail("operand 'index' is {}; of a 0-d 'x' it picks one element", to_string(index));
  call.require_equal(length, Dim(1), "the size of 'index', which picks of a 0-d 'x', and 1");
  return length;
}

// x's type, but as long as the index along `dim`.
Type picked_of(const Type& x, int64_t dim, const Dim& length) {
  return x.rank() == 0 ? x : resized(x, dim, length);
}

void infer_into(InferCall& call, int64_t dim) {
  Dim length = infer_along(call);
  const Type& x = call.tensor(0);
  same_dtype(call, x, 2);
  if (!call.is_number(2)) {
    const Type& src = call.tensor(2);
    const Dims want = picked_of(x, dim, length).dims;
    bool fits = src.rank() == x.rank();
    for (int d = 0; fits && d < x.rank(); ++d)
      fits = !(src.dims[d].is_constant() && want[d].is_constant() && !(src.dims[d] == want[d]));
    if (!fits)
      call.fail("operand 'src' is {}, the index picks {} of {}", to_string(src), to_string(want),
                to_string(x));
    for (int d = 0; d < x.rank(); ++d)
      call.require_equal(src.dims[d], want[d],
                         fmt::format("dimension {} of 'src' and of what the index picks", d));
  }
  call.out.push_back(x);
}

// The plan of one index along `dim`; the plain side's strides are those of `plain`.
SlabPlan along_plan(const BindCall& call, size_t dim, IndexAction action,
                    const Layout& from_or_into, std::span<const int64_t> plain) {
  const Layout x = as_row(call.in[0]), indexed = as_row(from_or_into);
  const Layout& index = call.in[1];
  SlabPlan p;
  p.sides.dtype = x.dtype;
  p.sides.action = action;
  p.shape = {index.numel()};
  p.plain_strides = {plain[dim]};
  p.indices.push_back({1,
                       index.dtype,
                       {index.rank() == 0 ? 1 : index.strides[0]},
                       x.shape[dim],
                       indexed.strides[dim],
                       false,
                       static_cast<int>(dim)});
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (d == dim) continue;
    bool before = d < dim;
    (before ? p.outer : p.inner).push_back(x.shape[d]);
    (before ? p.outer_plain : p.inner_plain).push_back(plain[d]);
    (before ? p.outer_indexed : p.inner_indexed).push_back(indexed.strides[d]);
  }
  return p;
}

void bind_into(BindCall& call, int64_t dim, IndexAction action, double alpha) {
  const Layout x = as_row(call.in[0]), src = as_row(call.in[2]);
  Sizes plain(x.shape.size(), 0);
  if (!call.number[2]) {
    Sizes want = x.shape;
    want[dim] = call.in[1].numel();
    if (!(want == src.shape))
      call.fail("operand 'src' has the shape {}, the index picks {}", to_string(src.shape),
                to_string(want));
    plain = src.strides;
  }
  SlabPlan p = along_plan(call, dim, action, call.out[0], plain);
  p.sides.plain = 2;
  p.sides.plain_is_number = call.number[2];
  p.sides.number_dtype = src.dtype;
  p.sides.alpha = alpha;
  bind_slabs(call, std::move(p));
}

}  // namespace

void IndexSelect::infer(InferCall& call, const Attr& a) {
  Dim length = infer_along(call);
  call.out.push_back(picked_of(call.tensor(0), a.dim, length));
}
void IndexSelect::bind(BindCall& call, const Attr& a) {
  const Layout out = as_row(call.out[0]);
  SlabPlan p = along_plan(call, a.dim, IndexAction::read, call.in[0], out.strides);
  p.sides.indexed = 0;
  p.sides.plain = 2;
  bind_slabs(call, std::move(p));
}
Value IndexSelect::dx(VjpCall& d, const Attr& a) {
  Value zeros = zeros_to_fill(d.world, d.x_type());
  return emit<IndexAdd>({zeros, d.x(1), d.dy()}, {.dim = a.dim});
}

BatchedResults IndexSelect::batch(const BatchedCall& c, const Attr& a) {
  return batch_along<Gather>(c, a);
}
bool IndexSelect::edge(EdgeCall& call, const Attr& a) { return find_picked(call, a.dim, false); }

void IndexAdd::infer(InferCall& call, const Attr& a) {
  infer_into(call, a.dim);
  require_integral_coefficient(call, "alpha", a.alpha);
}
void IndexAdd::bind(BindCall& call, const Attr& a) {
  bind_into(call, a.dim, IndexAction::add, a.alpha.as_double());
}
void IndexAdd::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return d.dy(); });
  d.give(2, [&] {
    Value picked = index_select(d.dy(), d.x(1), a.dim);
    return picked * a.alpha.as_double();
  });
}

// scatter_add has no alpha: src is multiplied first, in the dtype that sums are kept in.
BatchedResults IndexAdd::batch(const BatchedCall& c, const Attr& a) {
  const Type& y = c.results[0];
  if (!c.batched[1] || a.alpha.is_one() || y.dtype == DType::boolean)
    return batch_along<ScatterAdd>(c, a);
  SmallVector<Value, 3> in(c.operands);
  if (in[2].is_number()) in[2] = zeros_of(c.world, picked_of(y, a.dim, indices_of_each(c))) + in[2];
  const Value alpha = a.alpha.is_floating() ? num(a.alpha.floating) : num(a.alpha.integer);
  in[0] = widened(in[0]);
  in[2] = widened(in[2]) * alpha;
  const BatchedCall call{c.op, c.attributes, c.world, in, c.batched, c.results, c.size};
  return {cast(batch_along<ScatterAdd>(call, Attr{.dim = a.dim})[0], y.dtype)};
}

void IndexCopy::infer(InferCall& call, const Attr& a) { infer_into(call, a.dim); }
void IndexCopy::bind(BindCall& call, const Attr& a) {
  bind_into(call, a.dim, IndexAction::write, 1);
}
void IndexCopy::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] { return emit<IndexCopy>({d.dy(), d.x(1), num(0.0)}, a); });
  d.give(2, [&] { return index_select(d.dy(), d.x(1), a.dim); });
}
BatchedResults IndexCopy::batch(const BatchedCall& c, const Attr& a) {
  return batch_along<Scatter>(c, a);
}

void IndexFill::compose(ComposeCall& c, const Attr& a) {
  Value value = a.value.is_floating() ? num(a.value.floating) : num(a.value.integer);
  c.give(emit<IndexCopy>({c.x(), c.x(1), value}, {.dim = a.dim}));
}

void Take::compose(ComposeCall& c) {
  if (!c.x().is_tensor() || !c.x(1).is_tensor()) c.fail("both operands must be tensors");
  Value flat = reshape(c.x(), {ir::numel(c.x().dims())});
  SmallVector<Value, 2> in{flat, c.x(1)};
  c.give(emit_all<Index>(c.world, in)[0]);
}

void MaskedScatter::compose(ComposeCall& c) {
  const Value &x = c.x(), &mask = c.x(1), &src = c.x(2);
  for (size_t i = 0; i < 3; ++i)
    if (!c.x(i).is_tensor()) c.fail("operand {} must be a tensor", i);
  if (mask.dtype() != DType::boolean)
    c.fail("operand 'mask' is {}; it must be bool", to_string(mask.type));
  if (src.dtype() != x.dtype())
    c.fail("operand 'src' is {}, 'x' is {}; cast one of them", to_string(src.type),
           to_string(x.type));
  Dim available = ir::numel(src.dims());
  Value wide = expand(mask, x.dims());
  Value flat = reshape(wide, {ir::numel(x.dims())});
  // The k-th place of the mask takes element k - 1; places outside of it take any.
  Value count = emit<CumSum>({cast(flat, DType::i64)}, {.dim = 0});
  Value place = emit<Maximum>(count - num(int64_t{1}), num(int64_t{0}));
  Value from = reshape(src, {available});
  Value picked = index_select(from, place, 0);
  Value placed = reshape(picked, x.dims());
  c.give(where(wide, placed, x));
}

std::span<const ir::Operator* const> indexing_family() { return fold<IndexingOperators>(); }

}  // namespace gradus::ops
