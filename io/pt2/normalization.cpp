// What brings values to mean 0 and variance 1, or to a length.
#include <limits>

#include "io/pt2/call.h"
#include "io/pt2/operands.h"

namespace gradus::pt2 {

using namespace ops;

namespace {

LiteralList over_dims(const Ints& dims, bool keepdim) {
  return {{"dim", ir::Literal::list(dims)}, {"keepdim", keepdim}};
}
Value mean_over(const Value& x, const Ints& dims, bool keepdim) {
  return emit("mean", {x}, over_dims(dims, keepdim));
}

struct Standard {
  Value y, scale;  // scale is 1 / sqrt(var + eps)
};
Standard standardized(Call& c, const Value& x, const Ints& dims, double eps) {
  auto out = emit_all(c.world(), "standardize", std::array{x},
                      {{"dim", ir::Literal::list(dims)}, {"eps", eps}});
  return {out[0], out[1]};
}

// All dimensions but the channels.
Ints around_channels(const Value& x) {
  Ints dims{0};
  for (int d = 2; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

Ints last_dims(const Value& x, size_t count) {
  Ints dims;
  for (int d = x.rank() - static_cast<int>(count); d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

// A result that derivatives of the operator's own read; none passes through it.
template <class Make>
void give_if_wanted(Call& c, size_t i, Make make) {
  if (!c.wants(i)) return c.give_nothing();
  c.give(detach(cast(make(), c.result(i).dtype)));
}

void layer_norm_rule(Call& c) {
  Value x = c.x("input");
  const Dims shape = c.sizes("normalized_shape");
  const double eps = c.number("eps", 1e-5);
  c.give(emit_all(c.world(), "layer_norm",
                  std::array{x, c.x_or_undefined("weight"), c.x_or_undefined("bias")},
                  {{"normalized_shape", ir::Literal::list(shape)}, {"eps", eps}})[0]);
  if (c.results() == 1) return;
  const Ints dims = last_dims(x, shape.size());
  give_if_wanted(c, 1, [&] { return mean_over(x, dims, true); });
  give_if_wanted(c, 2, [&] {
    return reshape(standardized(c, x, dims, eps).scale, mean_over(x, dims, true).dims());
  });
}

// Half as precise numbers are worked out in f32.
Value wide_enough(const Value& x) { return size_of(x.dtype()) < 4 ? cast(x, DType::f32) : x; }

double least_step(DType dtype) {
  if (dtype == DType::f64) return std::numeric_limits<double>::epsilon();
  if (dtype == DType::f32) return std::numeric_limits<float>::epsilon();
  return dtype == DType::f16 ? 1.0 / 1024 : 1.0 / 128;
}

void rms_norm_rule(Call& c) {
  Value x = c.x("input"), wide = wide_enough(x);
  const Ints dims = last_dims(x, c.sizes("normalized_shape").size());
  const double eps = c.number("eps", least_step(x.dtype()));
  Value scale = unary("rsqrt", mean_over(unary("square", wide), dims, true) + eps);
  Value y = wide * scale;
  if (c.given("weight")) y = y * c.x("weight");
  c.give(cast(y, c.result().dtype));
  if (c.results() > 1) give_if_wanted(c, 1, [&] { return scale; });
}

// Batch norm

struct Momentum {
  double eps, momentum;
};
Momentum momentum_of(Call& c) {
  const bool cudnn = c.given("epsilon");
  return {c.number(cudnn ? "epsilon" : "eps", 1e-5),
          c.number(cudnn ? "exponential_average_factor" : "momentum", 0.1)};
}

// (1 - momentum) old + momentum now, without derivatives.
Value running(Call& c, std::string_view name, const Value& now, double momentum) {
  Value old = c.x(name);
  return old * (1 - momentum) + detach(cast(now, old.dtype())) * momentum;
}

Value variance_over(const Value& x, const Ints& dims) {
  LiteralList attributes = over_dims(dims, false);
  attributes.push_back({"correction", 1});
  return emit("var", {x}, attributes);
}

void with_batch_statistics(Call& c, bool writes) {
  Value x = c.x("input");
  const Momentum m = momentum_of(c);
  const Ints dims = around_channels(x);
  c.give(emit_all(c.world(), "batch_norm_train",
                  std::array{x, c.x_or_undefined("weight"), c.x_or_undefined("bias")},
                  {{"eps", m.eps}})[0]);
  auto mean = [&] { return mean_over(wide_enough(x), dims, false); };
  auto var = [&] { return variance_over(wide_enough(x), dims); };
  if (writes && c.given("running_mean"))
    c.write("running_mean", running(c, "running_mean", mean(), m.momentum));
  if (writes && c.given("running_var"))
    c.write("running_var", running(c, "running_var", var(), m.momentum));
  if (c.results() == 1) return;
  give_if_wanted(c, 1, mean);
  give_if_wanted(c, 2,
                 [&] { return reshape(standardized(c, x, dims, m.eps).scale, {x.dims()[1]}); });
  if (!c.op().ends_with("functional.default")) return;
  give_if_wanted(c, 3, [&] { return running(c, "running_mean", mean(), m.momentum); });
  give_if_wanted(c, 4, [&] { return running(c, "running_var", var(), m.momentum); });
}

void with_running_statistics(Call& c) {
  c.give(emit_all(c.world(), "batch_norm_eval",
                  std::array{c.x("input"), c.x("running_mean"), c.x("running_var"),
                             c.x_or_undefined("weight"), c.x_or_undefined("bias")},
                  {{"eps", momentum_of(c).eps}})[0]);
  // Statistics that were saved are those that were given; there are none.
  for (size_t i = 1; i < c.results(); ++i) {
    if (!c.wants(i))
      c.give_nothing();
    else
      c.give(full(c.world(), c.result(i).sizes, 0, c.result(i).dtype));
  }
}

void batch_norm_rule(Call& c) {
  const bool given = c.given("running_mean") && c.given("running_var");
  if (c.flag("training", false) || !given) return with_batch_statistics(c, true);
  with_running_statistics(c);
}
void batch_norm_functional_rule(Call& c) {
  if (c.flag("training", false)) return with_batch_statistics(c, false);
  with_running_statistics(c);
}
void batch_norm_update_rule(Call& c) { with_batch_statistics(c, true); }
void batch_norm_eval_rule(Call& c) { with_running_statistics(c); }

// Statistics of each sample; the running ones are means over samples.
void instance_norm_rule(Call& c) {
  if (!c.flag("use_input_stats", true)) return with_running_statistics(c);
  Value x = c.x("input");
  const Momentum m = momentum_of(c);
  c.give(emit_all(c.world(), "instance_norm",
                  std::array{x, c.x_or_undefined("weight"), c.x_or_undefined("bias")},
                  {{"eps", m.eps}})[0]);
  const Ints dims = last_dims(x, static_cast<size_t>(x.rank()) - 2);
  Value wide = wide_enough(x);
  if (c.given("running_mean")) {
    Value mean = mean_over(mean_over(wide, dims, false), {0}, false);
    c.write("running_mean", running(c, "running_mean", mean, m.momentum));
  }
  if (c.given("running_var")) {
    Value var = mean_over(variance_over(wide, dims), {0}, false);
    c.write("running_var", running(c, "running_var", var, m.momentum));
  }
}

void group_norm_rule(Call& c) {
  Value x = c.x("input");
  const int64_t groups = c.integer(c.given("group") ? "group" : "num_groups");
  const double eps = c.number("eps", 1e-5);
  c.give(emit_all(c.world(), "group_norm",
                  std::array{x, c.x_or_undefined("weight"), c.x_or_undefined("bias")},
                  {{"groups", groups}, {"eps", eps}})[0]);
  if (c.results() == 1) return;
  Dim each = floor_div(x.dims()[1], groups);
  for (int d = 2; d < x.rank(); ++d) each = each * x.dims()[static_cast<size_t>(d)];
  Value rows = reshape(x, {x.dims()[0], groups, each});
  // Unlike those of the other norms they have derivatives.
  auto give_statistic = [&](size_t i, const Value& v) {
    if (!c.wants(i)) return c.give_nothing();
    c.give(cast(v, c.result(i).dtype));
  };
  give_statistic(1, mean_over(rows, {2}, false));
  give_statistic(2, reshape(standardized(c, rows, {2}, eps).scale, {x.dims()[0], groups}));
}

// Lengths

// Of all that has one place along `dim`; -1: of everything.
Value length_except(const Value& x, double p, int64_t dim) {
  Ints dims;
  for (int d = 0; d < x.rank(); ++d)
    if (d != dim) dims.push_back(d);
  LiteralList attributes = over_dims(dims, dim >= 0);
  attributes.push_back({"p", p});
  return dims.empty() ? unary("abs", x) : emit("norm", {x}, attributes);
}

int64_t kept_dim(Call& c, int rank) {
  const int64_t dim = c.integer("dim", 0);
  return dim == -1 ? -1 : c.dim("dim", 0, rank);
}

void length_except_rule(Call& c) {
  Value v = c.x("v");
  c.give(length_except(v, c.number("pow", 2), kept_dim(c, v.rank())));
}

void weight_norm_rule(Call& c) {
  Value v = c.x("v"), g = c.x("g");
  Value length = length_except(v, 2, kept_dim(c, v.rank()));
  c.give(v * (g / length));
  if (c.results() > 1) give_if_wanted(c, 1, [&] { return length; });
}

// Parts that are longer than `maxnorm` are made as short; 1e-7 is ATen's.
void renorm_rule(Call& c) {
  Value x = c.x();
  const double most = c.number("maxnorm");
  Value length = length_except(x, c.number("p"), c.dim("dim", x.rank()));
  Value longer = gt(length, num(most));
  Value factor = most / (where(longer, length, num(1.0)) + 1e-7);
  c.give(x * where(longer, factor, num(1.0)));
}

constexpr RuleEntry normalization_table[] = {
    {"layer_norm", layer_norm_rule},
    {"native_layer_norm", layer_norm_rule},
    {"rms_norm", rms_norm_rule},
    {"_fused_rms_norm", rms_norm_rule},
    {"batch_norm", batch_norm_rule},
    {"native_batch_norm", batch_norm_rule},
    {"cudnn_batch_norm", batch_norm_rule},
    {"_native_batch_norm_legit", batch_norm_rule},
    {"_native_batch_norm_legit_functional", batch_norm_functional_rule},
    {"_native_batch_norm_legit_no_training", batch_norm_eval_rule},
    {"_batch_norm_with_update", batch_norm_update_rule},
    {"_batch_norm_no_update", batch_norm_eval_rule},
    {"instance_norm", instance_norm_rule},
    {"group_norm", group_norm_rule},
    {"native_group_norm", group_norm_rule},
    {"_weight_norm", weight_norm_rule},
    {"_weight_norm_interface", weight_norm_rule},
    {"norm_except_dim", length_except_rule},
    {"renorm", renorm_rule},
};

}  // namespace

constinit const Rules normalization_rules = normalization_table;

}  // namespace gradus::pt2
