// Operators that move elements: reshapes, slices, joins, borders.
#include <algorithm>

#include "io/onnx/call.h"
#include "io/onnx/importer.h"

namespace gradus::onnx {

using namespace ops;

namespace {

void shape_of(Call& c) {
  const Dims& all = c.type().dims;
  auto n = static_cast<int64_t>(all.size());
  auto bound = [&](int64_t b) { return std::clamp<int64_t>(b < 0 ? b + n : b, 0, n); };
  int64_t start = bound(c.attribute("start", int64_t{0})), end = bound(c.attribute("end", n));
  Dims part;
  for (int64_t i = start; i < end; ++i) part.push_back(all[static_cast<size_t>(i)]);
  c.give(Item::of_sizes(std::move(part), false));
}

void size_of_tensor(Call& c) { c.give(Item::of_sizes({ir::numel(c.type().dims)}, true)); }

// 0 keeps a size unless `allowzero`; the one -1 is what is left.
void reshape_to(Call& c) {
  Value x = c.x();
  Dims shape = c.opset() < 5 || !c.given(1) ? c.sizes("shape") : c.sizes(1, "shape");
  bool zero = c.flag("allowzero");
  for (size_t i = 0; i < shape.size(); ++i)
    if (!zero && shape[i] == Dim(0)) {
      if (i >= x.dims().size()) c.fail("size {} is kept, but there is none", i);
      shape[i] = x.dims()[i];
    }
  c.give(emit("reshape", {x}, {{"shape", Literal::list(shape)}}));
}

void flatten(Call& c) {
  Value x = c.x();
  int rank = x.rank();
  int64_t axis = c.attribute("axis", int64_t{1});
  if (axis < -rank || axis > rank) c.fail("axis {} is out of range for {} dimensions", axis, rank);
  if (axis < 0) axis += rank;
  Dims lead(x.dims().begin(), x.dims().begin() + axis);
  Dims rest(x.dims().begin() + axis, x.dims().end());
  c.give(reshape(x, {ir::numel(lead), ir::numel(rest)}));
}

void transposed(Call& c) {
  Value x = c.x();
  Ints order;
  for (int i = x.rank(); i-- > 0;) order.push_back(i);
  c.give(permute(x, c.integers("perm").value_or(order)));
}

// The axes of Squeeze and Unsqueeze: an input since version 13.
std::optional<Ints> axes_of(Call& c) {
  if (c.opset() >= 13) return c.given(1) ? std::optional(c.integers(1, "axes")) : std::nullopt;
  return c.integers("axes");
}

void squeezed(Call& c) {
  Value x = c.x();
  auto axes = axes_of(c);
  Dims kept;
  std::vector<bool> gone(x.dims().size());
  for (int64_t a : axes.value_or(Ints{})) gone[static_cast<size_t>(c.axis(a, x.rank()))] = true;
  for (size_t i = 0; i < gone.size(); ++i) {
    bool one = x.dims()[i] == Dim(1);
    if (!axes) gone[i] = one;
    if (gone[i] && x.dims()[i].constant() && !one)
      c.fail("dimension {} has size {}, not 1", i, x.dims()[i].to_string());
    if (!gone[i]) kept.push_back(x.dims()[i]);
  }
  c.give(reshape(x, kept));
}

void unsqueezed(Call& c) {
  Value x = c.x();
  auto axes = axes_of(c);
  if (!axes) c.fail("its axes are missing");
  constexpr size_t most = 64;
  if (axes->size() > most) c.unsupported("{} more dimensions", axes->size());
  int rank = x.rank() + static_cast<int>(axes->size());
  std::vector<bool> fresh(static_cast<size_t>(rank));
  for (int64_t a : *axes) {
    auto at = static_cast<size_t>(c.axis(a, rank));
    if (fresh[at]) c.fail("an axis is given twice");
    fresh[at] = true;
  }
  for (size_t i = 0; i < fresh.size(); ++i)
    if (fresh[i]) x = unsqueeze(x, static_cast<int64_t>(i));
  c.give(x);
}

// Both shapes broadcast: a size 1 of the shape keeps what is there.
void expanded(Call& c) {
  Value x = c.x();
  Dims shape = c.sizes(1, "shape"), to;
  size_t rank = std::max(shape.size(), x.dims().size());
  if (rank > 64) c.unsupported("{} dimensions", rank);
  for (size_t i = 0; i < rank; ++i) {
    size_t mine = rank - x.dims().size(), theirs = rank - shape.size();
    Dim here = i < mine ? Dim(1) : x.dims()[i - mine];
    Dim there = i < theirs ? Dim(1) : shape[i - theirs];
    to.push_back(there == Dim(1) ? here : there);
  }
  c.give(expand(x, to));
}

void tiled(Call& c) {
  Value x = c.x();
  if (c.opset() < 6) c.unsupported("Tile of version {}", c.opset());
  Dims times = c.sizes(1, "repeats");
  if (times.size() != x.dims().size()) c.fail("it wants a number for each dimension");
  c.give(emit("repeat", {x}, {{"repeats", Literal::list(times)}}));
}

void joined(Call& c) {
  std::vector<Value> parts;
  for (size_t i = 0; i < c.inputs(); ++i) parts.push_back(c.x(i));
  if (parts.empty()) c.fail("it wants an input");
  int64_t axis = c.attribute("axis", int64_t{c.opset() < 4 ? 1 : 0});
  c.give(cat(parts, c.axis(axis, parts[0].rank())));
}

void split_up(Call& c) {
  Value x = c.x();
  int axis = c.axis("axis", 0);
  const Dim& n = x.dims()[static_cast<size_t>(axis)];
  auto parts = static_cast<int64_t>(c.outputs());
  Dims sizes;
  if ((c.opset() >= 13 || c.opset() < 2) && c.given(1)) {
    sizes = c.sizes(1, "split");
  } else if (c.has("split")) {
    sizes = c.sizes("split");
  } else {
    parts = c.attribute("num_outputs", parts);
    if (parts < 1) c.fail("it has no results");
    if (parts != static_cast<int64_t>(c.outputs())) c.fail("num_outputs is not how many there are");
    // The last part has what is left.
    Dim each = floor_div(n + Dim(parts - 1), parts);
    for (int64_t i = 0; i + 1 < parts; ++i) sizes.push_back(each);
    sizes.push_back(n - each * Dim(parts - 1));
  }
  for (Value& v : emit_all(c.world(), "split", std::vector{x},
                           {{"sizes", Literal::list(sizes)}, {"dim", axis}}))
    c.give(v);
}

// One dimension of a slice. A size with a name is counted from the front.
Value sliced(Call& c, const Value& x, int axis, Dim start, Dim end, int64_t step) {
  const Dim& n = x.dims()[static_cast<size_t>(axis)];
  if (step == 0 || step == INT64_MIN) c.fail("a step is {}", step);
  auto from_front = [&](const Dim& b) { return b.constant() && *b.constant() < 0 ? n + b : b; };
  if (step > 0) {
    // Bounds beyond the end are many exporters' word for the end.
    auto far = [](const Dim& b) { return b.constant() && *b.constant() >= INT32_MAX; };
    if (far(end)) end = n;
    if (start.constant() && *start.constant() < 0 && !n.constant()) start = max(n + start, 0);
    if (end.constant() && *end.constant() < 0 && !n.constant()) end = max(n + end, 0);
    return slice(x, axis, start, end, step);
  }
  // Backwards: the same elements in order, of the dimension turned around.
  Value turned = emit("flip", {x}, {{"dims", Literal::list(Ints{axis})}});
  bool to_front = end.constant() && n.constant() ? *end.constant() < -*n.constant()
                                                 : end.constant() && *end.constant() <= -INT32_MAX;
  Dim first = min(from_front(start), n - Dim(1));
  Dim last = to_front ? Dim(-1) : max(from_front(end), -1);
  return slice(turned, axis, n - Dim(1) - first, n - Dim(1) - last, -step);
}

void slice_up(Call& c) {
  Value x = c.x();
  Dims starts, ends;
  std::optional<Ints> axes, steps;
  if (c.opset() < 10) {
    starts = c.sizes("starts");
    ends = c.sizes("ends");
    axes = c.integers("axes");
  } else {
    starts = c.sizes(1, "starts");
    ends = c.sizes(2, "ends");
    if (c.given(3)) axes = c.integers(3, "axes");
    if (c.given(4)) steps = c.integers(4, "steps");
  }
  size_t n = starts.size();
  if (ends.size() != n || (axes && axes->size() != n) || (steps && steps->size() != n) ||
      n > x.dims().size())
    c.fail("starts, ends, axes and steps have not one length");
  for (size_t i = 0; i < n; ++i) {
    int axis = c.axis(axes ? (*axes)[i] : static_cast<int64_t>(i), x.rank());
    x = sliced(c, x, axis, starts[i], ends[i], steps ? (*steps)[i] : 1);
  }
  c.give(x);
}

// ONNX has all that comes before, then all that comes after; here pairs, the last dimension first.
Dims pad_amounts(Call& c, const Dims& amounts, const std::optional<Ints>& axes, int rank) {
  size_t n = axes ? axes->size() : static_cast<size_t>(rank);
  if (amounts.size() != 2 * n) c.fail("it wants two amounts for each dimension");
  std::vector<std::pair<Dim, Dim>> by_dim(static_cast<size_t>(rank), {0, 0});
  for (size_t i = 0; i < n; ++i) {
    int d = axes ? c.axis((*axes)[i], rank) : static_cast<int>(i);
    by_dim[static_cast<size_t>(d)] = {amounts[i], amounts[i + n]};
  }
  Dims out;
  for (size_t i = by_dim.size(); i-- > 0;) {
    out.push_back(by_dim[i].first);
    out.push_back(by_dim[i].second);
  }
  return out;
}

// Reflections and copies of the edge along any dimensions, by index.
Value bordered(Call& c, Value x, const Dims& amounts, const std::string& mode) {
  for (int d = 0; d < x.rank(); ++d) {
    size_t at = 2 * static_cast<size_t>(x.rank() - 1 - d);
    Dim before = amounts[at], after = amounts[at + 1], n = x.dims()[static_cast<size_t>(d)];
    if (before == Dim(0) && after == Dim(0)) continue;
    Value i =
        emit_all(c.world(), "arange", {}, {{"start", Dim(0) - before}, {"end", n + after}})[0];
    Value last = Value::number(n - Dim(1));
    if (mode == "reflect") {
      i = unary("abs", i);
      i = last - unary("abs", last - i);
    } else if (mode == "wrap") {
      i = binary("remainder", i, Value::number(n));
    } else {
      i = between(i, num(int64_t{0}), last);
    }
    x = index_select(x, i, d);
  }
  return x;
}

void pad(Call& c) {
  Value x = c.x();
  Dims given;
  std::optional<Ints> axes;
  double value = 0;
  if (c.opset() < 11) {
    given = c.sizes("pads");
    value = c.attribute("value", 0.0);
  } else {
    given = c.sizes(1, "pads");
    if (c.given(2)) value = c.number(2, "constant_value");
    if (c.given(3)) axes = c.integers(3, "axes");
  }
  Dims amounts = pad_amounts(c, given, axes, x.rank());
  std::string mode = c.attribute("mode", "constant");
  if (mode == "constant")
    return c.give(
        emit("constant_pad_nd", {x}, {{"pad", Literal::list(amounts)}, {"value", value}}));
  if (mode != "reflect" && mode != "edge" && mode != "wrap") c.fail("there is no mode '{}'", mode);
  c.give(bordered(c, x, amounts, mode));
}

// The middle of each dimension, or zeros around it: what is odd is cut off or added at the end.
void center_crop_pad(Call& c) {
  Value x = c.x();
  Dims sizes = c.sizes(1, "shape");
  Ints axes = c.integers("axes").value_or(Ints{});
  if (!c.has("axes"))
    for (int d = 0; d < x.rank(); ++d) axes.push_back(d);
  if (axes.size() != sizes.size()) c.fail("it wants a size for each of {} axes", axes.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    int d = c.axis(axes[k], x.rank());
    Dim n = x.dims()[static_cast<size_t>(d)];
    Dim cut = floor_div(max(n - sizes[k], 0), 2), missing = max(sizes[k] - n, 0);
    x = slice(x, d, cut, cut + min(n, sizes[k]));
    Dim before = floor_div(missing, 2);
    x = pad_zeros(x, d, before, missing - before);
  }
  c.give(x);
}

int64_t block_of(Call& c) {
  if (c.rank() != 4) c.fail("it wants images [N, C, H, W]");
  return c.size("blocksize", 0);
}

void depth_to_space(Call& c) {
  Value x = c.x();
  int64_t b = block_of(c);
  Dim n = x.dims()[0], depth = floor_div(x.dims()[1], b * b), h = x.dims()[2], w = x.dims()[3];
  bool by_column = c.attribute("mode", "DCR") == "CRD";
  Value y = by_column ? permute(reshape(x, {n, depth, b, b, h, w}), {0, 1, 4, 2, 5, 3})
                      : permute(reshape(x, {n, b, b, depth, h, w}), {0, 3, 4, 1, 5, 2});
  c.give(reshape(y, {n, depth, h * Dim(b), w * Dim(b)}));
}

void space_to_depth(Call& c) {
  Value x = c.x();
  int64_t b = block_of(c);
  Dim n = x.dims()[0], depth = x.dims()[1];
  Dim h = floor_div(x.dims()[2], b), w = floor_div(x.dims()[3], b);
  bool by_column = c.attribute("mode", "DCR") == "CRD";
  Value y = permute(reshape(x, {n, depth, h, b, w, b}),
                    by_column ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4});
  c.give(reshape(y, {n, depth * Dim(b * b), h, w}));
}

void triangle(Call& c) {
  int64_t k = c.given(1) ? c.integer(1, "k") : 0;
  const char* op = c.flag("upper", true) ? "triu" : "tril";
  c.give(emit(op, {c.x()}, {{"diagonal", k}}));
}

constexpr RuleEntry shape_table[] = {
    {"Shape", 1, shape_of, {}, false},
    {"Size", 1, size_of_tensor, {}, false},
    {"Reshape", 1, reshape_to},
    {"Flatten", 1, flatten},
    {"Transpose", 1, transposed},
    {"Squeeze", 1, squeezed},
    {"Unsqueeze", 1, unsqueezed},
    {"Expand", 8, expanded},
    {"Tile", 1, tiled},
    {"Concat", 1, joined},
    {"Split", 1, split_up},
    {"Slice", 1, slice_up},
    {"Pad", 2, pad},
    {"CenterCropPad", 18, center_crop_pad},
    {"DepthToSpace", 1, depth_to_space},
    {"SpaceToDepth", 1, space_to_depth},
    {"Trilu", 14, triangle},
};

}  // namespace

constinit const Rules shape_rules = shape_table;

}  // namespace gradus::onnx
