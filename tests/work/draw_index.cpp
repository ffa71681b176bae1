// Trials of work that moves elements and of work that takes them one by one.
#include <algorithm>

#include "gradus/pointwise.h"
#include "gradus/registry.h"
#include "tests/work/trial.h"

namespace gradus::work::test {

namespace {

// A window of operand 0 that reads some dimensions backwards.
Window source_window(Random& random, const Layout& l) {
  Window w{0, l.dtype, l.strides, 0};
  for (size_t d = 0; d < w.strides.size(); ++d)
    if (l.shape[d] > 0 && random.chance(0.15)) {
      w.offset += (l.shape[d] - 1) * w.strides[d];
      w.strides[d] = -w.strides[d];
    }
  return w;
}

int64_t extent_of(const Layout& l) { return l.numel() == 0 ? 0 : l.extent(); }

}  // namespace

template <>
void draw<Move>(Random& random, Trial& trial) {
  Move w;
  const DType from = random.dtype(), to = random.chance(0.5) ? from : random.dtype();
  int64_t source_size = 1, target_size = 1;
  for (int64_t n = random.between(1, 3); n > 0; --n) {
    const Sizes shape = random.shape(0, 4);
    const Layout source = random.layout(from, shape), target = random.layout(to, shape, false);
    Window onto{1, to, target.strides, random.between(0, 3)};
    source_size = std::max(source_size, extent_of(source));
    target_size = std::max(target_size, onto.offset + extent_of(target));
    if (random.chance(0.2)) {
      const auto value = random.chance(0.5) ? ir::Number::of(random.number(Values::special))
                                            : ir::Number::of(random.integer(Values::special));
      w.fill(shape, pattern_of(value, to), onto);
    } else if (random.chance(0.2)) {  // by the scratch memory
      const Layout between(from, shape);
      const Window middle{Window::scratch, from, between.strides, 0};
      w.copy(shape, source_window(random, source), middle);
      w.copy(shape, middle, onto);
      w.scratch_bytes =
          std::max(w.scratch_bytes, between.numel() * static_cast<int64_t>(size_of(from)));
    } else {
      w.copy(shape, source_window(random, source), onto);
    }
  }
  if (random.chance(0.2)) {  // columns side by side, as a stack of vectors makes them
    const int64_t columns = random.between(2, 6), used = random.between(2, columns);
    const int64_t rows = random.between(1, random.chance(0.1) ? 40'000 : 1500);
    const int64_t first = target_size;
    for (int64_t c = 0; c < used; ++c) {
      const int64_t step = random.between(1, 3);
      w.copy(Sizes{rows}, {0, from, {step}, random.between(0, 5)}, {1, to, {columns}, first + c});
      source_size = std::max(source_size, 6 + rows * step);
    }
    target_size += rows * columns;
  }
  trial.operand(from, source_size, random.values());
  trial.result(to, target_size);
  trial.work = std::move(w);
}

namespace {

// Of elements; such that work is split over workers, now and then.
int64_t large_room(Random& random) { return random.chance(0.12) ? 150'000 : 1500; }

// What makes Index of the dimensions drawn so far.
struct IndexDraw {
  Random& random;
  Trial& trial;
  Index w;
  bool reads;
  Layout indexed;  // the side's own layout

  explicit IndexDraw(Random& r, Trial& t) : random(r), trial(t) {
    w.op = ops::find("index_select");
    w.sides.dtype = random.dtype();
    w.sides.action = random.pick({IndexAction::read, IndexAction::write, IndexAction::add});
    reads = w.sides.action == IndexAction::read;
    if (w.sides.action == IndexAction::add) w.sides.alpha = random.pick({1.0, 1.0, -2.0, 0.3});
  }
  // Arguments: operand 0, which is read or what the result begins as; the plain operand; indices.
  void set_indexed(const Sizes& shape) {
    indexed = reads ? random.layout(w.sides.dtype, shape) : Layout(w.sides.dtype, shape);
    trial.operand(indexed, Values::special);
  }
  void add_dimension(int64_t size, int64_t stride, bool serial) {
    w.shape.push_back(size);
    w.indexed.push_back(stride);
    w.serial.push_back(serial);
  }
  // An index of dimension d of the indexed side; its strides are over `shape`.
  void add_index(size_t d, const Sizes& shape, size_t before, size_t after) {
    IndexOperand o;
    o.dtype = random.pick({DType::i64, DType::i32});
    o.size = indexed.shape[d];
    o.step = indexed.strides[d];
    o.wraps = random.chance(0.5);
    o.dimension = static_cast<int>(d);
    const Layout l = random.layout(o.dtype, shape, numel(shape) > 0);
    o.argument = trial.operand(l, Values::unit);
    const int64_t count = l.numel();
    for (int64_t i = 0; i < (count == 0 ? 0 : l.extent()); ++i)
      trial.set(o.argument, i, random.between(o.wraps ? -o.size : 0, o.size - 1));
    o.strides.assign(before, 0);
    o.strides.append(l.strides.begin(), l.strides.end());
    o.strides.resize(before + shape.size() + after, 0);
    w.indices.push_back(std::move(o));
  }
  // One index out of range, at the last place.
  void spoil() {
    if (numel(w.shape) == 0 || !random.chance(0.1)) return;
    const IndexOperand& o = w.indices.back();
    int64_t last = 0;
    for (size_t d = 0; d < w.shape.size(); ++d) last += (w.shape[d] - 1) * o.strides[d];
    trial.set(o.argument, last, random.chance(0.5) ? o.size + 3 : -o.size - 1);
  }
  void finish() {
    const DType dtype = w.sides.dtype;
    const Layout plain = random.layout(dtype, w.shape, !reads);
    w.plain = plain.strides;
    if (reads) {
      w.sides.plain = trial.result(dtype, extent_of(plain));
      return trial.work = std::move(w), void();
    }
    if (random.chance(0.2)) {
      w.sides.plain_is_number = true;
      w.sides.number_dtype = random.pick({DType::f64, DType::i64, DType::boolean});
      w.plain.assign(w.shape.size(), 0);
      w.sides.plain = trial.operand(w.sides.number_dtype, 1);
    } else {
      w.sides.plain = trial.operand(plain, Values::special);
    }
    w.sides.indexed = trial.result(dtype, indexed.numel());
    Window from{0, dtype, indexed.strides, 0}, to{w.sides.indexed, dtype, indexed.strides, 0};
    Move begin, end;
    if (w.sides.action == IndexAction::add && accumulation_dtype(dtype) != dtype) {
      const Window sums{Window::scratch, accumulation_dtype(dtype), indexed.strides, 0};
      begin.copy(indexed.shape, from, sums);
      end.copy(indexed.shape, sums, to);
      w.sums = indexed.numel();
    } else {
      begin.copy(indexed.shape, from, to);
    }
    w.begin = std::move(begin.copies);
    w.end = std::move(end.copies);
    trial.work = std::move(w);
  }
};

// Slabs: dimensions that indices pick from, between others.
void draw_slabs(Random& random, Trial& trial) {
  IndexDraw d(random, trial);
  const bool large = random.chance(0.1);
  const Sizes outer = random.shape(1, 2, large ? 2 : 6),
              picks = random.shape(1, 2, large ? 80 : 40),
              inner = random.shape(1, 2, large ? 2500 : 20);
  const size_t count = static_cast<size_t>(random.between(1, 3));
  Sizes sides = outer;
  for (size_t i = 0; i < count; ++i) sides.push_back(random.between(1, 9));
  sides.append(inner.begin(), inner.end());
  d.set_indexed(sides);
  for (size_t i = 0; i < outer.size(); ++i) d.add_dimension(outer[i], d.indexed.strides[i], false);
  for (int64_t n : picks) d.add_dimension(n, 0, true);
  for (size_t i = 0; i < inner.size(); ++i)
    d.add_dimension(inner[i], d.indexed.strides[outer.size() + count + i], false);
  for (size_t i = 0; i < count; ++i)
    d.add_index(outer.size() + i, picks, outer.size(), inner.size());
  d.spoil();
  d.finish();
}

// One index for each element, along one dimension.
void draw_elements(Random& random, Trial& trial) {
  IndexDraw d(random, trial);
  Sizes shape = random.shape(1, 3, large_room(random));
  auto along = static_cast<size_t>(random.between(0, static_cast<int64_t>(shape.size()) - 1));
  if (random.chance(0.03)) {  // very many of each place
    shape = {200'000, random.between(1, 2)};
    along = 0;
  }
  Sizes sides = shape;
  for (int64_t& n : sides) n += random.chance(0.3) ? 2 : 0;
  sides[along] = random.between(1, 50);
  d.set_indexed(sides);
  for (size_t i = 0; i < shape.size(); ++i)
    d.add_dimension(shape[i], i == along ? 0 : d.indexed.strides[i], i == along);
  d.add_index(along, shape, 0, 0);
  d.spoil();
  d.finish();
}

// Windows that overlap, added to zeros.
void draw_window_sum(Random& random, Trial& trial) {
  Index w;
  w.op = ops::find("unfold_sum");
  w.sides.dtype = random.dtype();
  w.sides.action = IndexAction::add;
  w.shape = random.shape(1, 4, large_room(random));
  const Layout source = random.layout(w.sides.dtype, w.shape);
  trial.operand(source, Values::special);
  w.plain = source.strides;
  Layout target(w.sides.dtype, w.shape);
  w.indexed.resize(w.shape.size());
  int64_t reach = 0;  // of the dimensions within
  for (size_t d = w.shape.size(); d-- > 0;) {
    w.indexed[d] = random.chance(0.5) ? random.pick<int64_t>({0, 1, 1, 2, 3, 5, 8, 40})
                                      : std::max<int64_t>(0, reach + random.between(-1, 1));
    reach += std::max<int64_t>(w.shape[d] - 1, 0) * w.indexed[d];
  }
  target.strides = w.indexed;
  const bool empty = target.numel() == 0;
  w.indexed_offset = empty ? 0 : random.between(0, 3);
  for (size_t d = 0; d < w.shape.size(); ++d)
    w.serial.push_back(!empty && !stands_apart(w.shape, w.indexed, d));
  const int64_t elements = w.indexed_offset + extent_of(target) + 2;
  w.sides.indexed = trial.result(w.sides.dtype, elements);
  const DType kept = accumulation_dtype(w.sides.dtype);
  const Window result{w.sides.indexed, w.sides.dtype, {1}, 0};
  const Window sums{Window::scratch, kept, {1}, 0};
  Move begin, end;
  begin.fill({&elements, 1}, Pattern(), kept == w.sides.dtype ? result : sums);
  if (kept != w.sides.dtype) {
    end.copy({&elements, 1}, sums, result);
    w.sums = elements;
  }
  w.begin = std::move(begin.copies);
  w.end = std::move(end.copies);
  trial.work = std::move(w);
}

}  // namespace

template <>
void draw<Index>(Random& random, Trial& trial) {
  random.pick({draw_slabs, draw_elements, draw_window_sum})(random, trial);
}

template <>
void draw<IndexCheck>(Random& random, Trial& trial) {
  IndexOperand o;
  o.dtype = random.pick({DType::i64, DType::i32});
  o.size = random.between(1, 20);
  o.wraps = random.chance(0.5);
  o.dimension = 1;
  const Layout l = random.layout(o.dtype, random.nonempty_shape(0, 3));
  trial.operand(l);
  for (int64_t i = 0; i < l.extent(); ++i)
    trial.set(0, i, random.between(o.wraps ? -o.size : 0, o.size - 1));
  int64_t last = 0;
  for (int d = 0; d < l.rank(); ++d) last += (l.shape[d] - 1) * l.strides[d];
  if (random.chance(0.3)) trial.set(0, last, random.pick({o.size, -o.size - 1, INT64_C(2000000)}));
  o.strides = l.strides;
  trial.work = index_check(*ops::find("index_select"), std::move(o), l.shape);
}

namespace {

// Pointwise operators that need no attribute.
const std::vector<const ir::Operator*>& pointwise_operators() {
  static const std::vector<const ir::Operator*> list = [] {
    std::vector<const ir::Operator*> found;
    for (const ir::Operator* op : ops::all()) try {
        if (op->pointwise && op->read({})) found.push_back(op);
      } catch (const Error&) {
      }
    return found;
  }();
  return list;
}

void draw_power(Random& random, Pointwise& w, Trial& trial) {
  w.exponent_is_number = true;
  PointwiseOperand& number = w.operands[1];
  number = {random.pick({DType::f64, DType::i64}), Sizes(w.shape.size(), 0)};
  trial.operand(number.dtype, 1);
  trial.set(1, 0, random.pick({-2.0, -1.0, -0.5, 0.5, 2.0, 3.0, 0.7, 0.0}));
}

// No zeros, once truncated to integers; but one, the last, in few trials.
void draw_divisors(Random& random, const Layout& l, Trial& trial) {
  const int64_t extent = extent_of(l);
  for (int64_t i = 0; i < extent; ++i)
    if (!(std::abs(trial.get(1, i)) >= 1)) trial.set(1, i, 3.0);
  if (extent > 0 && random.chance(0.2)) trial.set(1, extent - 1, 0.0);
}

}  // namespace

template <>
void draw<Pointwise>(Random& random, Trial& trial) {
  const auto& operators = pointwise_operators();
  const bool power = random.chance(0.1), divides = !power && random.chance(0.1);
  const ir::Operator* op = power     ? ops::find("pow")
                           : divides ? ops::find("floor_divide")
                                     : operators[static_cast<size_t>(random.between(
                                           0, static_cast<int64_t>(operators.size()) - 1))];
  const ops::PointwiseInfo& info = op->pointwise();
  Pointwise w{{op, op->read({})}};
  do w.compute = random.pick({Compute::f64, Compute::f32, Compute::i64, Compute::u64});
  while (!info.loops[static_cast<size_t>(w.compute)] ||
         (power && !is_floating(dtype_of(w.compute))));
  w.shape = random.shape(1, 4);
  w.out = info.result == ops::Result::boolean ? DType::boolean : dtype_of(w.compute);
  if (info.result != ops::Result::boolean && random.chance(0.5))
    w.out =
        w.compute == Compute::f64   ? DType::f64
        : w.compute == Compute::f32 ? random.pick({DType::f16, DType::bf16, DType::f32})
        : w.compute == Compute::u64
            ? DType::u64
            : random.pick({DType::i32, DType::i16, DType::i8, DType::u32, DType::u16, DType::u8});
  const Values values = random.values();
  for (size_t k = 0; k < info.roles.size(); ++k) {
    const Layout l =
        random.layout(random.chance(0.5) ? dtype_of(w.compute) : random.dtype(), w.shape);
    w.operands.push_back({l.dtype, l.strides});
    if (power && k == 1)
      draw_power(random, w, trial);
    else
      trial.operand(l, values);
    if (k == 1 && info.refuses_zero_divisors) draw_divisors(random, l, trial);
  }
  trial.result(w.out, numel(w.shape));
  trial.work = std::move(w);
}

}  // namespace gradus::work::test
