// Reading and writing at places that tensors name, and what data sizes: how many elements are not
// zero, rows differ, or boxes do not overlap.
#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Negative indices count from the end.
Value from_front(Call& c, size_t input, const Dim& n) {
  Value i = c.x(input);
  if (!is_integral(i.dtype())) c.fail("indices are integers, not {}", name_of(i.dtype()));
  if (c.is_known(input)) {
    bool front = true;
    for (int64_t k : c.known(input, "indices").to_int64s()) front = front && k >= 0;
    if (front) return i;
  }
  return where(lt(i, num(int64_t{0})), i + Value::number(n), i);
}

// x[:, .., index, ..]
Value indexed(Call& c, const Value& x, int axis, const Value& index) {
  std::vector<Value> operands{x};
  operands.resize(static_cast<size_t>(axis) + 1);
  operands.push_back(index);
  return emit_all(c.world(), "index", operands)[0];
}

void gather(Call& c) {
  Value x = c.x();
  int axis = c.axis("axis", 0);
  Value index = c.x(1);
  if (!is_integral(index.dtype())) c.fail("indices are integers, not {}", name_of(index.dtype()));
  if (c.is_known(1) && index.rank() == 0 && c.item(1)->known.item() >= 0)
    return c.give(select(x, axis, c.item(1)->known.to_int64s()[0]));
  c.give(indexed(c, x, axis, index));
}

void gather_elements(Call& c) {
  Value x = c.x();
  int axis = c.axis("axis", 0);
  Value index = from_front(c, 1, x.dims()[static_cast<size_t>(axis)]);
  c.give(gather(x, index, axis));
}

// The operator that takes what is there and what comes; empty for one that there is a scatter for.
std::string_view combining(Call& c, const std::string& reduction) {
  if (reduction == "none" || reduction == "add") return {};
  if (reduction == "mul") return "mul";
  if (reduction == "max") return "maximum";
  if (reduction == "min") return "minimum";
  c.fail("there is no reduction '{}'", reduction);
}

// How many updates of a scatter are made one after the other.
int64_t rounds_of(Call& c, const Dim& size) {
  if (!size.constant() || *size.constant() > 1024)
    c.unsupported("{} that combines {} updates", c.op(), size.to_string());
  return *size.constant();
}

void scatter_elements(Call& c) {
  Value x = c.x();
  int axis = c.axis("axis", 0);
  Value index = from_front(c, 1, x.dims()[static_cast<size_t>(axis)]);
  if (index.rank() != x.rank())
    c.fail("indices have {} dimensions, and x has {}", index.rank(), x.rank());
  std::string reduction = c.attribute("reduction", "none");
  if (std::string_view op = combining(c, reduction); !op.empty()) {
    // Updates of one place differ along the axis: each part of it has a place but once.
    Value updates = c.x(2);
    int64_t n = rounds_of(c, index.dims()[static_cast<size_t>(axis)]);
    for (int64_t k = 0; k < n; ++k) {
      Value at = slice(index, axis, k, k + 1);
      Value there = gather(x, at, axis);
      Value now = binary(op, there, slice(updates, axis, k, k + 1));
      x = emit("scatter", {x, at, now}, {{"dim", axis}});
    }
    return c.give(x);
  }
  const char* op = reduction == "none" ? "scatter" : "scatter_add";
  c.give(emit(op, {x, index, c.x(2)}, {{"dim", axis}}));
}

// The places that the last dimension of an index tensor names, an index tensor for each of x's
// dimensions; those of the first `batch` dimensions are counted.
std::vector<Value> places(Call& c, const Value& index, int batch) {
  auto n = index.rank() > 0 ? index.dims().back().constant() : std::nullopt;
  if (!n || *n > 64)
    c.fail("the last size of its indices is the number of dimensions they are for");
  std::vector<Value> out;
  for (int b = 0; b < batch; ++b) {
    const Dim& size = index.dims()[static_cast<size_t>(b)];
    Value count = arange(c.world(), size);
    Dims shape(static_cast<size_t>(index.rank() - 1), 1);
    shape[static_cast<size_t>(b)] = size;
    out.push_back(reshape(count, shape));
  }
  for (int64_t k = 0; k < *n; ++k) out.push_back(select(index, -1, k));
  return out;
}

