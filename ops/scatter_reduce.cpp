#include "ops/scatter_reduce.h"

#include "gradus/rules.h"
#include "ops/declared.h"
#include "ops/indexing.h"
#include "ops/operands.h"
#include "ops/reduction_rules.h"
#include "ops/scan.h"
#include "ops/sorting.h"

namespace gradus::ops {

namespace {

Value scatter(const Value& x, const Value& index, const Value& src, int64_t dim) {
  return emit<Scatter>({x, index, src}, {.dim = dim});
}

// x's first elements along each dimension, as many as `shape` says.
Value cut_to(Value x, const Dims& shape) {
  for (int d = 0; d < x.rank(); ++d)
    if (!(x.dims()[d] == shape[d])) x = slice(x, d, 0, shape[d]);
  return x;
}

// A call's operands, those of no dimensions as ones of one element; src has the index's shape.
struct Scattered {
  Value x, index, src;
  int64_t dim;

  Scattered(std::span<const Value> operands, int64_t along)
      : x(of_rank(operands[0])),
        index(of_rank(operands[1])),
        src(of_rank(operands[2])),
        dim(along) {
    if (index.rank() == src.rank()) src = cut_to(src, index.dims());
  }
  static Value of_rank(const Value& v) { return v.rank() == 0 ? reshape(v, {Dim(1)}) : v; }
  World& world() const { return *x.world; }
  // How many elements go to each place, in i64.
  Value counts() const {
    Value none = full(world(), x.dims(), 0, DType::i64);
    return emit<ScatterAdd>({none, index, num(int64_t{1})}, {.dim = dim});
  }
  // x, but `value` where an element goes to.
  Value replaced(const Value& value) const { return scatter(x, index, value, dim); }
};

Value sum_of(const Scattered& s, bool include_self) {
  const bool floating = is_floating(s.x.dtype());
  Value base = include_self ? s.x : s.replaced(floating ? num(0.0) : num(int64_t{0}));
  return scatter_add(base, s.index, s.src, s.dim);
}

Value mean_of(const Scattered& s, bool include_self) {
  Value total = sum_of(s, include_self);
  Value elements = s.counts();
  if (include_self)
    elements = elements + num(int64_t{1});
  else
    elements = emit<Maximum>(elements, num(int64_t{1}));
  if (!is_floating(total.dtype())) return emit<FloorDivide>(total, cast(elements, total.dtype()));
  Value wide = widened(total);
  return cast(wide / cast(elements, wide.dtype()), total.dtype());
}

// The elements in the order of their places, and a run of products over each place's own: state[i]
// is the product of those before element i, and the product up to it what the last one of a place
// has.
Value prod_of(const Scattered& s, bool include_self) {
  Value order = emit<Argsort>({s.index}, {.dim = s.dim});
  Value place = gather(s.index, order, s.dim);
  Value wide = is_floating(s.src.dtype()) ? widened(s.src) : cast(s.src, DType::i64);
  Value factor = gather(wide, order, s.dim);
  // Places counted from 1, so that 0 is before the first and behind the last.
  Value counted = cast(place, DType::i64) + num(int64_t{1});
  Value first = ne(counted, pad_zeros(counted, static_cast<int>(s.dim), 1, -1));
  Value last = ne(counted, pad_zeros(counted, static_cast<int>(s.dim), -1, 1));
  Value begin = where(first, factor, num(int64_t{0}));
  Value state = emit<LinearRecurrence>({factor, begin, first}, {.dim = s.dim});
  Value before = where(first, num(int64_t{1}), state);
  Value product = where(last, factor * before, num(int64_t{0}));
  Value x = is_floating(s.x.dtype()) ? widened(s.x) : cast(s.x, DType::i64);
  Value products = scatter(ones_like(x), place, product, s.dim);
  if (!include_self) x = scatter(x, s.index, num(int64_t{1}), s.dim);
  return cast(x * products, s.x.dtype());
}

// The last element that is written stays: the greatest or the least, or NaN.
Value extremum_of(const Scattered& s, bool greatest, bool include_self) {
  const bool floating = is_floating(s.src.dtype());
  Value key = floating && !greatest ? -s.src : s.src;
  Value order = emit<Argsort>({key}, {.dim = s.dim, .descending = !floating && !greatest});
  Value y = scatter(s.x, gather(s.index, order, s.dim), gather(s.src, order, s.dim), s.dim);
  if (!include_self) return y;
  return greatest ? emit<Maximum>(s.x, y) : emit<Minimum>(s.x, y);
}

}  // namespace

void ScatterReduce::compose(ComposeCall& c, const Attr& a) {
  for (size_t i = 0; i < 3; ++i) tensor_operand(c, i);
  const Value &x = c.x(0), &src = c.x(2);
  if (x.dtype() == DType::boolean)
    c.fail("operand 'x' is {}; cast it to an integer dtype", to_string(x.type));
  if (x.dtype() != src.dtype())
    c.fail("'x' is {} and 'src' is {}; they must have one dtype", to_string(x.type),
           to_string(src.type));
  const Scattered s(c.operands, a.dim);
  const bool with_x = a.include_self;
  auto reduced = [&]() -> Value {
    if (a.reduce == "sum") return sum_of(s, with_x);
    if (a.reduce == "mean") return mean_of(s, with_x);
    if (a.reduce == "prod") return prod_of(s, with_x);
    if (a.reduce == "amax") return extremum_of(s, true, with_x);
    if (a.reduce == "amin") return extremum_of(s, false, with_x);
    c.fail("'reduce' is \"{}\"; it must be \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\"",
           a.reduce);
  };
  c.give(reshape(reduced(), x.dims()));
}

BatchedResults ScatterReduce::batch(const BatchedCall& c, const Attr& a) {
  Attr along = a;
  ++along.dim;
  Value y = emit<ScatterReduce>({c.rows(0), c.rows(1), c.rows(2)}, std::move(along));
  return {reshape(y, c.with_batch(c.results[0].dims))};
}

// Of amax and amin. Each element that equals the result gets one share; of a NaN the NaNs do.
void ScatterReduce::vjp(VjpCall& d, const Attr& a) {
  const Scattered s(d.operands, a.dim);
  Value y = Scattered::of_rank(d.y()), dy = Scattered::of_rank(d.dy());
  auto is_result = [](const Value& v, const Value& result) {
    Value same = eq(v, result), neither = emit<Isnan>(v);
    return logical_or(same, neither);
  };
  Value from_src = is_result(s.src, gather(y, s.index, s.dim));
  Value sharers = full(d.world, s.x.dims(), 0, y.dtype());
  Value from_x;
  if (a.include_self) {
    from_x = is_result(s.x, y);
    sharers = cast(from_x, y.dtype());
  }
  sharers = scatter_add(sharers, s.index, cast(from_src, y.dtype()), s.dim);
  Value share = dy / emit<Maximum>(sharers, num(1.0));
  d.give(0, [&] {
    Value dx = a.include_self ? keep_where(from_x, share) : scatter(dy, s.index, num(0.0), s.dim);
    return reshape(dx, d.x_type(0).dims);
  });
  d.give(2, [&] {
    Value g = keep_where(from_src, gather(share, s.index, s.dim));
    const Dims& whole = d.x_type(2).dims;
    for (size_t k = 0; k < whole.size(); ++k)
      g = pad_zeros(g, static_cast<int64_t>(k), 0, whole[k] - g.dims()[k]);
    return reshape(g, whole);
  });
}

}  // namespace gradus::ops
