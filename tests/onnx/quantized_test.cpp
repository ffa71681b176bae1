// Quantised numbers, and the classical models of ai.onnx.ml.
#include <limits>

#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

class TypedModel : public Model {
 public:
  explicit TypedModel(int opset) : Model(opset) {}
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           std::vector<double> values) {
    const int type = dtype == DType::u8    ? int{pb::TensorProto::UINT8}
                     : dtype == DType::i8  ? int{pb::TensorProto::INT8}
                     : dtype == DType::i64 ? i64
                                           : f32;
    input(name, type, std::vector<Size>(shape.begin(), shape.end()));
    in[name] = Tensor::from(dtype, shape, values);
  }
  Node make(const std::string& op, const std::vector<std::string>& inputs,
            const std::vector<std::string>& outputs = {"y"}) {
    for (const std::string& o : outputs) output(o);
    return node(op, inputs, outputs);
  }
  Tensor y() { return run(import(known(in)), in).at("y"); }
  std::vector<int64_t> numbers() { return y().to_int64s(); }
  Values in;
};

TEST(OnnxQuantized, RoundsToEvenAndSaturates) {
  TypedModel m(13);
  m.add("x", DType::f32, {6}, {0.5, 1.5, 2.5, -0.5, -200, 300});
  m.add("s", DType::f32, {}, {1});
  m.add("z", DType::u8, {}, {10});
  m.make("QuantizeLinear", {"x", "s", "z"});
  EXPECT_EQ(m.numbers(), (std::vector<int64_t>{10, 12, 12, 10, 0, 255}));
}

TEST(OnnxQuantized, ByAxisAndByBlock) {
  TypedModel m(21);
  m.add("x", DType::i8, {2, 3}, {1, 2, 3, 4, 5, 6});
  m.add("s", DType::f32, {2}, {10, 0.5});
  m.add("z", DType::i8, {2}, {1, -2});
  m.make("DequantizeLinear", {"x", "s", "z"}).set("axis", 0);
  expect_near(m.y(), {0, 10, 20, 3, 3.5, 4});
  TypedModel blocked(21);
  blocked.add("x", DType::f32, {1, 3}, {1, 2, 3});
  blocked.add("s", DType::f32, {1, 2}, {0.5, 0.25});
  blocked.make("QuantizeLinear", {"x", "s"})
      .set("axis", 1)
      .set("block_size", 2)
      .set("output_dtype", pb::TensorProto::INT8);
  EXPECT_EQ(blocked.numbers(), (std::vector<int64_t>{2, 4, 12}));
  TypedModel narrow(21);
  narrow.add("x", DType::f32, {1}, {1});
  narrow.add("s", DType::f32, {}, {1});
  narrow.make("QuantizeLinear", {"x", "s"}).set("output_dtype", int64_t{f32});
  expect_refused(narrow, {"QuantizeLinear to f32"});
}

TEST(OnnxQuantized, ProductsAreExact) {
  TypedModel m(10);
  m.add("a", DType::u8, {1, 2}, {255, 3});
  m.add("b", DType::i8, {2, 2}, {-128, 1, 2, 3});
  m.add("za", DType::u8, {}, {0});
  m.add("zb", DType::i8, {2}, {0, 1});
  m.make("MatMulInteger", {"a", "b", "za", "zb"});
  EXPECT_EQ(m.numbers(), (std::vector<int64_t>{255 * -128 + 6, 6}));
  TypedModel conv(10);
  conv.add("x", DType::u8, {1, 1, 3}, {1, 2, 3});
  conv.add("w", DType::u8, {1, 1, 2}, {1, 10});
  conv.add("zx", DType::u8, {}, {1});
  conv.make("ConvInteger", {"x", "w", "zx"}).set("pads", {1, 0});
  // What lies around the image is its zero point.
  EXPECT_EQ(conv.numbers(), (std::vector<int64_t>{0, 10, 21}));
}

