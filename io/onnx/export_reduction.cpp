// Reductions, scans and orders as ONNX nodes.
#include <algorithm>

#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

int64_t keeps(ExportCall& c) { return c.flag("keepdim") ? 1 : 0; }

// The dtype in which elements are ordered: truth as 0 and 1.
DType ordered(DType dtype) { return dtype == DType::boolean ? DType::i32 : dtype; }

// Axes are an attribute in version 17, but of ReduceSum; since 18 they are an input.
Wire reduced_over(ExportCall& c, const Wire& x, const Ints& axes) {
  if (c.onnx == "ReduceSum" || c.to.opset() >= 18)
    return c.to.node(c.onnx, {x, c.to.integers(axes)}, {{"keepdims", keeps(c)}});
  return c.to.node(c.onnx, {x}, {{"axes", axes}, {"keepdims", keeps(c)}});
}

Wires reduced(ExportCall& c, DType dtype) {
  Ints axes = c.axes("dim");
  Wire x = c.x(0, dtype);
  if (c.rank() > 0) x = reduced_over(c, x, axes);
  return {c.to.cast(x, dtype, c.y_type().dtype)};
}
Wires total(ExportCall& c) { return reduced(c, c.y_type().dtype); }
Wires extreme(ExportCall& c) { return reduced(c, ordered(c.type().dtype)); }

// Whether sizes say that there are elements.
bool never_empty(ExportCall& c, const Ints& axes) {
  return std::ranges::all_of(axes, [&](int64_t axis) {
    const Dim& d = c.type().dims[static_cast<size_t>(axis)];
    return d.is_constant() && d.value() > 0;
  });
}
// Whether all hold, which the minimum says, or any does. An extremum has no value for no elements:
// where there may be none, those that decide it are counted.
Wires truth(ExportCall& c) {
  const bool every = c.onnx == "ReduceMin";
  const Ints axes = c.rank() > 0 ? c.axes("dim") : Ints{};
  Wire x = c.x(0, DType::boolean);
  if (c.rank() > 0 && !never_empty(c, axes)) {
    if (every) x = c.to.node("Not", {x});
    Wire found =
        c.to.node("ReduceSum", {c.to.cast(x, DType::boolean, DType::i64), c.to.integers(axes)},
                  {{"keepdims", keeps(c)}});
    Wire y = c.to.cast(found, DType::i64, DType::boolean);
    return {every ? c.to.node("Not", {y}) : y};
  }
  x = c.to.cast(x, DType::boolean, DType::i32);
  if (c.rank() > 0) x = reduced_over(c, x, axes);
  return {c.to.cast(x, DType::i32, DType::boolean)};
}

Wire place(ExportCall& c, std::string_view op) {
  DType dtype = ordered(c.type().dtype);
  Wire x = c.x(0, dtype);
  int64_t axis = c.is_none("dim") ? 0 : c.axis("dim");
  if (c.is_none("dim") || c.rank() == 0) x = c.to.reshape(x, Dims{Dim(-1)});
  Wire y = c.to.node(op, {x}, {{"axis", axis}, {"keepdims", keeps(c)}});
  // Of a flattened tensor, or a number, the dimensions are those of the result.
  if (c.is_none("dim") || c.rank() == 0)
    y = c.to.reshape(y, c.y_type(c.node.results.size() - 1).dims);
  return y;
}
Wires arg_extreme(ExportCall& c) { return {place(c, c.onnx)}; }
Wires along(ExportCall& c) {
  DType dtype = ordered(c.type().dtype);
  Wire x = c.x(0, dtype);
  if (c.rank() > 0) x = reduced_over(c, x, Ints{c.axis("dim")});
  x = c.to.cast(x, dtype, c.y_type().dtype);
  return {x, place(c, c.onnx == "ReduceMax" ? "ArgMax" : "ArgMin")};
}

Wires cumsum(ExportCall& c) {
  if (c.rank() == 0) c.refuse("a scan of a number");
  Wire axis = c.to.number(DType::i64, ir::Number::of(c.axis("dim")));
  return {c.to.node(
      "CumSum", {c.x(0, c.y_type().dtype), axis},
      {{"exclusive", int64_t{c.flag("exclusive")}}, {"reverse", int64_t{c.flag("reverse")}}})};
}

