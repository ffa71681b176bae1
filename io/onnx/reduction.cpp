// Reductions along axes, and running sums.
#include <algorithm>
#include <limits>

#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

// Axes are an attribute, and an input since version 13 (ReduceSum) or 18 (the others).
struct Axes {
  Ints axes;     // ascending, none negative
  bool nothing;  // no axes are given, and that means to reduce none
};
Axes axes_of(Call& c, int input_since) {
  std::optional<Ints> given = c.integers("axes");
  if (c.opset() >= input_since && c.given(1)) given = c.integers(1, "axes");
  bool none = !given || given->empty();
  if (none && c.flag("noop_with_empty_axes")) return {{}, true};
  Ints axes;
  for (int64_t a : none ? Ints{} : *given) axes.push_back(c.axis(a, c.rank()));
  if (none)
    for (int i = 0; i < c.rank(); ++i) axes.push_back(i);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) c.fail("an axis is given twice");
  return {axes, false};
}

Value along(std::string_view op, const Value& x, const Ints& axes, bool keep) {
  return emit(op, {x}, {{"dim", Literal::list(axes)}, {"keepdim", keep}});
}

Value product(Value x, const Ints& axes, bool keep) {
  for (size_t i = axes.size(); i-- > 0;)
    x = emit("prod", {x}, {{"dim", axes[i]}, {"keepdim", keep}});
  return x;
}

// The greatest of nothing is the least number that there is.
Value extreme(Call& c, const Value& x, const Ints& axes, bool keep) {
  LiteralList attributes{{"dim", Literal::list(axes)}, {"keepdim", keep}};
  auto size = [&](int64_t d) { return x.dims()[static_cast<size_t>(d)]; };
  const bool floating = is_floating(x.dtype());
  if (floating && !std::ranges::all_of(axes, [&](int64_t d) { return size(d).is_constant(); }))
    attributes.push_back({"allow_empty", true});
  if (std::ranges::none_of(axes, [&](int64_t d) { return size(d) == Dim(0); }))
    return emit(c.ours(), {x}, attributes);
  Dims shape;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool gone = std::ranges::find(axes, d) != axes.end();
    if (!gone || keep) shape.push_back(gone ? Dim(1) : size(d));
  }
  const bool least = c.ours() == "amax";
  Literal value =
      least ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      value = static_cast<int64_t>(least ? Limits::min() : Limits::max());
    }
  });
  return emit_all(c.world(), "full", {},
                  {{"shape", Literal::list(shape)}, {"value", value}, {"dtype", x.dtype()}})[0];
}

Value reduced(Call& c, const Value& x, const Ints& axes, bool keep) {
  const std::string_view op = c.op();
  if (op == "ReduceMax" || op == "ReduceMin") return extreme(c, x, axes, keep);
  if (op == "ReduceProd") return product(x, axes, keep);
  if (op == "ReduceL1") return along("sum", unary("abs", x), axes, keep);
  if (op == "ReduceL2")
    return emit("norm", {x}, {{"p", 2.0}, {"dim", Literal::list(axes)}, {"keepdim", keep}});
  if (op == "ReduceSumSquare") return along("sum", unary("square", x), axes, keep);
  if (op == "ReduceLogSum") return unary("log", along("sum", x, axes, keep));
  return along(c.ours(), x, axes, keep);
}

void reduce(Call& c) {
  Axes a = axes_of(c, c.op() == "ReduceSum" ? 13 : 18);
  Value x = c.x();
  DType dtype = x.dtype();
  bool keep = c.flag("keepdims", true);
  // False < True.
  if (dtype == DType::boolean) x = cast(x, DType::u8);
  if (a.nothing && (c.op() == "ReduceSum" || c.op() == "ReduceMean")) return c.give(x);
  // Nothing is summed, but the function of each element is still taken; integers keep their dtype.
  bool own = a.nothing || a.axes.empty();
  Value y = own ? reduced(c, unsqueeze(x, 0), {0}, false) : reduced(c, x, a.axes, keep);
  c.give(cast(y, dtype));
}

void arg_extreme(Call& c) {
  int axis = c.axis("axis", 0);
  bool keep = c.flag("keepdims", true);
  bool last = c.flag("select_last_index");
  Value x = c.x();
  if (last) x = emit("flip", {x}, {{"dims", Literal::list(Ints{axis})}});
  Value y = emit(c.ours(), {x}, {{"dim", axis}, {"keepdim", keep}});
  if (last) y = Value::number(x.dims()[static_cast<size_t>(axis)] - Dim(1)) - y;
  c.give(y);
}

void running(Call& c) {
  int axis = c.axis(c.integer(1, "axis"), c.rank());
  Value y =
      emit(c.ours(), {c.x()},
           {{"dim", axis}, {"exclusive", c.flag("exclusive")}, {"reverse", c.flag("reverse")}});
  c.give(cast(y, c.dtype()));
}

constexpr RuleEntry reduction_table[] = {
    {"ReduceSum", 1, reduce, "sum"},
    {"ReduceMean", 1, reduce, "mean"},
    {"ReduceMax", 1, reduce, "amax"},
    {"ReduceMin", 1, reduce, "amin"},
    {"ReduceLogSumExp", 1, reduce, "logsumexp"},
    {"ReduceProd", 1, reduce},
    {"ReduceL1", 1, reduce},
    {"ReduceL2", 1, reduce},
    {"ReduceSumSquare", 1, reduce},
    {"ReduceLogSum", 1, reduce},
    {"ArgMax", 1, arg_extreme, "argmax"},
    {"ArgMin", 1, arg_extreme, "argmin"},
    {"CumSum", 11, running, "cumsum"},
    {"CumProd", 26, running, "cumprod"},
};

}  // namespace

constinit const Rules reduction_rules = reduction_table;

}  // namespace gradus::onnx
