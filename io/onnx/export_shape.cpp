// Shapes, parts, copies and new tensors as ONNX nodes.
#include <limits>

#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

Wires same(ExportCall& c) { return {c.x()}; }

Wires reshape(ExportCall& c) { return {c.to.reshape(c.x(), c.y_type().dims)}; }

Wires expand(ExportCall& c) { return {c.to.node("Expand", {c.x(), c.to.sizes(c.y_type().dims)})}; }

Wires permuted(ExportCall& c, Ints order) {
  return {c.rank() == 0 ? c.x() : c.to.node("Transpose", {c.x()}, {{"perm", std::move(order)}})};
}
Wires transpose(ExportCall& c) {
  Ints order = in_order(c.rank());
  if (c.rank() > 0)
    std::swap(order[static_cast<size_t>(c.axis("dim0"))],
              order[static_cast<size_t>(c.axis("dim1"))]);
  return permuted(c, std::move(order));
}
Wires permute(ExportCall& c) {
  Ints order = c.integers("dims");
  for (int64_t& d : order) d += d < 0 ? c.rank() : 0;
  return permuted(c, std::move(order));
}

Wires squeeze(ExportCall& c) {
  const Dims& dims = c.type().dims;
  Ints axes;
  for (int64_t k = 0; k < c.rank(); ++k)
    if (dims[static_cast<size_t>(k)] == Dim(1) && (c.is_none("dim") || c.axis("dim") == k))
      axes.push_back(k);
  return {axes.empty() ? c.x() : c.to.node("Squeeze", {c.x(), c.to.integers(axes)})};
}
Wires unsqueeze(ExportCall& c) {
  return {c.to.node("Unsqueeze", {c.x(), c.to.integers({c.axis_of("dim", c.rank() + 1)})})};
}

Wire sliced(ModelWriter& to, const Wire& x, const Dim& start, const Dim& end, int64_t axis,
            int64_t step = 1) {
  return to.node("Slice",
                 {x, to.size(start), to.size(end), to.integers({axis}), to.integers({step})});
}
constexpr int64_t to_the_end = std::numeric_limits<int64_t>::max();

Wires slice(ExportCall& c) {
  Dim start = c.is_none("start") ? Dim(0) : c.dim("start");
  Dim end = c.is_none("end") ? Dim(to_the_end) : c.dim("end");
  return {sliced(c.to, c.x(), start, end, c.axis("dim"), c.integer("step"))};
}
Wires narrow(ExportCall& c) {
  Dim start = c.dim("start"), length = c.dim("length");
  int64_t axis = c.axis("dim");
  // A negative start counts from the end.
  if (start.is_constant() && start.value() < 0)
    start = start + c.type().dims[static_cast<size_t>(axis)];
  return {sliced(c.to, c.x(), start, start + length, axis)};
}
Wires select(ExportCall& c) {
  return {
      c.to.node("Gather", {c.x(), c.to.scalar_size(c.dim("index"))}, {{"axis", c.axis("dim")}})};
}
Wires split(ExportCall& c) {
  return c.to.nodes("Split", {c.x(), c.to.sizes(c.dims("sizes"))}, {{"axis", c.axis("dim")}},
                    c.node.results.size());
}

// The order of dimensions that has two of them last, and the one that undoes it.
struct MatrixOrder {
  Ints there, back;
  MatrixOrder(int64_t rank, int64_t first, int64_t second) {
    for (int64_t k = 0, next = 0; k < rank; ++k) {
      const bool other = k != first && k != second;
      if (other) there.push_back(k);
      back.push_back(other ? next++ : k == first ? rank - 2 : rank - 1);
    }
    there.push_back(first);
    there.push_back(second);
  }
};