Wires greatest(ExportCall& c, const Dim& k, bool largest) {
  if (c.rank() == 0) c.refuse("an order of a number");
  return c.to.nodes("TopK", {c.x(), c.to.size(k)},
                    {{"axis", c.axis("dim")}, {"largest", int64_t{largest}}}, 2);
}
Wires sort(ExportCall& c) {
  Dim all = c.rank() == 0 ? Dim(1) : c.type().dims[static_cast<size_t>(c.axis("dim"))];
  return greatest(c, all, c.flag("descending"));
}
Wires topk(ExportCall& c) { return greatest(c, c.dim("k"), c.flag("largest")); }

Wires softmax(ExportCall& c) {
  if (c.rank() == 0) return {};
  return {c.to.node(c.onnx, {c.x(0, c.y_type().dtype)}, {{"axis", c.axis("dim")}})};
}

// The axis is an attribute until version 20.
Wire discrete_fourier(ExportCall& c, const Wire& x, int64_t axis, bool inverse, bool onesided) {
  const int64_t back = inverse ? 1 : 0, half = onesided ? 1 : 0;
  if (c.to.opset() < 20)
    return c.to.node("DFT", {x}, {{"axis", axis}, {"inverse", back}, {"onesided", half}});
  return c.to.node("DFT", {x, "", c.to.number(DType::i64, ir::Number::of(axis))},
                   {{"inverse", back}, {"onesided", half}});
}
// A transform back is scaled by 1 / n.
Wire scaled_as(ExportCall& c, const Wire& y, const Dim& n, bool inverse) {
  const std::string norm = c.text("norm");
  if (norm == (inverse ? "size" : "none")) return y;
  const DType dtype = c.y_type().dtype;
  Wire scale = c.to.cast(c.to.scalar_size(n), DType::i64, dtype);
  if (norm == "root") scale = c.to.node("Sqrt", {scale});
  return c.to.node(inverse ? "Mul" : "Div", {y, scale});
}

Wires fourier(ExportCall& c) {
  const int64_t axis = c.axis("dim");
  const bool inverse = c.flag("inverse");
  const Wire y = discrete_fourier(c, c.x(), axis, inverse, false);
  return {scaled_as(c, y, c.type().dims[static_cast<size_t>(axis)], inverse)};
}

// Real numbers are complex ones with one part.
Wires real_fourier(ExportCall& c) {
  const int64_t axis = c.axis("dim");
  Dims one = c.type().dims;
  one.push_back(1);
  const Wire y = discrete_fourier(c, c.to.reshape(c.x(), one), axis, false, true);
  return {scaled_as(c, y, c.type().dims[static_cast<size_t>(axis)], false)};
}
// Zeros take the places of the mirror image.
Wires real_fourier_back(ExportCall& c) {
  const int64_t axis = c.axis("dim");
  const Dims& dims = c.type().dims;
  const Dim& n = c.y_type().dims[static_cast<size_t>(axis)];
  Dims pads(2 * dims.size(), Dim(0));
  pads[dims.size() + static_cast<size_t>(axis)] = n - dims[static_cast<size_t>(axis)];
  const Wire zero = c.to.number(c.y_type().dtype, ir::Number::of(int64_t{0}));
  const Wire all = c.to.node("Pad", {c.x(), c.to.sizes(pads), zero});
  const Wire y = discrete_fourier(c, all, axis, true, false);
  const Wire first = c.to.number(DType::i64, ir::Number::of(int64_t{0}));
  const auto last = static_cast<int64_t>(dims.size()) - 1;
  return {scaled_as(c, c.to.node("Gather", {y, first}, {{"axis", last}}), n, true)};
}

constexpr ExportEntry reduction_export_table[] = {
    {"sum", total, "ReduceSum"},
    {"prod", total, "ReduceProd"},
    {"mean", total, "ReduceMean"},
    {"amax", extreme, "ReduceMax"},
    {"amin", extreme, "ReduceMin"},
    {"all", truth, "ReduceMin"},
    {"any", truth, "ReduceMax"},
    {"argmax", arg_extreme, "ArgMax"},
    {"argmin", arg_extreme, "ArgMin"},
    {"max_dim", along, "ReduceMax"},
    {"min_dim", along, "ReduceMin"},
    {"cumsum", cumsum},
    {"fft", fourier},
    {"real_fft", real_fourier},
    {"real_ifft", real_fourier_back},
    {"sort", sort},
    {"topk", topk},
    {"softmax", softmax, "Softmax"},
    {"log_softmax", softmax, "LogSoftmax"},
};

}  // namespace

constinit const ExportRules reduction_exports = reduction_export_table;

}  // namespace gradus::onnx