TEST(OnnxQuantized, ProductsAreQuantisedAgain) {
  TypedModel m(21);
  m.add("a", DType::u8, {1, 2}, {3, 4});
  m.add("b", DType::u8, {2, 1}, {5, 6});
  m.add("sa", DType::f32, {}, {0.5});
  m.add("sy", DType::f32, {}, {2});
  m.add("z", DType::u8, {}, {2});
  m.make("QLinearMatMul", {"a", "sa", "z", "b", "sa", "z", "sy", "z"});
  // (1 * 3 + 2 * 4) / 8 = 1.375
  EXPECT_EQ(m.numbers(), (std::vector<int64_t>{3}));
  TypedModel conv(10);
  conv.add("x", DType::u8, {1, 1, 2}, {3, 4});
  conv.add("w", DType::u8, {2, 1, 1}, {3, 4});
  conv.add("s", DType::f32, {}, {1});
  conv.add("sw", DType::f32, {2}, {1, 10});
  conv.add("z", DType::u8, {}, {0});
  conv.make("QLinearConv", {"x", "s", "z", "w", "sw", "z", "s", "z"});
  EXPECT_EQ(conv.numbers(), (std::vector<int64_t>{9, 12, 120, 160}));
  TypedModel own(11);
  own.add("x", DType::f32, {3}, {-1, 0, 1.55});
  own.make("DynamicQuantizeLinear", {"x"}, {"y", "scale", "zero"});
  EXPECT_EQ(own.numbers(), (std::vector<int64_t>{0, 100, 255}));
}

// A classical model of the samples x.
TypedModel classical(std::vector<int64_t> shape, std::vector<double> x, int version = 3) {
  TypedModel m(17);
  auto& domain = *m.proto.add_opset_import();
  domain.set_domain("ai.onnx.ml");
  domain.set_version(version);
  m.add("x", DType::f32, shape, x);
  return m;
}
Node make_ml(TypedModel& m, const std::string& op, const std::vector<std::string>& out = {"y"}) {
  return m.make(op, {"x"}, out).in_domain("ai.onnx.ml");
}

TEST(OnnxClassical, ScalingAndEncoding) {
  TypedModel scaled = classical({2, 2}, {1, 2, 3, 4});
  make_ml(scaled, "Scaler").set_floats("offset", {1, 0}).set_floats("scale", {2, 10});
  expect_near(scaled.y(), {0, 20, 4, 40});
  TypedModel imputed = classical({2, 2}, {nan, 2, 3, nan});
  make_ml(imputed, "Imputer")
      .set_floats("imputed_value_floats", {7, 8})
      .set("replaced_value_float", nan);
  expect_near(imputed.y(), {7, 2, 3, 8});
  TypedModel labels = classical({3}, {1, 9, nan});
  make_ml(labels, "LabelEncoder")
      .set_floats("keys_floats", {1, nan, 1})
      .set("values_int64s", {10, 20, 30})
      .set("default_int64", -5);
  EXPECT_EQ(labels.numbers(), (std::vector<int64_t>{30, -5, 20}));
  TypedModel normal = classical({2, 2}, {3, -4, 0, 0});
  make_ml(normal, "Normalizer").set("norm", "L2");
  expect_near(normal.y(), {0.6, -0.8, 0, 0});
  TypedModel text = classical({1}, {1});
  make_ml(text, "OneHotEncoder").set_texts("cats_strings", {"a"});
  expect_refused(text, {"OneHotEncoder", "dtype string"});
  expect_refused(classical({1}, {1}, 6), {"version 6", "ai.onnx.ml", "1 to 5"});
}

TEST(OnnxClassical, LinearModels) {
  TypedModel m = classical({2, 2}, {1, 2, 3, 4});
  make_ml(m, "LinearRegressor")
      .set_floats("coefficients", {1, 10, 0, 1})
      .set_floats("intercepts", {0.5f, 0})
      .set("targets", 2);
  expect_near(m.y(), {21.5, 2, 43.5, 4});
  expect_gradients(m.import(), m.in);
  TypedModel c = classical({2, 1}, {1, -1});
  make_ml(c, "LinearClassifier", {"y", "scores"})
      .set_floats("coefficients", {1, 0, -1})
      .set("classlabels_ints", {7, 8, 9})
      .set("post_transform", "SOFTMAX");
  EXPECT_EQ(c.numbers(), (std::vector<int64_t>{7, 9}));
  TypedModel s = classical({1, 2}, {1, 2});
  make_ml(s, "SVMRegressor")
      .set("kernel_type", "RBF")
      .set_floats("kernel_params", {0.5f, 0, 0})
      .set("n_supports", 2)
      .set_floats("support_vectors", {1, 2, 1, 0})
      .set_floats("coefficients", {3, 1})
      .set_floats("rho", {-1});
  expect_near(s.y(), {2.135335});
}