// Of the last two dimensions as one: every (columns + 1)-th element.
Wires diagonal(ExportCall& c) {
  const Dims& dims = c.type().dims;
  auto first = static_cast<size_t>(c.axis("dim1")), second = static_cast<size_t>(c.axis("dim2"));
  const Ints order = MatrixOrder(c.rank(), c.axis("dim1"), c.axis("dim2")).there;
  Dims shape;
  for (int64_t k : order) shape.push_back(dims[static_cast<size_t>(k)]);
  shape.resize(shape.size() - 2);
  if (!dims[second].is_constant()) c.refuse("a diagonal among columns of a size with a name");
  int64_t columns = dims[second].value(), offset = c.integer("offset");
  shape.push_back(dims[first] * columns);
  Dim start = offset >= 0 ? Dim(offset) : Dim(-offset * columns);
  Dim length = c.y_type().dims[shape.size() - 1];
  Wire flat = c.to.node("Transpose", {c.x()}, {{"perm", order}});
  flat = c.to.reshape(flat, shape);
  return {sliced(c.to, flat, start, start + length * Dim(columns + 1),
                 static_cast<int64_t>(shape.size()) - 1, columns + 1)};
}

Wires cat(ExportCall& c) {
  std::vector<Wire> parts;
  for (size_t i = 0; i < c.operands(); ++i)
    // One of type [0] goes with every rank.
    if (c.rank(i) == c.y_type().rank()) parts.push_back(c.x(i, c.y_type().dtype));
  return {c.to.node("Concat", parts, {{"axis", c.axis_of("dim", c.y_type().rank())}})};
}

Wires flip(ExportCall& c) {
  Ints dims = c.integers("dims");
  if (dims.empty()) return same(c);
  for (int64_t& d : dims) d += d < 0 ? c.rank() : 0;
  Ints starts(dims.size(), -1), ends(dims.size(), std::numeric_limits<int64_t>::min());
  return {c.to.node("Slice", {c.x(), c.to.integers(starts), c.to.integers(ends),
                              c.to.integers(dims), c.to.integers(starts)})};
}

Wires roll(ExportCall& c) {
  Ints shifts = c.integers("shifts"), dims = c.integers("dims");
  Wire x = c.x();
  Dims shape = c.type().dims;
  if (dims.empty()) {
    shape = {ir::numel(c.type().dims)};
    x = c.to.reshape(x, shape);
  }
  for (size_t k = 0; k < shifts.size(); ++k) {
    int64_t axis = dims.empty() ? 0 : dims[k] + (dims[k] < 0 ? c.rank() : 0);
    const Dim& n = shape[static_cast<size_t>(axis)];
    if (n == Dim(0)) continue;
    Dim first = Dim(0) - Dim(shifts[k]);
    first = first - n * floor_div(first, n);  // what comes to the front
    x = c.to.node("Concat",
                  {sliced(c.to, x, first, to_the_end, axis), sliced(c.to, x, 0, first, axis)},
                  {{"axis", axis}});
  }
  return {dims.empty() ? c.to.reshape(x, c.type().dims) : x};
}

// The list (before and after of the last dimension first) as ONNX's: all before, then all after.
Wire pads(ExportCall& c, const Dims& list) {
  auto rank = static_cast<size_t>(c.rank());
  Dims all(2 * rank, 0);
  for (size_t k = 0; k < list.size() / 2; ++k) {
    all[rank - 1 - k] = list[2 * k];
    all[2 * rank - 1 - k] = list[2 * k + 1];
  }
  return c.to.sizes(all);
}
Wire border(ExportCall& c) {
  return c.to.number(c.y_type().dtype, ir::Number::of(c.real("value")));
}
Wires constant_pad(ExportCall& c) {
  if (c.rank() == 0) return same(c);
  return {c.to.node("Pad", {c.x(), pads(c, c.dims("pad")), border(c)})};
}
Wires pad(ExportCall& c) {
  std::string mode = c.text("mode");
  if (mode == "constant") return constant_pad(c);
  if (mode == "circular" || c.rank() == 0) return {};
  return {c.to.node("Pad", {c.x(), pads(c, c.dims("pad"))},
                    {{"mode", std::string(mode == "replicate" ? "edge" : mode)}})};
}

