// Borders, and writing into a part: constant_pad_nd, pad, slice_scatter, diag_embed.
#include <algorithm>

#include "gradus/error.h"
#include "gradus/rules.h"
#include "ops/assemble.h"
#include "ops/bind_work.h"
#include "ops/declared.h"
#include "ops/edge.h"
#include "ops/number_literal.h"

namespace gradus::ops {

namespace {

Value narrow(const Value& x, int64_t dim, const Dim& start, const Dim& length) {
  return emit<Narrow>({x}, {.dim = dim, .start = start, .length = length});
}
Value flip(const Value& x, int64_t dim) { return emit<Flip>({x}, {.dims = Ints{dim}}); }

// The border of `amount` elements before (or after) x along a dimension.
Value border(const Value& x, const std::string& mode, int dim, const Dim& amount, bool before) {
  const Dim& n = x.dims()[dim];
  if (mode == "reflect")  // the edge itself is not repeated
    return flip(before ? narrow(x, dim, 1, amount) : narrow(x, dim, n - amount - 1, amount), dim);
  if (mode == "circular")
    return before ? narrow(x, dim, n - amount, amount) : narrow(x, dim, 0, amount);
  Value edge = before ? narrow(x, dim, 0, 1) : narrow(x, dim, n - 1, 1);
  Dims wide = x.dims();
  wide[dim] = amount;
  return expand(edge, wide);
}

void check_amount(const ComposeCall& c, const Dim& n, const Dim& amount, const std::string& mode,
                  int dim) {
  if (!amount.is_constant()) return;
  if (amount.value() < 0)
    c.fail("an amount of {} is negative, which only mode \"constant\" takes", amount.value());
  if (!n.is_constant() || amount.value() == 0) return;
  int64_t most = mode == "reflect" ? n.value() - 1 : n.value();
  if (n.value() == 0 || (mode != "replicate" && amount.value() > most))
    c.fail("an amount of {} is too much for dimension {} of {} in mode \"{}\"", amount.value(), dim,
           to_string(c.x().type), mode);
}

}  // namespace

void Pad::compose(ComposeCall& c, const Attr& a) {
  if (a.mode == "constant")
    return c.give(emit<ConstantPadNd>({c.x()}, {.pad = a.pad, .value = a.value}));
  if (a.mode != "reflect" && a.mode != "replicate" && a.mode != "circular")
    c.fail("there is no mode \"{}\"; the modes are constant, reflect, replicate and circular",
           a.mode);
  if (a.value != 0)
    c.fail("'value' is {}, which only mode \"constant\" takes; leave it out", a.value);
  Value y = c.x();
  int rank = y.rank();
  if (a.pad.size() % 2 || a.pad.size() > 2 * static_cast<size_t>(rank))
    c.fail(
        "'pad' lists {} amounts for {}; write before and after of up to {} dimensions, the last "
        "one first",
        a.pad.size(), to_string(y.type), rank);
  for (size_t k = 0; k < a.pad.size() / 2; ++k) {
    int dim = rank - 1 - static_cast<int>(k);
    const Dim &before = a.pad[2 * k], &after = a.pad[2 * k + 1];
    check_amount(c, y.dims()[dim], before, a.mode, dim);
    check_amount(c, y.dims()[dim], after, a.mode, dim);
    SmallVector<Value, 3> parts;
    if (!(before == Dim(0))) parts.push_back(border(y, a.mode, dim, before, true));
    parts.push_back(y);
    if (!(after == Dim(0))) parts.push_back(border(y, a.mode, dim, after, false));
    if (parts.size() > 1) y = cat(parts, dim);
  }
  c.give(y);
}

std::pair<Dim, Dim> ConstantPadNd::Attr::amounts(int d, int rank) const {
  size_t k = 2 * static_cast<size_t>(rank - 1 - d);
  return k + 1 < pad.size() ? std::pair(pad[k], pad[k + 1]) : std::pair(Dim(0), Dim(0));
}

void ConstantPadNd::infer(InferCall& call, const Attr& a) {
  const Type& x = call.tensor(0);
  if (a.pad.size() % 2 || a.pad.size() > 2 * x.dims.size())
    call.fail(
        "'pad' lists {} amounts for {}; write before and after of up to {} dimensions, the "
        "last one first",
        a.pad.size(), to_string(x), x.rank());
  Dims dims = x.dims;
  for (int d = 0; d < x.rank(); ++d) {
    auto [before, after] = a.amounts(d, x.rank());
    dims[d] = x.dims[d] + before + after;
    if (dims[d].is_constant() && dims[d].value() < 0)
      call.fail("amounts of {} and {} leave nothing of dimension {} of {}", before.to_string(),
                after.to_string(), d, to_string(x));
  }
  call.out.emplace_back(x.dtype, std::move(dims), x.device);
}
void ConstantPadNd::bind(BindCall& call, const Attr& a) {
  const Layout& x = call.in[0];
  const Sizes& shape = call.out[0].shape;
  Sizes inner(shape.size()), first(shape.size());  // where x's elements go
  int64_t skipped = 0;                             // elements of x before the first one kept
  bool grows = false, any = true;
  for (int d = 0; d < x.rank(); ++d) {
    auto [before, after] = a.amounts(d, x.rank());
    int64_t b = call.size(before), f = call.size(after), n = x.shape[d];
    if (shape[d] < 0)
      call.fail("amounts of {} and {} leave nothing of dimension {} of {}", b, f, d,
                to_string(x.shape));
    constexpr int64_t far = int64_t{1} << 62;
    if (b < -far || f < -far) call.fail("amounts of {} and {} are absurd", b, f);
    int64_t low = std::max<int64_t>(-b, 0), high = n - std::max<int64_t>(-f, 0);
    grows = grows || b > 0 || f > 0;
    inner[d] = std::max<int64_t>(high - low, 0);
    first[d] = std::max<int64_t>(b, 0);
    any = any && inner[d] > 0;
    if (inner[d] > 0) skipped += low * x.strides[d];
  }
  if (!grows) return call.set_view(0, 0, Layout(x.dtype, shape, x.strides), any ? skipped : 0);
  work::Move c;
  work::Pattern value = work::pattern_of(ir::Number::of(a.value), x.dtype);
  work::Window target = result_window(call);
  if (!any) {
    c.fill(shape, value, target);
    return call.set_work(std::move(c));
  }
  // Slabs before and after along each dimension, within the box of the ones before it.
  Sizes box = shape;
  int64_t corner = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    Sizes slab = box;
    work::Window w = target;
    w.offset = corner;
    slab[d] = first[d];
    c.fill(slab, value, w);
    w.offset = corner + (first[d] + inner[d]) * target.strides[d];
    slab[d] = shape[d] - first[d] - inner[d];
    c.fill(slab, value, w);
    corner += first[d] * target.strides[d];
    box[d] = inner[d];
  }
  work::Window source = operand_window(call, 0), middle = target;
  source.offset = skipped;
  middle.offset = corner;
  c.copy(inner, std::move(source), std::move(middle));
  call.set_work(std::move(c));
}
// One padded dimension: a slice. Otherwise the amounts are taken away again.
Value ConstantPadNd::dx(VjpCall& d, const Attr& a) {
  int rank = d.x_type().rank(), padded = 0, last = 0;
  bool grows = true;
  Dims back;
  for (const Dim& n : a.pad) back.push_back(Dim(0) - n);
  for (int k = 0; k < rank; ++k) {
    auto [before, after] = a.amounts(k, rank);
    if (before == Dim(0) && after == Dim(0)) continue;
    ++padded;
    last = k;
    grows = grows && before.known_nonnegative() && after.known_nonnegative();
  }
  if (padded == 0) return d.dy();
  if (padded == 1 && grows) {
    Dim start = a.amounts(last, rank).first;
    return slice(d.dy(), last, start, start + d.x_type().dims[last]);
  }
  return emit<ConstantPadNd>({d.dy()}, {.pad = back});
}
// The operand in the middle, and slabs before and after along each dimension, within the box that
// those before it leave.
bool ConstantPadNd::edge(EdgeCall& call, const Attr& a) {
  if (!call.in[0]) return false;
  const Layout &x = *call.in[0], &out = call.out;
  call.found.fill = ir::Number::of(a.value);
  Sizes first(out.shape.size(), 0), box = out.shape;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    auto [before, after] = a.amounts(static_cast<int>(d), x.rank());
    const int64_t b = before.evaluate(call.sizes), f = after.evaluate(call.sizes);
    if (b < 0 || f < 0 || x.shape[d] == 0) return false;
    for (const auto& [start, n] : {std::pair(int64_t{0}, b), std::pair(b + x.shape[d], f)}) {
      if (n == 0) continue;
      Sources::Source s{std::nullopt, first, box, Sizes(out.shape.size(), 0)};
      s.first[d] = start;
      s.sizes[d] = n;
      call.found.sources.push_back(std::move(s));
    }
    first[d] = b;
    box[d] = x.shape[d];
  }
  call.found.sources.push_back({0, first, box, x.strides});
  return true;
}

