#include "ops/indexing.h"

#include <algorithm>

#include "base/error.h"
#include "ops/index_kernel.h"
#include "ops/rules.h"

namespace gradus::ops {

namespace {

int normal(int64_t dim, int rank) {
  return static_cast<int>(dim < 0 ? dim + std::max(rank, 1) : dim);
}
LiteralList at(int64_t dim) { return {{"dim", dim, {}}}; }

const Type& index_tensor(const InferCall& call, size_t i) {
  const Type& t = call.tensor(i);
  if (t.dtype == DType::i64 || t.dtype == DType::i32) return t;
  if (t.dtype == DType::boolean)
    call.fail(
        "{} is the mask {}; how many elements it picks depends on its values, which types "
        "cannot say. Use `where` or `masked_fill`, or give indices",
        call.name_of_operand(i), to_string(t));
  call.fail("{} is {}; indices are i64 or i32", call.name_of_operand(i), to_string(t));
}

void same_dtype(const InferCall& call, const Type& x, size_t i) {
  if (call.is_number(i)) return;
  const Type& src = call.tensor(i);
  if (src.dtype != x.dtype)
    call.fail("{} is {}, 'x' is {}; cast one of them", call.name_of_operand(i), to_string(src),
              to_string(x));
}

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

// The checks that gather and its adjoints share; returns the dimension.
int infer_elements(InferCall& call) {
  const Type &x = call.tensor(0), &index = index_tensor(call, 1);
  int dim = call.dimension(attributes_as<DimAttr>(call.attributes).dim, x.rank());
  if (index.rank() != x.rank())
    call.fail("operand 'index' is {}, 'x' is {}; they must have as many dimensions",
              to_string(index), to_string(x));
  at_most(call, index, "index", x, "x", dim);
  return dim;
}

void infer_scatter(InferCall& call) {
  infer_elements(call);
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

ElementPlan element_plan(const BindCall& call, IndexAction action, const Layout& indexed) {
  const Layout &x = call.in[0], &index = call.in[1];
  int dim = normal(attributes_as<DimAttr>(call.attributes).dim, x.rank());
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

void bind_scatter(BindCall& call, IndexAction action) {
  ElementPlan p = element_plan(call, action, call.out[0]);
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
Value gather_for_src(VjpCall& d) {
  int64_t dim = d.attr<DimAttr>().dim;
  Value g = emit("gather", {d.dy(), d.x(1)}, at(dim));
  for (int k = 0; k < g.rank(); ++k) g = pad_zeros(g, k, 0, d.x_type(2).dims[k] - g.dims()[k]);
  return g;
}

}  // namespace

void Gather::infer(InferCall& call) {
  infer_elements(call);
  call.out.emplace_back(call.tensor(0).dtype, call.tensor(1).dims, call.tensor(0).device);
}
void Gather::bind(BindCall& call) {
  ElementPlan p = element_plan(call, IndexAction::read, call.in[0]);
  p.sides.indexed = 0;
  p.sides.plain = 2;
  p.plain_strides = call.out[0].strides;
  bind_elements(call, std::move(p));
}
void Gather::vjp(VjpCall& d) {
  d.give(0, [&] {
    Value zeros = zeros_of(d.world, d.x_type());
    return emit("scatter_add", {zeros, d.x(1), d.dy()}, at(d.attr<Attr>().dim));
  });
}

void Scatter::infer(InferCall& call) { infer_scatter(call); }
void Scatter::bind(BindCall& call) { bind_scatter(call, IndexAction::write); }
void Scatter::vjp(VjpCall& d) {
  d.give(0, [&] { return emit("scatter", {d.dy(), d.x(1), num(0.0)}, at(d.attr<Attr>().dim)); });
  d.give(2, [&] { return gather_for_src(d); });
}

void ScatterAdd::infer(InferCall& call) { infer_scatter(call); }
void ScatterAdd::bind(BindCall& call) { bind_scatter(call, IndexAction::add); }
void ScatterAdd::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(2, [&] { return gather_for_src(d); });
}

namespace {

// The dimension, and the length of the index; an index of no dimensions is one of one element.
std::pair<int, Dim> infer_along(const InferCall& call, int64_t dim) {
  const Type &x = call.tensor(0), &index = index_tensor(call, 1);
  if (x.rank() == 0) call.fail("operand 'x' is {}; it needs at least one dimension", to_string(x));
  if (index.rank() > 1)
    call.fail("operand 'index' is {}; it must have one dimension", to_string(index));
  return {call.dimension(dim, x.rank()), index.rank() == 0 ? Dim(1) : index.dims[0]};
}

void infer_into(InferCall& call, int64_t at_dim) {
  auto [dim, length] = infer_along(call, at_dim);
  const Type& x = call.tensor(0);
  same_dtype(call, x, 2);
  if (!call.is_number(2)) {
    const Type& src = call.tensor(2);
    Dims want = x.dims;
    want[dim] = length;
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
SlabPlan along_plan(const BindCall& call, int64_t at_dim, IndexAction action, const Layout& indexed,
                    std::span<const int64_t> plain) {
  const Layout &x = call.in[0], &index = call.in[1];
  auto dim = static_cast<size_t>(normal(at_dim, x.rank()));
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
  const Layout &x = call.in[0], &src = call.in[2];
  Sizes plain(x.shape.size(), 0);
  if (!call.number[2]) {
    Sizes want = x.shape;
    want[normal(dim, x.rank())] = call.in[1].numel();
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

void IndexSelect::infer(InferCall& call) {
  auto [dim, length] = infer_along(call, attributes_as<Attr>(call.attributes).dim);
  const Type& x = call.tensor(0);
  Dims dims = x.dims;
  dims[dim] = length;
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void IndexSelect::bind(BindCall& call) {
  SlabPlan p = along_plan(call, attributes_as<Attr>(call.attributes).dim, IndexAction::read,
                          call.in[0], call.out[0].strides);
  p.sides.indexed = 0;
  p.sides.plain = 2;
  bind_slabs(call, std::move(p));
}
void IndexSelect::vjp(VjpCall& d) {
  d.give(0, [&] {
    Value zeros = zeros_of(d.world, d.x_type());
    return emit("index_add", {zeros, d.x(1), d.dy()}, at(d.attr<Attr>().dim));
  });
}

void IndexAdd::infer(InferCall& call) {
  infer_into(call, attributes_as<Attr>(call.attributes).dim);
  require_integral_coefficient(call, "alpha", attributes_as<Attr>(call.attributes).alpha);
}
void IndexAdd::bind(BindCall& call) {
  const Attr& a = attributes_as<Attr>(call.attributes);
  bind_into(call, a.dim, IndexAction::add, a.alpha.as_double());
}
void IndexAdd::vjp(VjpCall& d) {
  d.give(0, [&] { return d.dy(); });
  d.give(2, [&] {
    Value picked = emit("index_select", {d.dy(), d.x(1)}, at(d.attr<Attr>().dim));
    return picked * d.attr<Attr>().alpha.as_double();
  });
}

void IndexCopy::infer(InferCall& call) {
  infer_into(call, attributes_as<Attr>(call.attributes).dim);
}
void IndexCopy::bind(BindCall& call) {
  bind_into(call, attributes_as<Attr>(call.attributes).dim, IndexAction::write, 1);
}
void IndexCopy::vjp(VjpCall& d) {
  LiteralList dim = at(d.attr<Attr>().dim);
  d.give(0, [&] { return emit("index_copy", {d.dy(), d.x(1), num(0.0)}, dim); });
  d.give(2, [&] { return emit("index_select", {d.dy(), d.x(1)}, dim); });
}

void IndexFill::compose(ComposeCall& c) {
  const Attr& a = c.attr<Attr>();
  Value value = a.value.is_floating() ? num(a.value.floating) : num(a.value.integer);
  c.give(emit("index_copy", {c.x(), c.x(1), value}, at(a.dim)));
}

namespace {

// How index tensors (operands `first` ..) pick from x: which dimensions, and where in the result
// their common shape stands.
struct Picking {
  SmallVector<size_t, 4> operands, dimensions;
  size_t place = 0;      // dimensions of the result before the common shape
  bool adjacent = true;  // else the common shape stands in front

  Picking(size_t first, size_t operands_given, auto given) {
    for (size_t i = first; i < operands_given; ++i)
      if (given(i)) {
        operands.push_back(i);
        dimensions.push_back(i - first);
      }
    if (operands.empty()) return;
    adjacent = dimensions.back() - dimensions.front() + 1 == dimensions.size();
    place = adjacent ? dimensions.front() : 0;
  }
  bool picks(size_t d) const {
    return std::find(dimensions.begin(), dimensions.end(), d) != dimensions.end();
  }
};

// The common size of two that are broadcast, decided by the types.
Dim broadcast_size(const InferCall& call, const Dim& a, const Dim& b, std::string_view what) {
  if (a == Dim(1)) return b;
  if (b == Dim(1)) return a;
  if (a.is_constant() && b.is_constant() && !(a == b))
    call.fail("sizes {} and {} do not broadcast: {}", a.value(), b.value(), what);
  call.require_equal(a, b, what);
  return a.is_constant() ? a : b.is_constant() ? b : a;
}

// The type of x[idx..], with the indices from operand `first` on.
Type picked_type(const InferCall& call, size_t first) {
  const Type& x = call.tensor(0);
  if (call.operands() - first > x.dims.size())
    call.fail("{} indices are given for {}", call.operands() - first, to_string(x));
  Picking p(first, call.operands(), [&](size_t i) { return call.given(i); });
  if (p.operands.empty()) call.fail("every index is `none`; give at least one index tensor");
  Dims common;
  for (size_t i : p.operands) {
    const Type& t = index_tensor(call, i);
    while (common.size() < t.dims.size()) common.insert(common.begin(), 1);
    size_t lead = common.size() - t.dims.size();
    for (size_t d = 0; d < t.dims.size(); ++d)
      common[lead + d] =
          broadcast_size(call, common[lead + d], t.dims[d],
                         fmt::format("{} and the indices before it", call.name_of_operand(i)));
  }
  Dims dims;
  for (size_t d = 0; d < x.dims.size(); ++d)
    if (!p.picks(d)) dims.push_back(x.dims[d]);
  for (size_t d = 0; d < common.size(); ++d) dims.insert(dims.begin() + p.place + d, common[d]);
  return Type(x.dtype, std::move(dims), x.device);
}

// Strides of `from` seen as `shape`, sizes 1 expanded.
Sizes broadcast_strides(const BindCall& call, const Layout& from, std::span<const int64_t> shape) {
  Sizes strides(shape.size(), 0);
  if (from.shape.size() > shape.size())
    call.fail("{} does not broadcast to {}", to_string(from.shape), to_string(shape));
  size_t lead = shape.size() - from.shape.size();
  for (size_t d = 0; d < from.shape.size(); ++d) {
    if (from.shape[d] != shape[lead + d] && from.shape[d] != 1)
      call.fail("{} does not broadcast to {}", to_string(from.shape), to_string(shape));
    if (from.shape[d] == shape[lead + d]) strides[lead + d] = from.strides[d];
  }
  return strides;
}

// `plain(shape)` gives the plain side's strides over the shape of x[idx..].
SlabPlan picked_plan(const BindCall& call, size_t first, IndexAction action, const Layout& indexed,
                     auto plain) {
  const Layout& x = call.in[0];
  Picking pick(first, call.in.size(), [&](size_t i) { return call.present[i]; });
  SlabPlan p;
  p.sides.dtype = x.dtype;
  p.sides.action = action;
  for (size_t i : pick.operands) {
    const Sizes& s = call.in[i].shape;
    while (p.shape.size() < s.size()) p.shape.insert(p.shape.begin(), 1);
    size_t lead = p.shape.size() - s.size();
    for (size_t d = 0; d < s.size(); ++d)
      if (p.shape[lead + d] == 1) p.shape[lead + d] = s[d];
  }
  for (size_t k = 0; k < pick.operands.size(); ++k) {
    size_t i = pick.operands[k], d = pick.dimensions[k];
    p.indices.push_back({static_cast<int>(i), call.in[i].dtype,
                         broadcast_strides(call, call.in[i], p.shape), x.shape[d],
                         indexed.strides[d], true, static_cast<int>(d)});
  }
  Sizes whole;
  for (size_t d = 0; d < x.shape.size(); ++d)
    if (!pick.picks(d)) whole.push_back(x.shape[d]);
  for (size_t d = 0; d < p.shape.size(); ++d)
    whole.insert(whole.begin() + pick.place + d, p.shape[d]);
  Sizes strides = plain(whole);
  for (size_t d = 0; d < p.shape.size(); ++d) p.plain_strides.push_back(strides[pick.place + d]);
  size_t at = 0;  // in `whole`
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (pick.picks(d)) continue;
    if (at == pick.place) at += p.shape.size();
    bool before = at < pick.place;
    (before ? p.outer : p.inner).push_back(x.shape[d]);
    (before ? p.outer_plain : p.inner_plain).push_back(strides[at]);
    (before ? p.outer_indexed : p.inner_indexed).push_back(indexed.strides[d]);
    ++at;
  }
  return p;
}

}  // namespace

void Index::infer(InferCall& call) { call.out.push_back(picked_type(call, 1)); }
void Index::bind(BindCall& call) {
  SlabPlan p = picked_plan(call, 1, IndexAction::read, call.in[0], [&](const Sizes& whole) {
    if (!(whole == call.out[0].shape))
      call.fail("the indices pick the shape {}, not {}", to_string(whole),
                to_string(call.out[0].shape));
    return call.out[0].strides;
  });
  p.sides.indexed = 0;
  p.sides.plain = static_cast<int>(call.in.size());
  bind_slabs(call, std::move(p));
}
void Index::vjp(VjpCall& d) {
  d.give(0, [&] {
    SmallVector<Value, 6> in;
    in.push_back(zeros_of(d.world, d.x_type()));
    in.push_back(d.dy());
    for (size_t i = 1; i < d.operands.size(); ++i) in.push_back(d.x(i));
    return emit_all(d.world, "index_put", in, {{"accumulate", true, {}}})[0];
  });
}

void IndexPut::infer(InferCall& call) {
  const Type& x = call.tensor(0);
  same_dtype(call, x, 1);
  Type picked = picked_type(call, 2);
  if (!call.is_number(1)) {
    const Type& values = call.tensor(1);
    bool fits = values.rank() <= picked.rank();
    int lead = picked.rank() - values.rank();
    for (int d = 0; fits && d < values.rank(); ++d) {
      const Dim &a = values.dims[d], &b = picked.dims[lead + d];
      fits = a == Dim(1) || !(a.is_constant() && b.is_constant() && !(a == b));
    }
    if (!fits)
      call.fail("operand 'values' is {}, the indices pick {}", to_string(values),
                to_string(picked.dims));
    for (int d = 0; d < values.rank(); ++d)
      if (!(values.dims[d] == Dim(1)))
        call.require_equal(values.dims[d], picked.dims[lead + d],
                           fmt::format("dimension {} of 'values' and of what the indices pick", d));
  }
  call.out.push_back(x);
}
void IndexPut::bind(BindCall& call) {
  bool accumulate = attributes_as<Attr>(call.attributes).accumulate;
  SlabPlan p = picked_plan(call, 2, accumulate ? IndexAction::add : IndexAction::write, call.out[0],
                           [&](const Sizes& whole) {
                             return call.number[1] ? Sizes(whole.size(), 0)
                                                   : broadcast_strides(call, call.in[1], whole);
                           });
  p.sides.plain = 1;
  p.sides.plain_is_number = call.number[1];
  p.sides.number_dtype = call.in[1].dtype;
  bind_slabs(call, std::move(p));
}
void IndexPut::vjp(VjpCall& d) {
  auto with_indices = [&](SmallVector<Value, 6> in) {
    for (size_t i = 2; i < d.operands.size(); ++i) in.push_back(d.x(i));
    return in;
  };
  d.give(0, [&] {
    if (d.attr<Attr>().accumulate) return d.dy();
    return emit_all(d.world, "index_put", with_indices({d.dy(), num(0.0)}))[0];
  });
  d.give(1, [&] { return emit_all(d.world, "index", with_indices({d.dy()}))[0]; });
}

void Take::compose(ComposeCall& c) {
  if (!c.x().is_tensor() || !c.x(1).is_tensor()) c.fail("both operands must be tensors");
  Value flat = reshape(c.x(), {ir::numel(c.x().dims())});
  SmallVector<Value, 2> in{flat, c.x(1)};
  c.give(emit_all(c.world, "index", in)[0]);
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
  Value count = emit("cumsum", {cast(flat, DType::i64)}, at(0));
  Value place = binary("maximum", count - num(int64_t{1}), num(int64_t{0}));
  Value from = reshape(src, {available});
  Value picked = emit("index_select", {from, place}, at(0));
  Value placed = reshape(picked, x.dims());
  c.give(where(wide, placed, x));
}

std::span<const ir::Operator* const> indexing_family() { return fold<IndexingOperators>(); }

}  // namespace gradus::ops