template <bool upper>
Wires triangle(ExportCall& c) {
  return {c.to.node("Trilu",
                    {c.x(), c.to.number(DType::i64, ir::Number::of(c.integer("diagonal")))},
                    {{"upper", int64_t{upper}}})};
}

Wires cast(ExportCall& c) { return {c.x(0, c.y_type().dtype)}; }

Wires constant(ExportCall& c) {
  const ir::Literal& value = c.attribute("value");
  const auto* tensor = std::get_if<Tensor>(&value.value);
  GRADUS_CHECK(tensor);
  return {c.to.constant(tensor->to(c.y_type().dtype))};
}
ir::Number number_in(const ir::Literal& value) {
  if (const bool* b = std::get_if<bool>(&value.value)) return ir::Number::of(*b);
  if (const Dim* d = std::get_if<Dim>(&value.value)) return ir::Number::of(d->value());
  return ir::Number::of(std::get<double>(value.value));
}
// An attribute that may be a size with a name.
Wire value_of(ExportCall& c, std::string_view name, DType dtype) {
  const ir::Literal& value = c.attribute(name);
  const Dim* d = std::get_if<Dim>(&value.value);
  if (!d || d->is_constant()) return c.to.number(dtype, number_in(value));
  return c.to.cast(c.to.scalar_size(*d), DType::i64, dtype);
}
Wires full(ExportCall& c) {
  Wire number = value_of(c, "value", c.y_type().dtype);
  if (c.y_type().rank() == 0) return {number};
  return {c.to.node("Expand", {number, c.to.sizes(c.y_type().dims)})};
}
// start + i * step, i from a Range as long as the result.
Wires arange(ExportCall& c) {
  DType dtype = is_floating(c.y_type().dtype) ? DType::f64 : DType::i64;
  auto whole = [&](int64_t n) { return c.to.number(DType::i64, ir::Number::of(n)); };
  Wire i = c.to.node("Range", {whole(0), c.to.scalar_size(c.y_type().dims[0]), whole(1)});
  i = c.to.cast(i, DType::i64, dtype);
  Wire y = c.to.node(
      "Add", {value_of(c, "start", dtype), c.to.node("Mul", {i, value_of(c, "step", dtype)})});
  return {c.to.cast(y, dtype, c.y_type().dtype)};
}
// start + i * (end - start) / (steps - 1)
Wires linspace(ExportCall& c) {
  double start = c.real("start"), end = c.real("end");
  Dim steps = c.dim("steps");
  auto real = [&](double v) { return c.to.number(DType::f64, ir::Number::of(v)); };
  auto whole = [&](const Dim& d) { return c.to.scalar_size(d); };
  Wire i =
      c.to.cast(c.to.node("Range", {whole(0), whole(steps), whole(1)}), DType::i64, DType::f64);
  Wire gaps = c.to.cast(whole(max(steps - 1, 1)), DType::i64, DType::f64);
  Wire way = c.to.node("Div", {c.to.node("Mul", {i, real(end - start)}), gaps});
  return {c.to.cast(c.to.node("Add", {way, real(start)}), DType::f64, c.y_type().dtype)};
}
// 1 where the column is the row + offset.
Wire unit_matrix(ExportCall& c, const Dim& rows, const Dim& columns, int64_t offset, DType dtype) {
  Wire zero = c.to.number(dtype, ir::Number::of(int64_t{0}));
  Wire zeros = c.to.node("Expand", {zero, c.to.sizes(Dims{rows, columns})});
  return c.to.node("EyeLike", {zeros}, {{"k", offset}});
}
Wires eye(ExportCall& c) {
  const Dims& dims = c.y_type().dims;
  return {unit_matrix(c, dims[0], dims[1], 0, c.y_type().dtype)};
}
// x along rows or columns, whichever are fewer, kept on the diagonal.
Wires diag_embed(ExportCall& c) {
  int64_t offset = c.integer("offset"), rank = c.y_type().rank();
  int64_t first = c.axis_of("dim1", rank), second = c.axis_of("dim2", rank);
  Dim n = c.type().dims[static_cast<size_t>(c.rank()) - 1];
  Dims pads(2 * static_cast<size_t>(c.rank()), 0);
  pads[pads.size() - 1] = Dim(offset < 0 ? -offset : offset);
  DType dtype = c.y_type().dtype;
  Wire zero = c.to.number(dtype, ir::Number::of(int64_t{0}));
  Wire x = c.to.node("Pad", {c.x(), c.to.sizes(pads), zero});
  x = c.to.node("Unsqueeze", {x, c.to.integers({offset < 0 ? -2 : -1})});
  Dim side = n + pads[pads.size() - 1];
  Wire on = c.to.cast(unit_matrix(c, side, side, offset, DType::i64), DType::i64, DType::boolean);
  Wire y = c.to.node("Where", {on, x, zero});
  return {c.to.node("Transpose", {y}, {{"perm", MatrixOrder(rank, first, second).back}})};
}
// x with both dimensions last, src along rows or columns where the diagonal begins at their first,
// kept on the diagonal.
Wires diagonal_scatter(ExportCall& c) {
  const Dims &dims = c.type().dims, &src = c.type(1).dims;
  const int64_t first = c.axis("dim1"), second = c.axis("dim2"), offset = c.integer("offset");
  const MatrixOrder order(c.rank(), first, second);
  const Dim &rows = dims[static_cast<size_t>(first)], &columns = dims[static_cast<size_t>(second)];
  Dims pads(2 * src.size(), 0);
  pads.back() = (offset < 0 ? columns : rows) - src.back();
  DType dtype = c.y_type().dtype;
  Wire put =
      c.to.node("Pad", {c.x(1), c.to.sizes(pads), c.to.number(dtype, ir::Number::of(int64_t{0}))});
  put = c.to.node("Unsqueeze", {put, c.to.integers({offset < 0 ? -2 : -1})});
  Wire on =
      c.to.cast(unit_matrix(c, rows, columns, offset, DType::i64), DType::i64, DType::boolean);
  Wire x = c.to.node("Transpose", {c.x()}, {{"perm", order.there}});
  return {c.to.node("Transpose", {c.to.node("Where", {on, put, x})}, {{"perm", order.back}})};
}
// What is absent, and wanted as a tensor, is zeros.
Wires undefined(ExportCall& c) {
  Wire zero = c.to.number(c.y_type().dtype, ir::Number::of(int64_t{0}));
  return {c.to.node("Expand", {zero, c.to.sizes(c.y_type().dims)})};
}
Wires one_hot(ExportCall& c) {
  Tensor values = Tensor::from(DType::i64, std::array<int64_t, 1>{2}, std::array<double, 2>{0, 1});
  return {c.to.node("OneHot",
                    {c.x(0, DType::i64), c.to.scalar_size(c.dim("classes")), c.to.constant(values)},
                    {{"axis", int64_t{-1}}})};
}

constexpr ExportEntry shape_export_table[] = {
    {"reshape", reshape},
    {"flatten", reshape},
    {"expand", expand},
    {"transpose", transpose},
    {"permute", permute},
    {"squeeze", squeeze},
    {"unsqueeze", unsqueeze},
    {"slice", slice},
    {"narrow", narrow},
    {"select", select},
    {"split", split},
    {"diagonal", diagonal},
    {"cat", cat},
    {"flip", flip},
    {"roll", roll},
    {"pad", pad},
    {"constant_pad_nd", constant_pad},
    {"tril", triangle<false>},
    {"triu", triangle<true>},
    {"cast", cast},
    {"clone", same},
    {"contiguous", same},
    {"detach", same},
    {"constant", constant},
    {"full", full},
    {"arange", arange},
    {"linspace", linspace},
    {"eye", eye},
    {"diag_embed", diag_embed},
    {"diagonal_scatter", diagonal_scatter},
    {"undefined", undefined},
    {"one_hot", one_hot},
};

}  // namespace

constinit const ExportRules shape_exports = shape_export_table;

}  // namespace gradus::onnx