// x, and what else an indexing operator takes before its indices.
std::vector<Value> with_front(std::vector<Value> front, const std::vector<Value>& places) {
  front.insert(front.end(), places.begin(), places.end());
  return front;
}

void gather_nd(Call& c) {
  int64_t batch = c.attribute("batch_dims", int64_t{0});
  if (batch < 0 || batch >= c.rank(0) || batch >= c.rank(1)) c.fail("batch_dims is out of range");
  std::vector<Value> at = places(c, c.x(1), static_cast<int>(batch));
  c.give(emit_all(c.world(), "index", with_front({c.x()}, at))[0]);
}

// One update after the other.
Value scatter_one_by_one(Call& c, std::string_view op) {
  Value x = c.x(), index = c.x(1), updates = c.x(2);
  if (index.rank() == 0) c.fail("its indices have no dimension");
  Dims lead(index.dims().begin(), index.dims().end() - 1);
  Dims rest(updates.dims().begin() + index.rank() - 1, updates.dims().end());
  int64_t n = rounds_of(c, ir::numel(lead));
  Dims flat{n};
  for (const Dim& d : rest) flat.push_back(d);
  index = reshape(index, {n, index.dims().back()});
  updates = reshape(updates, flat);
  auto row = [&](const Value& v, int64_t k) { return select(v, 0, k); };
  for (int64_t k = 0; k < n; ++k) {
    std::vector<Value> at = places(c, row(index, k), 0);
    Value there = emit_all(c.world(), "index", with_front({x}, at))[0];
    Value now = binary(op, there, row(updates, k));
    x = emit_all(c.world(), "index_put", with_front({x, now}, at))[0];
  }
  return x;
}

void scatter_nd(Call& c) {
  std::string reduction = c.attribute("reduction", "none");
  if (c.rank(2) < c.rank(1) - 1) c.fail("its updates have too few dimensions");
  if (std::string_view op = combining(c, reduction); !op.empty())
    return c.give(scatter_one_by_one(c, op));
  std::vector<Value> at = places(c, c.x(1), 0);
  c.give(emit_all(c.world(), "index_put", with_front({c.x(), c.x(2)}, at),
                  {{"accumulate", reduction == "add"}})[0]);
}

// Indices beyond the depth leave a row without its one.
void one_hot(Call& c) {
  Dims depth = c.item(1)->as_sizes() ? c.sizes(1, "depth")
                                     : Dims{static_cast<int64_t>(c.number(1, "depth"))};
  if (depth.size() != 1) c.fail("its depth is one number");
  Value index = cast(c.x(0), DType::i64), values = c.x(2);
  int axis = c.axis(c.attribute("axis", int64_t{-1}), index.rank() + 1);
  index = where(lt(index, num(int64_t{0})), index + Value::number(depth[0]), index);
  Value count = arange(c.world(), depth[0]);
  Dims along(static_cast<size_t>(index.rank() + 1), 1);
  along[static_cast<size_t>(axis)] = depth[0];
  Value hot = eq(unsqueeze(index, axis), reshape(count, along));
  auto value = [&](int64_t i) { return select(values, 0, i); };
  Value off = value(0), on = value(1);
  c.give(where(hot, on, off));
}

void nonzero(Call& c) {
  Value x = c.x();
  if (x.rank() == 0) x = unsqueeze(x, 0);
  c.give(transpose(emit("nonzero", {x}, count_of(c)), 0, 1));
}

void compress(Call& c) {
  Value x = c.x(), condition = c.x(1);
  int64_t axis = 0;
  if (c.has("axis"))
    axis = c.axis("axis", 0);
  else
    x = reshape(x, {ir::numel(x.dims())});
  Value at = emit("nonzero", {condition}, count_of(c));
  c.give(index_select(x, select(at, 1, 0), axis));
}

