// Norms, and Dropout.
#include <numeric>

#include "io/onnx/call.h"

namespace gradus::onnx {

using namespace ops;

namespace {

Value moment(const char* op, const Value& x, const Ints& dims, bool keep) {
  LiteralList attributes{{"dim", Literal::list(dims)}, {"keepdim", keep}};
  if (std::string_view(op) == "var") attributes.push_back({"correction", 0});
  return emit(op, {x}, attributes);
}

// With given statistics; they have derivatives too.
Value normalised(const Value& x, const Value& mean, const Value& var, double epsilon) {
  int rank = x.rank();
  return (x - under(mean, 1, rank)) * unary("rsqrt", under(var, 1, rank) + epsilon);
}

void batch_norm(Call& c) {
  Value x = c.x();
  int rank = x.rank();
  double epsilon = c.attribute("epsilon", 1e-5), momentum = c.attribute("momentum", 0.9);
  // Between versions 7 and 13 whoever asks for the statistics trains.
  bool training = c.opset() >= 14  ? c.flag("training_mode")
                  : c.opset() >= 7 ? c.wants(1)
                                   : !c.flag("is_test");
  if (rank < 2) c.fail("it wants images [N, C, spatial..]");
  if (!c.flag("spatial", true)) c.unsupported("BatchNormalization with spatial = 0");
  Value scale = under(c.x(1), 1, rank), shift = under(c.x(2), 1, rank);
  if (!training) {
    if (c.wants(1)) c.fail("it has further results in training only");
    return c.give(cast(normalised(x, c.x(3), c.x(4), epsilon) * scale + shift, x.dtype()));
  }
  Ints dims{0};
  for (int d = 2; d < rank; ++d) dims.push_back(d);
  Value y = emit("standardize", {x}, {{"dim", Literal::list(dims)}, {"eps", epsilon}});
  c.give(cast(y * scale + shift, x.dtype()));
  auto running = [&](size_t input, const char* op) {
    Value now = cast(moment(op, x, dims, false), c.dtype(input));
    return c.x(input) * momentum + now * (1 - momentum);
  };
  c.give_wanted(1, [&] { return running(3, "mean"); });
  c.give_wanted(2, [&] { return running(4, "var"); });
  // Before version 14 also those of the batch alone.
  c.give_wanted(3, [&] { return moment("mean", x, dims, false); });
  c.give_wanted(4, [&] { return moment("var", x, dims, false); });
}

void instance_norm(Call& c) {
  c.give(emit("instance_norm", {c.x(), c.x(1), c.x(2)}, {{"eps", c.attribute("epsilon", 1e-5)}}));
}

void layer_norm(Call& c) {
  Value x = c.x();
  Ints dims;
  for (int d = c.axis("axis", -1); d < x.rank(); ++d) dims.push_back(d);
  auto out = emit_all(c.world(), "standardize", std::vector{x},
                      {{"dim", Literal::list(dims)}, {"eps", c.attribute("epsilon", 1e-5)}});
  Value y = out[0] * c.x(1);
  if (c.given(2)) y = y + c.x(2);
  c.give(cast(y, x.dtype()));
  Dims shape = x.dims();
  for (int64_t d : dims) shape[static_cast<size_t>(d)] = 1;
  c.give_wanted(1, [&] { return moment("mean", x, dims, true); });
  if (c.wants(2)) c.give(reshape(out[1], shape));
}

// The dtype that the first stage of a norm computes in: that of `stash_type`, or a wider one of x.
DType stash_dtype(Call& c) {
  DType stash = c.dtype("stash_type", 1), own = c.dtype();
  if (!is_floating(stash)) c.fail("its stash_type {} is no floating dtype", name_of(stash));
  return size_of(own) > size_of(stash) ? own : stash;
}

// x / sqrt(the mean of x^2 + epsilon), over the last dimensions, times a scale.
void rms_norm(Call& c) {
  Ints dims;
  for (int d = c.axis("axis", -1); d < c.rank(); ++d) dims.push_back(d);
  Value x = cast(c.x(), stash_dtype(c));
  Value root = unary("sqrt", moment("mean", x * x, dims, true) + c.attribute("epsilon", 1e-5));
  Value scale = c.x(1);
  c.give(cast(cast(cast(x / root, c.dtype()), scale.dtype()) * scale, scale.dtype()));
}

// One scale and shift for each group of channels; for each channel since version 21.
void group_norm(Call& c) {
  Value x = c.x();
  int64_t groups = c.attribute("num_groups", int64_t{0});
  if (x.rank() < 3 || groups < 1) c.fail("it wants images [N, C, spatial..], and num_groups");
  Dims inner(x.dims().begin() + 2, x.dims().end());
  Dim each = floor_div(x.dims()[1], groups) * ir::numel(inner);
  Value rows = reshape(x, {x.dims()[0], groups, each});
  bool channels = c.opset() >= 21;
  if (channels) rows = cast(rows, stash_dtype(c));
  Value y = emit("standardize", {rows},
                 {{"dim", Literal::list(Ints{2})}, {"eps", c.attribute("epsilon", 1e-5)}});
  if (channels) y = cast(reshape(y, x.dims()), x.dtype());
  auto under_y = [&](size_t i) {
    return channels ? under(c.x(i), 1, x.rank()) : unsqueeze(c.x(i), 1);
  };
  y = y * under_y(1) + under_y(2);
  c.give(cast(reshape(y, x.dims()), x.dtype()));
}

void local_response(Call& c) {
  int64_t size = c.attribute("size", int64_t{0});
  if (size < 1) c.fail("its size is missing");
  if (size % 2 == 0) c.unsupported("LRN over an even number of channels");
  c.give(emit("local_response_norm", {c.x()},
              {{"size", size},
               {"alpha", c.attribute("alpha", 1e-4)},
               {"beta", c.attribute("beta", 0.75)},
               {"k", c.attribute("bias", 1.0)}}));
}

// What has the norm 0 stays as it is.
void lp_norm(Call& c) {
  Value x = c.x();
  Value size = emit("norm", {x},
                    {{"p", static_cast<double>(c.attribute("p", int64_t{2}))},
                     {"dim", Literal::list(Ints{c.axis("axis", -1)})},
                     {"keepdim", true}});
  c.give(x / where(eq(size, num(0.0)), num(1.0), size));
}

// (x - mean) / (sqrt(var) + 1e-9), as ONNX's own definition has it.
void mean_variance(Call& c) {
  Value x = c.x();
  Ints dims;
  for (int64_t a : c.integers("axes").value_or(Ints{0, 2, 3})) dims.push_back(c.axis(a, x.rank()));
  Value mean = moment("mean", x, dims, true), var = moment("var", x, dims, true);
  c.give((x - mean) / (unary("sqrt", var) + 1e-9));
}

// Without training it gives what it takes.
void dropout(Call& c) {
  double ratio = c.attribute("ratio", 0.5);
  bool training = c.opset() < 7 && !c.flag("is_test");
  if (c.opset() >= 12) {
    training = c.given(2) && c.number(2, "training_mode") != 0;
    if (training && c.given(1)) ratio = c.number(1, "ratio");
  }
  if (training && ratio != 0) c.unsupported("random numbers (Dropout in training)");
  c.give(c.item(0));
  if (!c.wants(1)) return;
  c.give(full(c.world(), c.type().dims, 1, c.opset() >= 10 ? DType::boolean : c.dtype()));
}

constexpr RuleEntry normalization_table[] = {
    {"BatchNormalization", 1, batch_norm},  {"InstanceNormalization", 6, instance_norm},
    {"LayerNormalization", 17, layer_norm}, {"GroupNormalization", 18, group_norm},
    {"RMSNormalization", 23, rms_norm},     {"LRN", 1, local_response},
    {"LpNormalization", 1, lp_norm},        {"MeanVarianceNormalization", 9, mean_variance},
    {"Dropout", 1, dropout, {}, false},
};

}  // namespace

constinit const Rules normalization_rules = normalization_table;

}  // namespace gradus::onnx
