// Indexing by several tensors at once, as NumPy does it: index and index_put.
#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/index_operands.h"
#include "ops/index_work.h"
#include "ops/indexing.h"

namespace gradus::ops {

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

// The indices of a whole batch. Those that all of it share stand behind a `none`; others behind one
// that counts the batch, and then their common shape stands in front of what is picked.
struct BatchedPicking {
  SmallVector<Value, 6> indices;
  int rank = 0;  // of what the call picks for one
  Ints order;    // the dimensions of what is picked, the batch being 0, as they stand in the result

  BatchedPicking(const BatchedCall& c, size_t first) {
    Picking p(first, c.operands.size(), [&](size_t i) { return c.operands[i].is_tensor(); });
    int common = 0;
    bool differ = false;
    for (size_t i : p.operands) {
      common = std::max(common, c.own_rank(i));
      differ |= c.batched[i];
    }
    rank = c.own_rank(0) - static_cast<int>(p.operands.size()) + common;
    indices.push_back(differ ? counts(c, common) : Value());
    for (size_t i = first; i < c.operands.size(); ++i)
      indices.push_back(c.batched[i] ? c.aligned(i, common) : c.operands[i]);
    for (int d = 0; d <= rank; ++d) order.push_back(d);
    if (differ || !p.adjacent) {
      const auto place = order.begin() + 1 + static_cast<int>(p.place);
      std::rotate(order.begin() + (differ ? 1 : 0), place, place + common);
    }
  }
  // The elements of the batch, [B, 1, ..]: the first index, in front of `common` dimensions.
  static Value counts(const BatchedCall& c, int common) {
    Dims dims(static_cast<size_t>(common) + 1, 1);
    dims[0] = c.size;
    return reshape(arange(c.world, c.size), dims);
  }
  // From the call's order of dimensions to that of what it picks for one, and back.
  Value picked(const Value& y) const {
    Ints back(order.size());
    for (size_t k = 0; k < order.size(); ++k) back[order[k]] = static_cast<int64_t>(k);
    return in_order() ? y : permute(y, back);
  }
  Value given(const Value& values) const { return in_order() ? values : permute(values, order); }
  bool in_order() const { return std::is_sorted(order.begin(), order.end()); }
};

}  // namespace

void Index::infer(InferCall& call, const Attr& a) {
  if (a.count && has_mask(call.in, 1))
    infer_by_composing(call);
  else
    call.out.push_back(picked_type(call, 1));
}
void Index::compose(ComposeCall& c, const Attr& a) {
  c.give(emit_all<Index>(c.world, without_masks(c, 1, *a.count))[0]);
}
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
Value Index::dx(VjpCall& d) {
  SmallVector<Value, 6> in;
  in.push_back(zeros_to_fill(d.world, d.x_type()));
  in.push_back(d.dy());
  for (size_t i = 1; i < d.operands.size(); ++i) in.push_back(d.x(i));
  return emit_all<IndexPut>(d.world, in, {.accumulate = true})[0];
}

BatchedResults Index::batch(const BatchedCall& c) {
  const BatchedPicking p(c, 1);
  SmallVector<Value, 6> in{c.stretched(0)};
  in.append(p.indices.begin(), p.indices.end());
  return {p.picked(c.world.emit(c.op, c.attributes, in)[0])};
}

void IndexPut::compose(ComposeCall& c, const Attr& a) {
  c.give(
      emit_all<IndexPut>(c.world, without_masks(c, 2, *a.count), {.accumulate = a.accumulate})[0]);
}
void IndexPut::infer(InferCall& call, const Attr& attr) {
  if (attr.count && has_mask(call.in, 2)) {
    infer_by_composing(call);
    return;
  }
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
void IndexPut::bind(BindCall& call, const Attr& a) {
  bool accumulate = a.accumulate;
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
void IndexPut::vjp(VjpCall& d, const Attr& a) {
  auto with_indices = [&](SmallVector<Value, 6> in) {
    for (size_t i = 2; i < d.operands.size(); ++i) in.push_back(d.x(i));
    return in;
  };
  d.give(0, [&] {
    if (a.accumulate) return d.dy();
    return emit_all<IndexPut>(d.world, with_indices({d.dy(), num(0.0)}))[0];
  });
  d.give(1, [&] { return emit_all<Index>(d.world, with_indices({d.dy()}))[0]; });
}
BatchedResults IndexPut::batch(const BatchedCall& c) {
  const BatchedPicking p(c, 2);
  Value values = c.operands[1];
  if (values.is_tensor()) {
    Dims dims(static_cast<size_t>(p.rank - c.own_rank(1)) + 1, 1);
    dims.append(values.dims().begin() + (c.batched[1] ? 1 : 0), values.dims().end());
    if (c.batched[1]) dims[0] = c.size;
    values = p.given(reshape(values, dims));
  }
  SmallVector<Value, 6> in{c.stretched(0), values};
  in.append(p.indices.begin(), p.indices.end());
  return c.world.emit(c.op, c.attributes, in);
}

}  // namespace gradus::ops
