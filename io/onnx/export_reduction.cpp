// Reductions, scans and orders as ONNX nodes.
#include <algorithm>

#include "io/onnx/exporter.h"

namespace gradus::onnx {

namespace {

int64_t keeps(ExportCall& c) { return c.flag("keepdim") ? 1 : 0; }

// Axes are an attribute in version 17, but of ReduceSum an input.
bool reduced(ExportCall& c, std::string_view op, DType dtype) {
  Ints axes = c.axes("dim");
  Wire x = c.x(0, dtype);
  if (c.rank() > 0) {
    if (op == "ReduceSum")
      x = c.to.node(op, {x, c.to.integers(axes)}, {{"keepdims", keeps(c)}});
    else
      x = c.to.node(op, {x}, {{"axes", axes}, {"keepdims", keeps(c)}});
  }
  c.give(c.to.cast(x, dtype, c.y_type().dtype));
  return true;
}
bool sum(ExportCall& c) { return reduced(c, "ReduceSum", c.y_type().dtype); }
bool prod(ExportCall& c) { return reduced(c, "ReduceProd", c.y_type().dtype); }
bool mean(ExportCall& c) { return reduced(c, "ReduceMean", c.y_type().dtype); }
// Truth as 0 and 1.
DType ordered(DType dtype) { return dtype == DType::boolean ? DType::i32 : dtype; }
bool amax(ExportCall& c) { return reduced(c, "ReduceMax", ordered(c.type().dtype)); }
bool amin(ExportCall& c) { return reduced(c, "ReduceMin", ordered(c.type().dtype)); }

// Whether sizes say that there are elements.
bool never_empty(ExportCall& c, const Ints& axes) {
  return std::ranges::all_of(axes, [&](int64_t axis) {
    const Dim& d = c.type().dims[static_cast<size_t>(axis)];
    return d.is_constant() && d.value() > 0;
  });
}
// Whether all hold (`every`), or any does, by the extremum `op`. That has no value for no elements:
// where there may be none, those that decide it are counted.
bool truth(ExportCall& c, std::string_view op, bool every) {
  const Ints axes = c.rank() > 0 ? c.axes("dim") : Ints{};
  Wire x = c.x(0, DType::boolean);
  if (c.rank() > 0 && !never_empty(c, axes)) {
    if (every) x = c.to.node("Not", {x});
    Wire found =
        c.to.node("ReduceSum", {c.to.cast(x, DType::boolean, DType::i64), c.to.integers(axes)},
                  {{"keepdims", keeps(c)}});
    Wire y = c.to.cast(found, DType::i64, DType::boolean);
    c.give(every ? c.to.node("Not", {y}) : y);
    return true;
  }
  x = c.to.cast(x, DType::boolean, DType::i32);
  if (c.rank() > 0) x = c.to.node(op, {x}, {{"axes", axes}, {"keepdims", keeps(c)}});
  c.give(c.to.cast(x, DType::i32, DType::boolean));
  return true;
}
bool all(ExportCall& c) { return truth(c, "ReduceMin", true); }
bool any(ExportCall& c) { return truth(c, "ReduceMax", false); }

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
bool argmax(ExportCall& c) {
  c.give(place(c, "ArgMax"));
  return true;
}
bool argmin(ExportCall& c) {
  c.give(place(c, "ArgMin"));
  return true;
}
bool along(ExportCall& c, std::string_view reduce, std::string_view arg) {
  DType dtype = ordered(c.type().dtype);
  Wire x = c.x(0, dtype);
  if (c.rank() > 0)
    x = c.to.node(reduce, {x}, {{"axes", Ints{c.axis("dim")}}, {"keepdims", keeps(c)}});
  c.give(c.to.cast(x, dtype, c.y_type().dtype));
  c.give(place(c, arg));
  return true;
}
bool max_dim(ExportCall& c) { return along(c, "ReduceMax", "ArgMax"); }
bool min_dim(ExportCall& c) { return along(c, "ReduceMin", "ArgMin"); }

bool cumsum(ExportCall& c) {
  if (c.rank() == 0) return c.refuse("a scan of a number"), false;
  Wire axis = c.to.number(DType::i64, ir::Number::of(c.axis("dim")));
  c.give(c.to.node(
      "CumSum", {c.x(0, c.y_type().dtype), axis},
      {{"exclusive", int64_t{c.flag("exclusive")}}, {"reverse", int64_t{c.flag("reverse")}}}));
  return true;
}

bool greatest(ExportCall& c, const Dim& k, bool largest) {
  if (c.rank() == 0) c.refuse("an order of a number");
  for (Wire& w : c.to.nodes("TopK", {c.x(), c.to.size(k)},
                            {{"axis", c.axis("dim")}, {"largest", int64_t{largest}}}, 2))
    c.give(std::move(w));
  return true;
}
bool sort(ExportCall& c) {
  Dim all = c.rank() == 0 ? Dim(1) : c.type().dims[static_cast<size_t>(c.axis("dim"))];
  return greatest(c, all, c.flag("descending"));
}
bool topk(ExportCall& c) { return greatest(c, c.dim("k"), c.flag("largest")); }

bool softmax_like(ExportCall& c, std::string_view op) {
  if (c.rank() == 0) return false;
  c.give(c.to.node(op, {c.x(0, c.y_type().dtype)}, {{"axis", c.axis("dim")}}));
  return true;
}
bool softmax(ExportCall& c) { return softmax_like(c, "Softmax"); }
bool log_softmax(ExportCall& c) { return softmax_like(c, "LogSoftmax"); }

constexpr ExportEntry reduction_export_table[] = {
    {"sum", sum},       {"prod", prod},       {"mean", mean},       {"amax", amax},
    {"amin", amin},     {"all", all},         {"any", any},         {"argmax", argmax},
    {"argmin", argmin}, {"max_dim", max_dim}, {"min_dim", min_dim}, {"cumsum", cumsum},
    {"sort", sort},     {"topk", topk},       {"softmax", softmax}, {"log_softmax", log_softmax},
};

}  // namespace

std::span<const ExportEntry> reduction_exports() { return reduction_export_table; }

}  // namespace gradus::onnx
