// Gradients that ATen has as operators of their own: what a program holds that was traced through
// autograd. Each is the derivative of what it belongs to, so that it has derivatives itself.
#include <functional>
#include <numeric>

#include "io/pt2/shapes.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

using Forward = std::function<Value(std::span<const Value> x)>;

// The gradients of forward(x..) with respect to each x, for a cotangent. An x that follows from
// another one is taken for a variable of its own, as a partial derivative has it.
std::vector<Value> gradients_of(Call& c, const Forward& forward, std::span<const Value> x,
                                const Value& cotangent) {
  std::vector<Value> variables;
  for (const Value& v : x) variables.push_back(emit("clone", {v}));
  std::vector<Value> operands{forward(variables), cotangent};
  operands.insert(operands.end(), variables.begin(), variables.end());
  auto gradients = emit_all(c.world(), "grad", operands, {{"cotangent", true, {}}});
  return {gradients.begin(), gradients.end()};
}

// With respect to one operand, which is the only result.
void give_gradient(Call& c, const Forward& forward) {
  Value x = c.x();
  c.give(gradients_of(c, forward, {&x, 1}, c.x("grad_output"))[0]);
}

void give_or_nothing(Call& c, bool wanted, const Value& value) {
  if (wanted) return c.give(value);
  c.give_nothing();
}

std::vector<bool> mask_of(Call& c) {
  std::vector<bool> mask = c.truths("output_mask");
  if (mask.size() != 3) c.fail("its output_mask has {} entries, not 3", mask.size());
  return mask;
}

Ints dims_from(int64_t first, int rank) {
  Ints dims(static_cast<size_t>(rank - first));
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}
Value mean_over(const Value& x, const Ints& dims) {
  return emit("mean", {x}, {{"dim", ir::Literal::list(dims), {}}, {"keepdim", true, {}}});
}

// Convolutions

void convolution_backward(Call& c) {
  const std::vector<bool> mask = mask_of(c);
  if (c.flag("transposed", false))
    c.fail("the gradient of a transposed convolution is not supported as an operator");
  Value dy = c.x("grad_output");
  const LiteralList attributes{{"stride", ir::Literal::list(c.integers("stride")), {}},
                               {"padding", ir::Literal::list(c.integers("padding")), {}},
                               {"dilation", ir::Literal::list(c.integers("dilation")), {}},
                               {"groups", c.integer("groups"), {}}};
  const std::vector<Value> x{c.x("input"), c.x("weight")};
  auto forward = [&](std::span<const Value> v) {
    return emit("convolution", {v[0], v[1]}, attributes);
  };
  const std::vector<Value> dx = gradients_of(c, forward, x, dy);
  for (size_t i : {0, 1}) give_or_nothing(c, mask[i], dx[i]);
  Ints all_but_channels = dims_from(2, dy.rank());
  all_but_channels.push_back(0);
  give_or_nothing(c, mask[2], sum(dy, all_but_channels, false));
}

// Norms: y = (x - mean) rstd w + b

// dx for the cotangent g of (x - mean) rstd, over the dimensions that the mean is over.
Value standardized_backward(const Value& g, const Value& normal, const Value& rstd,
                            const Ints& dims) {
  Value even = mean_over(g, dims), along = mean_over(g * normal, dims);
  return (g - even - normal * along) * rstd;
}

// The value given, with the derivatives of what it was computed as.
Value as_computed(const Value& given, const Value& computed) {
  return computed + detach(given - computed);
}

// ATen differentiates it with respect to the input alone: mean and rstd follow from that.
void layer_norm_backward(Call& c) {
  const std::vector<bool> mask = mask_of(c);
  Value dy = c.x("grad_out"), x = c.x("input");
  const int64_t first = x.rank() - static_cast<int64_t>(c.sizes("normalized_shape").size());
  if (first < 0) c.fail("its normalized_shape has more dimensions than its input");
  const Ints normalized = dims_from(first, x.rank());
  Value mean = as_computed(c.x("mean"), mean_over(x, normalized));
  Value exact = unary("reciprocal", unary("square", c.x("rstd")));  // variance + eps
  Value variance = mean_over(unary("square", x - mean), normalized);
  Value rstd = unary("rsqrt", as_computed(exact, variance));
  Value weight = c.x_or_undefined("weight");
  Value normal = (x - mean) * rstd, g = weight.defined() ? dy * weight : dy;
  give_or_nothing(c, mask[0], standardized_backward(g, normal, rstd, normalized));
  Ints rows(static_cast<size_t>(first));
  std::iota(rows.begin(), rows.end(), 0);
  auto over_rows = [&](const Value& v) { return rows.empty() ? v : sum(v, rows, false); };
  give_or_nothing(c, mask[1], over_rows(dy * normal));
  give_or_nothing(c, mask[2], over_rows(dy));
}

