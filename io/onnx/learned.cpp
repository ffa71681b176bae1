// Plain operators of ai.onnx.ml: scaling, encoding, linear models, support vectors.
#include "io/onnx/learned.h"

#include <cmath>

#include "io/onnx/model.h"

namespace gradus::onnx {

using namespace ops;

Value sample_rows(Call& c) {
  Value x = c.x();
  if (x.rank() == 1) x = unsqueeze(x, 0);
  if (x.rank() != 2) c.fail("it wants samples [N, features]");
  return is_floating(x.dtype()) ? x : cast(x, DType::f32);
}

Value model_table(Call& c, DType dtype, const Ints& shape, const std::vector<double>& numbers) {
  int64_t n = 1;
  for (int64_t k : shape) n *= k;
  if (n != static_cast<int64_t>(numbers.size()))
    c.fail("it has {} numbers, {} are wanted", numbers.size(), n);
  return c.constant(Tensor::from(dtype, shape, numbers));
}

Value transformed_scores(Call& c, const Value& x, const std::string& how) {
  if (how == "NONE") return x;
  if (how == "LOGISTIC") return unary("sigmoid", x);
  if (how == "SOFTMAX") return emit("softmax", {x}, {{"dim", -1}});
  if (how == "PROBIT") return unary("erfinv", x * 2.0 - 1.0) * std::sqrt(2.0);
  if (how != "SOFTMAX_ZERO") c.fail("there is no post_transform '{}'", how);
  // Scores of 0 have no share.
  Value greatest = emit("amax", {x}, {{"dim", Literal::list(Ints{-1})}, {"keepdim", true}});
  Value counts = gt(unary("abs", x), num(1e-7));
  Value powers = where(counts, unary("exp", x - greatest), x * unary("exp", -greatest));
  Value total = sum(powers, Ints{-1}, true), none = eq(total, num(0.0));
  return where(none, num(0.5), powers / where(none, num(1.0), total));
}

Value best_labels(Call& c, const Value& scores, std::string_view integers, std::string_view texts) {
  if (!c.texts(texts).empty()) c.unsupported("dtype string");
  Value best = emit("argmax", {scores}, {{"dim", 1}});
  auto labels = c.integers(integers);
  if (!labels) c.fail("attribute '{}' is missing", integers);
  const Dim& n = scores.dims()[1];
  if (n.constant() && *n.constant() != static_cast<int64_t>(labels->size()))
    c.fail("{} scores are of {} labels", n.to_string(), labels->size());
  return index_select(c.constant(tensor_with(*labels)), best, 0);
}

namespace {

// Of a list of one number, or of one for each feature.
Value of_features(Call& c, const std::vector<double>& numbers, DType dtype, std::string_view what) {
  auto n = c.type().dims.empty() ? std::nullopt : c.type().dims.back().constant();
  if (numbers.empty()) c.fail("attribute '{}' is missing", what);
  if (numbers.size() == 1) return num(numbers[0]);
  if (n && *n != static_cast<int64_t>(numbers.size()))
    c.fail("attribute '{}' has {} numbers for {} features", what, numbers.size(), *n);
  return c.constant(tensor_with(dtype, numbers));
}

void scaler(Call& c) {
  Value x = c.x();
  if (!is_floating(x.dtype())) x = cast(x, DType::f32);
  Value y = x - of_features(c, c.numbers("offset"), x.dtype(), "offset");
  c.give(cast(y * of_features(c, c.numbers("scale"), x.dtype(), "scale"), DType::f32));
}

void binarizer(Call& c) { c.give(cast(gt(c.x(), num(c.attribute("threshold", 0.0))), c.dtype())); }

void imputer(Call& c) {
  Value x = c.x();
  const bool floating = is_floating(x.dtype());
  std::vector<double> values = c.numbers("imputed_value_floats");
  double missing = c.attribute("replaced_value_float", 0.0);
  if (!floating) {
    const Ints list = c.integers("imputed_value_int64s").value_or(Ints{});
    values.assign(list.begin(), list.end());
    missing = static_cast<double>(c.attribute("replaced_value_int64", int64_t{0}));
  }
  Value gone = std::isnan(missing) ? unary("isnan", x)
               : floating          ? eq(x, num(missing))
                                   : eq(x, num(static_cast<int64_t>(missing)));
  Value by = of_features(c, values, x.dtype(), "imputed_value");
  c.give(cast(where(gone, by, x), x.dtype()));
}

void normalizer(Call& c) {
  Value x = sample_rows(c);
  const std::string norm = c.attribute("norm", "MAX");
  Value size = unary("abs", x);
  LiteralList along{{"dim", Literal::list(Ints{1})}, {"keepdim", true}};
  if (norm == "MAX")
    size = emit("amax", {size}, along);
  else if (norm == "L1")
    size = emit("sum", {size}, along);
  else if (norm == "L2")
    size = emit("norm", {x}, {{"p", 2.0}, {"dim", Literal::list(Ints{1})}, {"keepdim", true}});
  else
    c.fail("there is no norm '{}'", norm);
  // A row of zeros stays one.
  Value y = x / where(eq(size, num(0.0)), num(1.0), size);
  c.give(cast(reshape(y, c.type().dims), DType::f32));
}

void array_features(Call& c) {
  Value x = c.x(), at = c.x(1);
  if (x.rank() == 0) c.fail("it has no features");
  Value y = index_select(x, reshape(at, {ir::numel(at.dims())}), -1);
  c.give(x.rank() == 1 ? unsqueeze(y, 0) : y);
}

void feature_vectors(Call& c) {
  const Ints widths = c.integers("inputdimensions").value_or(Ints{});
  if (widths.size() != c.inputs()) c.fail("it wants an input dimension for each input");
  std::vector<Value> parts;
  for (size_t i = 0; i < c.inputs(); ++i) {
    Value x = cast(c.x(i), DType::f32);
    if (x.rank() == 1) x = unsqueeze(x, 1);
    if (x.rank() != 2) c.fail("its inputs have 1 or 2 dimensions");
    parts.push_back(pad_zeros(x, 1, 0, Dim(widths[i]) - x.dims()[1]));
  }
  c.give(cat(parts, 1));
}

void encode_one_hot(Call& c) {
  if (!c.texts("cats_strings").empty()) c.unsupported("dtype string");
  if (!c.flag("zeros", true)) c.unsupported("OneHotEncoder that fails at other categories");
  const Ints categories = c.integers("cats_int64s").value_or(Ints{});
  Value x = cast(c.x(), DType::i64);
  c.give(cast(eq(unsqueeze(x, x.rank()), c.constant(tensor_with(categories))), DType::f32));
}

// One side of an encoder's table, and what it gives for what is not there.
struct Labels {
  Tensor values, absent;
};
Labels labels_of(Call& c, const std::string& side) {
  auto named = [&](const char* kind) { return side + "_" + kind; };
  if (!c.texts(named("strings")).empty()) c.unsupported("dtype string");
  if (auto list = c.integers(named("int64s")))
    return {tensor_with(*list), tensor_with(c.attribute("default_int64", int64_t{-1}))};
  if (c.has(named("floats")))
    return {tensor_with(DType::f32, c.numbers(named("floats"))),
            Tensor::scalar(DType::f32, c.attribute("default_float", -0.0))};
  if (!c.has(named("tensor"))) c.fail("its {} are missing", side);
  Tensor values = c.tensor(named("tensor"));
  const double absent = is_floating(values.dtype()) ? -0.0 : -1.0;
  return {values, c.has("default_tensor") ? c.tensor("default_tensor")
                                          : Tensor::scalar(values.dtype(), absent)};
}

// The last of equal keys counts, and NaN is one.
void encode_labels(Call& c) {
  Labels keys = labels_of(c, "keys"), values = labels_of(c, "values");
  Value x = c.x(), key = c.constant(keys.values);
  if (keys.values.numel() != values.values.numel()) c.fail("keys and values are not as many");
  if (x.dtype() != key.dtype()) c.fail("its input is no {}", name_of(key.dtype()));
  Value each = unsqueeze(x, x.rank());
  Value same = eq(each, key);
  if (is_floating(x.dtype()))
    same = logical_or(same, logical_and(unary("isnan", each), unary("isnan", key)));
  // Behind the values stands what others get.
  const int64_t n = keys.values.numel();
  Value place = where(same, arange(c.world(), n), num(int64_t{-1}));
  Value last = emit("amax", {place}, {{"dim", Literal::list(Ints{-1})}, {"allow_empty", true}});
  last = where(lt(last, num(int64_t{0})), num(n), last);
  Value table =
      cat(std::vector{c.constant(values.values), reshape(c.constant(values.absent), {1})}, 0);
  c.give(emit_all(c.world(), "index", std::vector{table, last})[0]);
}

// x coefficients' + intercepts, [N, rows]
Value linear_scores(Call& c, const Value& x, int64_t rows) {
  const std::vector<double> coefficients = c.numbers("coefficients");
  std::vector<double> intercepts = c.numbers("intercepts");
  const auto n = static_cast<int64_t>(coefficients.size());
  if (rows < 1 || n % rows != 0) c.fail("{} coefficients are of {} scores", n, rows);
  Value y = matmul_transposed(x, model_table(c, x.dtype(), {rows, n / rows}, coefficients));
  return intercepts.empty() ? y : y + model_table(c, x.dtype(), {rows}, intercepts);
}

void linear_regressor(Call& c) {
  Value y = linear_scores(c, sample_rows(c), c.attribute("targets", int64_t{1}));
  c.give(cast(transformed_scores(c, y, c.attribute("post_transform", "NONE")), DType::f32));
}

void linear_classifier(Call& c) {
  Value x = sample_rows(c);
  if (!c.texts("classlabels_strings").empty()) c.unsupported("dtype string");
  auto features = x.dims()[1].constant();
  if (!features || *features == 0) c.unsupported("LinearClassifier of features without a number");
  const int64_t rows = static_cast<int64_t>(c.numbers("coefficients").size()) / *features;
  const size_t labels = c.integers("classlabels_ints").value_or(Ints{}).size();
  const std::string how = c.attribute("post_transform", "NONE");
  // What the other class of two scores, runtimes do not agree on: but for probabilities.
  if (rows != static_cast<int64_t>(labels) && !(rows == 1 && labels == 2 && how == "LOGISTIC"))
    c.unsupported("LinearClassifier with {} scores for {} classes", rows, labels);
  Value y = linear_scores(c, x, rows);
  if (rows != static_cast<int64_t>(labels)) y = cat(std::vector{-y, y}, 1);
  c.give(best_labels(c, y, "classlabels_ints", "classlabels_strings"));
  c.give(cast(transformed_scores(c, y, how), DType::f32));
}

// Kernels of samples and support vectors, [N, supports].
Value kernels_of(Call& c, const Value& x, const Value& supports) {
  const std::string kind = c.attribute("kernel_type", "LINEAR");
  std::vector<double> p = c.numbers("kernel_params");
  p.resize(3);
  const double gamma = p[0], coef0 = p[1], degree = p[2];
  Value products = matmul_transposed(x, supports);
  if (kind == "LINEAR") return products;
  if (kind == "POLY") return binary("pow", products * gamma + coef0, num(degree));
  if (kind == "SIGMOID") return unary("tanh", products * gamma + coef0);
  if (kind != "RBF") c.fail("there is no kernel_type '{}'", kind);
  Value apart = unsqueeze(x, 1) - unsqueeze(supports, 0);
  return unary("exp", sum(apart * apart, Ints{2}, false) * -gamma);
}

void support_vectors(Call& c) {
  Value x = sample_rows(c);
  const auto coefficients = c.numbers("coefficients"), rho = c.numbers("rho");
  const int64_t supports = c.attribute("n_supports", int64_t{0});
  if (rho.size() != 1) c.unsupported("SVMRegressor of {} targets", rho.size());
  const auto n = static_cast<int64_t>(coefficients.size());
  Value y;
  if (supports > 0) {
    const auto vectors = c.numbers("support_vectors");
    const auto all = static_cast<int64_t>(vectors.size());
    if (all % supports != 0) c.fail("{} numbers are of {} support vectors", all, supports);
    y = kernels_of(c, x, model_table(c, x.dtype(), {supports, all / supports}, vectors));
  } else {
    y = x;
  }
  y = matmul(y, model_table(c, x.dtype(), {n, 1}, coefficients)) + rho[0];
  if (c.flag("one_class")) y = where(gt(y, num(0.0)), ones_like(y), -ones_like(y));
  c.give(cast(transformed_scores(c, y, c.attribute("post_transform", "NONE")), DType::f32));
}

constexpr RuleEntry learned_table[] = {
    {"ai.onnx.ml.Scaler", 1, scaler},
    {"ai.onnx.ml.Binarizer", 1, binarizer},
    {"ai.onnx.ml.Imputer", 1, imputer},
    {"ai.onnx.ml.Normalizer", 1, normalizer},
    {"ai.onnx.ml.ArrayFeatureExtractor", 1, array_features},
    {"ai.onnx.ml.FeatureVectorizer", 1, feature_vectors},
    {"ai.onnx.ml.OneHotEncoder", 1, encode_one_hot},
    {"ai.onnx.ml.LabelEncoder", 2, encode_labels},
    {"ai.onnx.ml.LinearRegressor", 1, linear_regressor},
    {"ai.onnx.ml.LinearClassifier", 1, linear_classifier},
    {"ai.onnx.ml.SVMRegressor", 1, support_vectors},
};

}  // namespace

constinit const Rules learned_rules = learned_table;

}  // namespace gradus::onnx
