// Reading and writing at places that tensors name, as ONNX nodes.
#include <algorithm>

#include "gradus/pointwise.h"
#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

Wire index_of(ExportCall& c, size_t i) { return c.x(i, DType::i64); }

Wires gather(ExportCall& c) {
  if (c.rank() == 0) c.refuse("a place in a number");
  return {c.to.node("GatherElements", {c.x(), index_of(c, 1)}, {{"axis", c.axis("dim")}})};
}
Wires scattered(ExportCall& c, const char* how) {
  if (c.rank() == 0) c.refuse("a place in a number");
  std::vector<NodeAttribute> attributes{{"axis", c.axis("dim")}};
  if (*how) attributes.push_back({"reduction", std::string(how)});
  return {
      c.to.node("ScatterElements", {c.x(), index_of(c, 1), c.x(2, c.y_type().dtype)}, attributes)};
}
Wires scatter(ExportCall& c) { return scattered(c, ""); }
Wires scatter_add(ExportCall& c) { return scattered(c, "add"); }

// One without dimensions as one of one element.
Wire as_row(ExportCall& c, const Wire& x) { return c.rank() == 0 ? c.to.reshape(x, Dims{1}) : x; }
Wire of_type(ExportCall& c, const Wire& y) { return c.rank() == 0 ? c.to.reshape(y, Dims{}) : y; }

Wires index_select(ExportCall& c) {
  // The index may be one number, which counts as a list of one.
  Wire index = index_of(c, 1);
  if (c.rank(1) == 0) index = c.to.node("Unsqueeze", {index, c.to.integers({0})});
  return {of_type(c, c.to.node("Gather", {as_row(c, c.x()), index}, {{"axis", c.axis("dim")}}))};
}

// The list of places along a dimension, as one of each element of src.
Wires written(ExportCall& c, const char* how, double scale) {
  auto axis = static_cast<size_t>(c.axis("dim"));
  // src may be a number, and the index one place.
  Dims shape = c.rank() == 0 ? Dims{1} : c.type().dims, along(shape.size(), 1);
  shape[axis] = along[axis] = c.rank(1) == 0 ? Dim(1) : c.type(1).dims[0];
  Wire index = c.to.node("Expand", {c.to.reshape(index_of(c, 1), along), c.to.sizes(shape)});
  Wire src = c.x(2, c.y_type().dtype);
  if (scale != 1)
    src = c.to.node("Mul", {src, c.to.number(c.y_type().dtype, ir::Number::of(scale))});
  src = c.to.node("Expand", {src, c.to.sizes(shape)});
  std::vector<NodeAttribute> attributes{{"axis", static_cast<int64_t>(axis)}};
  if (*how) attributes.push_back({"reduction", std::string(how)});
  return {of_type(c, c.to.node("ScatterElements", {as_row(c, c.x()), index, src}, attributes))};
}
Wires index_copy(ExportCall& c) { return written(c, "", 1); }
Wires index_add(ExportCall& c) { return written(c, "add", c.real("alpha")); }

// x[.., i, j, ..]
struct Places {
  Ints dims, rest;               // dimensions that are indexed, and that are not
  std::vector<size_t> operands;  // the indices
  Dims shape;                    // their common one
  int64_t place = 0;             // where it stands in the result: in front if there is a gap
};

// False where one is a mask.
bool find_places(ExportCall& c, size_t before, Places& p) {
  for (size_t i = before; i < c.operands(); ++i) {
    if (!c.given(i)) continue;
    if (c.type(i).dtype == DType::boolean) return false;
    p.dims.push_back(static_cast<int64_t>(i - before));
    p.operands.push_back(i);
    ops::InferCall infer{*c.node.op, {}, c.node.attributes, {}, nullptr};
    SmallVector<ir::OperandType, 2> both;
    ir::Type common(DType::i64, p.shape);
    both.push_back({ir::OperandType::Kind::tensor, &common});
    both.push_back({ir::OperandType::Kind::tensor, &c.type(i)});
    infer.in = both;
    p.shape = ops::broadcast_dims(infer);
  }
  for (int64_t k = 0; k < c.rank(); ++k)
    if (std::ranges::find(p.dims, k) == p.dims.end()) p.rest.push_back(k);
  if (p.dims.empty()) return false;
  bool adjacent = p.dims.back() - p.dims.front() + 1 == static_cast<int64_t>(p.dims.size());
  p.place = adjacent ? p.dims.front() : 0;
  return true;
}