// x0 <= 1 ? 10 : (x1 < 5 ? 20 : 30), and a tree that is one leaf.
Node add_trees(TypedModel& m, const std::string& op, const std::vector<std::string>& out) {
  return make_ml(m, op, out)
      .set("nodes_treeids", {0, 0, 0, 0, 0, 1})
      .set("nodes_nodeids", {0, 1, 2, 3, 4, 0})
      .set_texts("nodes_modes", {"BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF", "LEAF"})
      .set("nodes_featureids", {0, 0, 1, 0, 0, 0})
      .set_floats("nodes_values", {1, 0, 5, 0, 0, 0})
      .set("nodes_missing_value_tracks_true", {0, 0, 1, 0, 0, 0})
      .set("nodes_truenodeids", {1, 0, 3, 0, 0, 0})
      .set("nodes_falsenodeids", {2, 0, 4, 0, 0, 0});
}

TEST(OnnxClassical, TreesAreWalked) {
  TypedModel m = classical({4, 2}, {1, 9, 2, 4, 2, 5, nan, nan});
  add_trees(m, "TreeEnsembleRegressor", {"y"})
      .set("n_targets", 1)
      .set_floats("base_values", {0.5f})
      .set("target_treeids", {0, 0, 0, 1})
      .set("target_nodeids", {1, 3, 4, 0})
      .set("target_ids", {0, 0, 0, 0})
      .set_floats("target_weights", {10, 20, 30, 100});
  expect_near(m.y(), {110.5, 120.5, 130.5, 120.5});
  TypedModel c = classical({2, 2}, {1, 9, 2, 5});
  add_trees(c, "TreeEnsembleClassifier", {"y", "scores"})
      .set("classlabels_int64s", {3, 4})
      .set("class_treeids", {0, 0, 0, 1})
      .set("class_nodeids", {1, 3, 4, 0})
      .set("class_ids", {0, 1, 1, 0})
      .set_floats("class_weights", {1, 1, 2, 0.5f});
  EXPECT_EQ(c.numbers(), (std::vector<int64_t>{3, 4}));
}

TEST(OnnxClassical, TreesByPlaceWithSets) {
  auto model = [](int64_t no) {
    TypedModel m = classical({3, 1}, {4, 5, 1}, 5);
    auto bytes = [](std::vector<int64_t> values) {
      pb::TensorProto t;
      t.set_data_type(pb::TensorProto::UINT8);
      t.add_dims(static_cast<int64_t>(values.size()));
      for (int64_t v : values) t.add_int32_data(static_cast<int>(v));
      return t;
    };
    make_ml(m, "TreeEnsemble")
        .set("tree_roots", std::vector<int64_t>{0})
        .set("nodes_modes", bytes({6, 0}))
        .set("nodes_featureids", std::vector<int64_t>{0, 0})
        .set("nodes_splits", tensor("", {2}, {0, 4}))
        .set("membership_values", tensor("", {3}, {1, 5, nan}))
        .set("nodes_truenodeids", std::vector<int64_t>{0, 1})
        .set("nodes_trueleafs", std::vector<int64_t>{1, 1})
        .set("nodes_falsenodeids", std::vector<int64_t>{no, 2})
        .set("nodes_falseleafs", std::vector<int64_t>{0, 1})
        .set("leaf_targetids", {0, 0, 0})
        .set("leaf_weights", tensor("", {3}, {10, 20, 30}))
        .set("n_targets", 1);
    return m;
  };
  expect_near(model(1).y(), {20, 10, 10});
  // A node that leads to itself is no tree.
  expect_refused(model(0), {"TreeEnsemble", "no trees"});
}

}  // namespace
}  // namespace gradus::test