void group_norm_backward(Call& c) {
  const std::vector<bool> mask = mask_of(c);
  const Dim samples = c.size("N"), channels = c.size("C"), places = c.size("HxW");
  const Dim groups = c.integer("group"), each = floor_div(channels, groups);
  const Dims shape = c.x("input").dims();
  Value dy = reshape(c.x("grad_out"), {samples, groups, each, places});
  Value x = reshape(c.x("input"), {samples, groups, each, places});
  Value mean = reshape(c.x("mean"), {samples, groups, 1, 1});
  Value rstd = reshape(c.x("rstd"), {samples, groups, 1, 1});
  Value weight = c.x_or_undefined("weight");
  Value normal = (x - mean) * rstd, g = dy;
  if (weight.defined()) g = dy * reshape(weight, {1, groups, each, 1});
  give_or_nothing(c, mask[0], reshape(standardized_backward(g, normal, rstd, {2, 3}), shape));
  auto by_channel = [&](const Value& v) { return reshape(sum(v, {0, 3}, false), {channels}); };
  give_or_nothing(c, mask[1], by_channel(dy * normal));
  give_or_nothing(c, mask[2], by_channel(dy));
}

// Windows

LiteralList windows(Call& c) {
  LiteralList list{{"kernel", ir::Literal::list(c.integers("kernel_size")), {}},
                   {"padding", ir::Literal::list(c.integers("padding")), {}},
                   {"ceil_mode", c.flag("ceil_mode", false), {}}};
  if (c.given("stride") && !c.integers("stride").empty())
    list.push_back({"stride", ir::Literal::list(c.integers("stride")), {}});
  return list;
}

void mean_of_windows_backward(Call& c) {
  if (c.given("divisor_override")) c.fail("divisor_override is not supported here");
  LiteralList attributes = windows(c);
  attributes.push_back({"count_include_pad", c.flag("count_include_pad", true), {}});
  give_gradient(c, [&](auto x) { return emit("avg_pool2d", {x[0]}, attributes); });
}
void greatest_of_windows_backward(Call& c) {
  LiteralList attributes = windows(c);
  attributes.push_back({"dilation", ir::Literal::list(c.integers("dilation")), {}});
  give_gradient(c, [&](auto x) { return emit("max_pool2d", {x[0]}, attributes); });
}
void adaptive_mean_backward(Call& c) {
  const Dims dy = c.x("grad_output").dims();
  Ints size;
  for (size_t d = dy.size() - 2; d < dy.size(); ++d) {
    if (!dy[d].is_constant()) c.fail("its cotangent's sizes have to be numbers");
    size.push_back(dy[d].value());
  }
  const LiteralList attributes{{"output_size", ir::Literal::list(size), {}}};
  give_gradient(c, [&](auto x) { return emit("adaptive_avg_pool2d", {x[0]}, attributes); });
}

// Rows of a table

void embedding_backward(Call& c) {
  if (c.flag("scale_grad_by_freq", false)) c.fail("scale_grad_by_freq is not supported");
  Value dy = c.x("grad_output"), index = c.x("indices");
  need_dims(dy, 1, "its cotangent");
  const Dim columns = dy.dims().back();
  LiteralList attributes;
  if (const int64_t padding = c.integer("padding_idx", -1); padding >= 0)
    attributes.push_back({"padding_idx", padding, {}});
  // It is linear in the table, so that any table will do.
  Value table = full(c.world(), {c.size("num_weights"), columns}, 0, dy.dtype());
  auto forward = [&](std::span<const Value> x) {
    return emit("embedding", {x[0], index}, attributes);
  };
  c.give(gradients_of(c, forward, {&table, 1}, dy)[0]);
}

constexpr RuleEntry backward_table[] = {
    {"convolution_backward", convolution_backward},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm_backward", group_norm_backward},
    {"avg_pool2d_backward", mean_of_windows_backward},
    {"max_pool2d_with_indices_backward", greatest_of_windows_backward},
    {"_adaptive_avg_pool2d_backward", adaptive_mean_backward},
    {"embedding_dense_backward", embedding_backward},
};

}  // namespace

constinit const Rules backward_rules = backward_table;

}  // namespace gradus::pt2