// [shape.., count]: what GatherND and ScatterND take.
Wire joined(ExportCall& c, const Places& p) {
  std::vector<Wire> columns;
  for (size_t operand : p.operands) {
    Wire column = index_of(c, operand);
    if (!p.shape.empty()) column = c.to.node("Expand", {column, c.to.sizes(p.shape)});
    columns.push_back(c.to.node("Unsqueeze", {column, c.to.integers({-1})}));
  }
  return columns.size() == 1 ? columns[0] : c.to.node("Concat", columns, {{"axis", int64_t{-1}}});
}

Wire transposed(ExportCall& c, const Wire& x, const Ints& order) {
  if (std::ranges::is_sorted(order)) return x;
  return c.to.node("Transpose", {x}, {{"perm", order}});
}
Ints inverse(const Ints& order) {
  Ints back(order.size());
  for (size_t k = 0; k < order.size(); ++k)
    back[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  return back;
}
// The dimensions of x that are indexed, then the others.
Ints indexed_first(const Places& p) {
  Ints order = p.dims;
  order.insert(order.end(), p.rest.begin(), p.rest.end());
  return order;
}
// Of what is read or written, the indices' dimensions, then the others.
Ints picked_first(const Places& p) {
  auto n = static_cast<int64_t>(p.shape.size());
  Ints order;
  for (int64_t k = 0; k < n; ++k) order.push_back(p.place + k);
  for (int64_t k = 0; k < n + static_cast<int64_t>(p.rest.size()); ++k)
    if (k < p.place || k >= p.place + n) order.push_back(k);
  return order;
}

Wires index(ExportCall& c) {
  Places p;
  if (!find_places(c, 1, p)) return {};
  if (p.operands.size() == 1)
    return {c.to.node("Gather", {c.x(), index_of(c, p.operands[0])}, {{"axis", p.dims[0]}})};
  // GatherND indexes the dimensions in front, and leaves the indices' in front.
  Wire x = transposed(c, c.x(), indexed_first(p));
  Wire y = c.to.node("GatherND", {x, joined(c, p)});
  return {transposed(c, y, inverse(picked_first(p)))};
}

Wires index_put(ExportCall& c) {
  Places p;
  if (!find_places(c, 2, p)) return {};
  const Dims& x = c.type().dims;
  Dims shape;
  for (size_t k = 0; k < p.rest.size(); ++k) {
    if (static_cast<int64_t>(k) == p.place) shape.append(p.shape.begin(), p.shape.end());
    shape.push_back(x[static_cast<size_t>(p.rest[k])]);
  }
  if (p.place == static_cast<int64_t>(p.rest.size())) shape.append(p.shape.begin(), p.shape.end());
  Wire values = c.to.node("Expand", {c.x(1, c.y_type().dtype), c.to.sizes(shape)});
  values = transposed(c, values, picked_first(p));
  std::vector<NodeAttribute> how;
  if (c.flag("accumulate")) how.push_back({"reduction", std::string("add")});
  Wire front = transposed(c, c.x(), indexed_first(p));
  Wire y = c.to.node("ScatterND", {front, joined(c, p), values}, how);
  return {transposed(c, y, inverse(indexed_first(p)))};
}

// [count, rank], where data decide the count: a size that the model knows from here on.
Wires nonzero(ExportCall& c) {
  if (c.rank() == 0) c.refuse("a place in a number");
  Wire at = c.to.node("Transpose", {c.to.node("NonZero", {c.x()})}, {{"perm", Ints{1, 0}}});
  c.to.know_size(c.y_type().dims[0], at, 0);
  return {at};
}

constexpr ExportEntry indexing_export_table[] = {
    {"gather", gather},         {"scatter", scatter},     {"scatter_add", scatter_add},
    {"index_copy", index_copy}, {"index_add", index_add}, {"index_select", index_select},
    {"index", index},           {"index_put", index_put}, {"nonzero", nonzero},
};

}  // namespace

constinit const ExportRules indexing_exports = indexing_export_table;

}  // namespace gradus::onnx