void top_k(Call& c) {
  int axis = c.axis("axis", -1);
  Dim k = c.attribute("k", int64_t{-1});
  if (c.opset() >= 10) {
    Dims sizes = c.sizes(1, "k");
    if (sizes.size() != 1) c.fail("its k is one number");
    k = sizes[0];
  }
  bool largest = c.flag("largest", true);
  for (Value& v : emit_all(c.world(), "topk", std::vector{c.x()},
                           {{"k", k}, {"dim", axis}, {"largest", largest}}))
    c.give(v);
}

// Along `time`, the first length[b] elements of batch b are turned around.
void reverse_sequence(Call& c) {
  Value x = c.x(), length = c.x(1);
  int64_t time = c.attribute("time_axis", int64_t{0}),
          batch = c.attribute("batch_axis", int64_t{1});
  if (x.rank() < 2 || time == batch || time < 0 || time > 1 || batch < 0 || batch > 1)
    c.fail("time_axis and batch_axis are 0 and 1, or 1 and 0");
  const Dim& steps = x.dims()[static_cast<size_t>(time)];
  Value t = unsqueeze(arange(c.world(), steps), batch);
  Value n = unsqueeze(length, time);
  Value at = where(lt(t, n), n - num(int64_t{1}) - t, t);
  c.give(gather(x, expand(under(at, 0, x.rank()), x.dims()), time));
}

Value chosen(const Value& x, const Value& index) { return index_select(x, index, 0); }

// The order of the rows of [n, m], by their first elements first; equal rows keep theirs.
Value order_of(Call& c, const Value& rows) {
  auto m = rows.dims()[1].constant();
  if (!m || *m > 1024) c.unsupported("Unique of rows of {} elements", rows.dims()[1].to_string());
  Value order = arange(c.world(), rows.dims()[0]);
  for (int64_t k = *m; k-- > 0;) {
    Value key = select(rows, 1, k);
    order = chosen(order, emit("argsort", {chosen(key, order)}, {{"dim", 0}}));
  }
  return order;
}

// Unique: rows that differ, by sorting. How many there are, data decide.
void unique(Call& c) {
  Value x = c.x();
  bool by_rows = c.has("axis");
  int axis = by_rows ? c.axis("axis", 0) : 0;
  Value front = by_rows ? emit("movedim", {x}, {{"source", axis}, {"destination", 0}})
                        : reshape(x, {ir::numel(x.dims())});
  Dim n = front.dims()[0];
  Dims inner(front.dims().begin() + 1, front.dims().end());
  Value rows = reshape(front, {n, ir::numel(inner)});
  Value order = order_of(c, rows), sorted = chosen(rows, order);
  // A row begins a group if it differs from the one before; the first one does.
  Value differs =
      emit("any", {ne(slice(sorted, 0, 1, n), slice(sorted, 0, 0, n - Dim(1)))}, {{"dim", 1}});
  Value one = ops::full(c.world(), {1}, 1, DType::boolean);
  Value begins = cat(std::vector{one, differs}, 0);
  Value group = emit("cumsum", {cast(begins, DType::i64)}, {{"dim", 0}}) - num(int64_t{1});
  Value first = select(emit("nonzero", {begins}, count_of(c)), 1, 0);
  Value indices = chosen(order, first);
  Value inverse = emit("scatter", {zeros_like(order), order, group}, {{"dim", 0}});
  Value counts = emit("scatter_add", {zeros_like(indices), group, ones_like(group)}, {{"dim", 0}});
  if (!c.flag("sorted", true)) {
    // In the order in which they first appear.
    Value appear = emit("argsort", {indices}, {{"dim", 0}});
    inverse = chosen(emit("argsort", {appear}, {{"dim", 0}}), inverse);
    indices = chosen(indices, appear);
    counts = chosen(counts, appear);
  }
  Value y = chosen(front, indices);
  if (by_rows) y = emit("movedim", {y}, {{"source", 0}, {"destination", axis}});
  for (const Value& v : {y, indices, inverse, counts}) c.give(v);
}

// NonMaxSuppression: of boxes that overlap, the one with the best score.
// Each box costs a few nodes, and a comparison with every other.
constexpr int64_t most_boxes = 1024;