void SliceScatter::infer(InferCall& call, const Attr& a) {
  const Type &x = call.tensor(0), &src = call.tensor(1);
  if (a.step < 1) call.fail("'step' is {}; it must be positive", a.step);
  if (src.dtype != x.dtype)
    call.fail("operand 'src' is {}, 'x' is {}; cast one of them", to_string(src), to_string(x));
  Dims dims = x.dims;
  dims[a.dim] = a.count(x.dims[a.dim]);
  bool fits = src.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d)
    fits = !(src.dims[d].is_constant() && dims[d].is_constant() && !(src.dims[d] == dims[d]));
  if (!fits)
    call.fail("operand 'src' is {}, the slice has the shape {}", to_string(src), to_string(dims));
  for (int d = 0; d < x.rank(); ++d)
    call.require_equal(src.dims[d], dims[d],
                       fmt::format("dimension {} of 'src' and of the slice", d));
  call.out.push_back(x);
}
void SliceScatter::bind(BindCall& call, const Attr& a) {
  const Layout &x = call.in[0], &src = call.in[1];
  const int64_t dim = a.dim;
  auto [first, last] = a.range(call, x.shape[dim]);
  Sizes part = x.shape;
  part[dim] = last > first ? (last - first - 1) / a.step + 1 : 0;
  if (!(part == src.shape))
    call.fail("operand 'src' has the shape {}, the slice {}", to_string(src.shape),
              to_string(part));
  work::Move c;
  work::Window from = operand_window(call, 0), to = result_window(call);
  if (a.step == 1) {  // what lies around the slice
    Sizes around = x.shape;
    around[dim] = first;
    c.copy(around, from, to);
    around[dim] = x.shape[dim] - last;
    work::Window from_end = from, to_end = to;
    from_end.offset += last * from.strides[dim];
    to_end.offset += last * to.strides[dim];
    c.copy(around, std::move(from_end), std::move(to_end));
  } else {
    c.copy(x.shape, from, to);
  }
  to.offset += first * to.strides[dim];
  if (part[dim] > 1) to.strides[dim] *= a.step;
  c.copy(part, operand_window(call, 1), std::move(to));
  call.set_work(std::move(c));
}
void SliceScatter::vjp(VjpCall& d, const Attr& a) {
  d.give(0, [&] {
    Value zeros = zeros_to_fill(d.world, d.x_type(1));
    return emit<SliceScatter>({d.dy(), zeros}, a);
  });
  d.give(1, [&] { return emit<Slice>({d.dy()}, a); });
}

void SelectScatter::compose(ComposeCall& c, const Attr& a) {
  const Value& x = c.x();
  if (!x.is_tensor() || x.rank() == 0) c.fail("operand 'x' must be a tensor with dimensions");
  if (!c.x(1).is_tensor() || c.x(1).rank() != x.rank() - 1)
    c.fail("operand 'src' must have one dimension less than 'x', {}", to_string(x.type));
  const Dim& size = x.dims()[a.dim];
  Dim index = from_start(a.index, size);
  if (size.is_constant() && index.is_constant() &&
      (index.value() < 0 || index.value() >= size.value()))
    c.fail("index {} is out of range for dimension {} of {}", a.index.value(), a.dim,
           to_string(x.type));
  Value row = unsqueeze(c.x(1), a.dim);
  c.give(emit<SliceScatter>({x, row}, {.dim = a.dim, .start = index, .end = index + 1}));
}

}  // namespace gradus::ops