// The two ends of boxes [.., 4] along one axis, and how long they are.
struct Extent {
  Value low, high;
  Value length() const { return high - low; }
};
Extent extent_of(const Value& boxes, int64_t axis, bool centered) {
  Value a = select(boxes, -1, axis), b = select(boxes, -1, axis + 2);
  if (!centered) return {binary("minimum", a, b), binary("maximum", a, b)};
  return {a - b / 2.0, a + b / 2.0};
}

// How much of two extents is common, for each of [.., n] with each.
Value common(const Extent& e) {
  Value high = binary("minimum", unsqueeze(e.high, -1), unsqueeze(e.high, -2));
  Value low = binary("maximum", unsqueeze(e.low, -1), unsqueeze(e.low, -2));
  return unary("relu", high - low);
}

// Intersection over union, [.., n, n].
Value overlaps(const Value& boxes, bool centered) {
  Extent y = extent_of(boxes, 0, centered), x = extent_of(boxes, 1, centered);
  Value area = y.length() * x.length();
  Value both = common(y) * common(x);
  Value either = unsqueeze(area, -1) + unsqueeze(area, -2) - both;
  return where(gt(both, num(0.0)), both / either, num(0.0));
}

// One number, of [] or [1].
Value number_of(Call& c, size_t i) { return reshape(c.x(i), {}); }

void suppress(Call& c) {
  Value boxes = c.x(0), scores = c.x(1);
  if (boxes.rank() != 3 || scores.rank() != 3)
    c.fail("it wants boxes [N, boxes, 4] and scores [N, classes, boxes]");
  auto n = boxes.dims()[1].constant();
  if (!n || *n > most_boxes)
    c.unsupported("NonMaxSuppression of {} boxes", boxes.dims()[1].to_string());
  auto sorted =
      emit_all(c.world(), "sort", std::vector{scores}, {{"dim", 2}, {"descending", true}});
  Value order = sorted[1];
  Value sample = reshape(arange(c.world(), boxes.dims()[0]), {boxes.dims()[0], 1, 1});
  Value by_score = emit_all(c.world(), "index", std::vector{boxes, sample, order})[0];
  Value iou = overlaps(by_score, c.flag("center_point_box"));
  Value near = c.given(3) ? gt(iou, number_of(c, 3)) : gt(iou, num(0.0));
  Value alive =
      c.given(4) ? gt(sorted[0], number_of(c, 4)) : cast(ones_like(order), DType::boolean);
  Value place = arange(c.world(), *n);
  for (int64_t i = 0; i < *n; ++i) {
    Value here = unsqueeze(select(alive, 2, i), 2);
    Value others = logical_and(select(near, 2, i), gt(place, num(i)));
    alive = logical_and(alive, logical_not(logical_and(here, others)));
  }
  Value rank = emit("cumsum", {cast(alive, DType::i64)}, {{"dim", 2}});
  Value most = c.given(2) ? number_of(c, 2) : ops::full(c.world(), {}, 0, DType::i64);
  alive = logical_and(alive, le(rank, most));
  // By sample, class and score; the last number is the box's own.
  Value at = emit("nonzero", {alive}, count_of(c));
  Value i = select(at, 1, 0), j = select(at, 1, 1), k = select(at, 1, 2);
  Value box = emit_all(c.world(), "index", std::vector{order, i, j, k})[0];
  c.give(emit_all(c.world(), "stack", std::vector{i, j, box}, {{"dim", 1}})[0]);
}

constexpr RuleEntry indexing_table[] = {
    {"Gather", 1, gather},
    {"GatherElements", 11, gather_elements},
    {"GatherND", 11, gather_nd},
    {"Scatter", 9, scatter_elements},
    {"ScatterElements", 11, scatter_elements},
    {"ScatterND", 11, scatter_nd},
    {"OneHot", 9, one_hot},
    {"NonZero", 9, nonzero},
    {"Compress", 9, compress},
    {"TopK", 1, top_k},
    {"ReverseSequence", 10, reverse_sequence},
    {"Unique", 11, unique},
    {"NonMaxSuppression", 10, suppress},
};

}  // namespace

constinit const Rules indexing_rules = indexing_table;

}  // namespace gradus::onnx
