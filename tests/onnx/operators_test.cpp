// The families of operators, with a batch whose size has a name: imported once, run for several
// sizes, and held against differences at orders 1 and 2. What they compute is held against ONNX's
// own tests (onnx.exports).
#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

using Build = void (*)(Model&);

// A model of one floating input x: f32[N, rest], and of an output y.
struct Family {
  const char* name;
  std::vector<int64_t> rest;
  Build build;
};

void PrintTo(const Family& f, std::ostream* out) { *out << f.name; }

pb::TensorProto spread(const std::string& name, std::vector<int64_t> sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(0.1f * static_cast<float>((i * 7) % 11) - 0.45f);
  return tensor(name, sizes, values);
}

Node lstm(Model& m) {
  m.weight(spread("w", {2, 12, 2}));
  m.weight(spread("r", {2, 12, 3}));
  m.weight(spread("b", {2, 24}));
  Node node = m.node("LSTM", {"x", "w", "r", "b"}, {"a", "h", "c"});
  node.set("hidden_size", 3).set("direction", "bidirectional");
  return node;
}

Node gru(Model& m) {
  m.weight(spread("w", {1, 9, 2}));
  m.weight(spread("r", {1, 9, 3}));
  m.weight(spread("b", {1, 18}));
  Node node = m.node("GRU", {"x", "w", "r", "b"}, {"a", "h"});
  node.set("hidden_size", 3).set("direction", "reverse");
  return node;
}

const Family families[] = {
    {"arithmetic",
     {3},
     [](Model& m) {
       m.weight(spread("w", {3}));
       m.node("Mul", {"x", "w"}, {"a"});
       m.node("Sub", {"a", "x"}, {"b"});
       m.node("Exp", {"b"}, {"c"});
       m.node("Max", {"c", "x", "a"}, {"d"});
       m.node("Div", {"d", "c"}, {"y"});
     }},
    {"activations",
     {4},
     [](Model& m) {
       m.weight(spread("slope", {4}));
       m.node("Elu", {"x"}, {"a"}).set("alpha", 0.7f);
       m.node("HardSigmoid", {"a"}, {"b"});
       m.node("PRelu", {"x", "slope"}, {"c"});
       m.node("Softmax", {"c"}, {"d"});
       m.node("Selu", {"d"}, {"e"});
       m.node("Add", {"b", "e"}, {"y"});
     }},
    {"reductions",
     {3, 2},
     [](Model& m) {
       m.node("ReduceL2", {"x"}, {"a"}).set("axes", std::vector<int64_t>{-1}).set("keepdims", 0);
       m.node("ReduceLogSumExp", {"a"}, {"b"})
           .set("axes", std::vector<int64_t>{1})
           .set("keepdims", 1);
       m.node("ReduceProd", {"a"}, {"c"}).set("axes", std::vector<int64_t>{1}).set("keepdims", 1);
       m.node("Add", {"b", "c"}, {"y"});
     }},
    {"shapes",
     {2, 6},
     [](Model& m) {
       m.weight(integers("pads", {6}, {0, 1, 0, 0, 0, 2}));
       m.weight(integers("starts", {1}, {-1}));
       m.weight(integers("ends", {1}, {-100}));
       m.weight(integers("axes", {1}, {2}));
       m.weight(integers("steps", {1}, {-2}));
       m.node("Pad", {"x", "pads"}, {"a"}).set("mode", "reflect");
       m.node("Slice", {"a", "starts", "ends", "axes", "steps"}, {"b"});
       m.node("Transpose", {"b"}, {"c"}).set("perm", {0, 2, 1});
       m.node("Flatten", {"c"}, {"d"});
       m.node("Split", {"d"}, {"e", "f"}).set("axis", 1);
       m.node("Mul", {"e", "f"}, {"y"});
     }},
    {"indexing",
     {4},
     [](Model& m) {
       m.weight(integers("i", {3}, {-1, 0, -1}));
       m.weight(integers("at", {2, 1}, {0, 0}));
       m.weight(spread("updates", {2, 3}));
       m.weight(integers("k", {1}, {2}));
       m.node("Gather", {"x", "i"}, {"a"}).set("axis", 1);
       m.node("ScatterND", {"a", "at", "updates"}, {"b"}).set("reduction", "mul");
       m.node("TopK", {"b", "k"}, {"c", "places"});
       m.node("GatherElements", {"x", "places"}, {"d"}).set("axis", 1);
       m.node("Mul", {"c", "d"}, {"y"});
     }},
    {"matrices",
     {2, 3},
     [](Model& m) {
       m.weight(spread("w", {3, 4}));
       m.node("MatMul", {"x", "w"}, {"a"});
       m.node("Einsum", {"a", "x"}, {"y"}).set("equation", "nij,nik->njk");
     }},
    {"convolution",
     {2, 5, 5},
     [](Model& m) {
       m.weight(spread("w", {3, 2, 3, 3}));
       m.weight(spread("b", {3}));
       m.weight(spread("v", {3, 2, 2, 2}));
       m.node("Conv", {"x", "w", "b"}, {"a"}).set("pads", {1, 0, 2, 1}).set("strides", {2, 1});
       m.node("ConvTranspose", {"a", "v"}, {"y"}).set("strides", {2, 2}).set("pads", {1, 0, 0, 1});
     }},
    {"pooling",
     {2, 5, 5},
     [](Model& m) {
       m.node("MaxPool", {"x"}, {"a"}).set("kernel_shape", {2, 2}).set("auto_pad", "SAME_LOWER");
       m.node("AveragePool", {"a"}, {"b"}).set("kernel_shape", {3, 2}).set("pads", {0, 1, 2, 0});
       m.node("GlobalAveragePool", {"b"}, {"y"});
     }},
    {"normalization",
     {3, 4},
     [](Model& m) {
       m.weight(spread("w", {3}));
       m.weight(spread("b", {3}));
       m.weight(spread("m", {3}));
       m.weight(tensor("v", {3}, {0.5, 1, 2}));
       m.node("BatchNormalization", {"x", "w", "b", "m", "v"}, {"a"});
       m.node("BatchNormalization", {"a", "w", "b", "m", "v"}, {"c", "mean", "var"})
           .set("training_mode", 1);
       m.node("InstanceNormalization", {"c", "w", "b"}, {"d"});
       m.node("LayerNormalization", {"d", "u"}, {"e"});
       m.weight(spread("u", {4}));
       m.node("LRN", {"e"}, {"y"}).set("size", 3);
     }},
    {"loss",
     {4},
     [](Model& m) {
       m.weight(spread("w", {3, 4}));
       m.weight(integers("axes", {1}, {1}));
       m.node("ArgMax", {"x"}, {"t"}).set("axis", 1).set("keepdims", 0);
       m.node("SoftmaxCrossEntropyLoss", {"x", "t"}, {"a", "logs"}).set("reduction", "none");
       m.node("Unsqueeze", {"a", "axes"}, {"b"});
       m.node("Add", {"b", "logs"}, {"y"});
     }},
    {"resize",
     {1, 3, 4},
     [](Model& m) {
       m.weight(tensor("scales", {4}, {1, 1, 1.7f, 0.6f}));
       m.node("Resize", {"x", "", "scales"}, {"y"}).set("mode", "cubic");
     }},
    {"resize_to_sizes",  // as exporters write them, with the batch's size in front
     {1, 3, 4},
     [](Model& m) {
       m.weight(integers("rest", {3}, {1, 5, 3}));
       m.node("Shape", {"x"}, {"n"}).set("start", 0).set("end", 1);
       m.node("Concat", {"n", "rest"}, {"sizes"}).set("axis", 0);
       m.node("Resize", {"x", "", "", "sizes"}, {"y"}).set("mode", "linear");
     }},
    {"sampling",
     {2, 3, 4},
     [](Model& m) {
       m.weight(tensor("g", {1, 2, 2, 2}, {0.1f, -0.3f, 0.62f, 0.4f, -0.7f, 0.2f, 0.33f, -1.4f}));
       m.weight(integers("shape", {4}, {1, 2, 2, 2}));
       m.node("Shape", {"x"}, {"sizes"}).set("start", 0).set("end", 1);
       m.weight(integers("rest", {3}, {1, 1, 1}));
       m.node("Concat", {"sizes", "rest"}, {"to"}).set("axis", 0);
       m.node("Expand", {"g", "to"}, {"grid"});
       m.node("GridSample", {"x", "grid"}, {"y"}).set("padding_mode", "reflection");
     }},
    {"lstm",
     {2, 2},
     [](Model& m) {
       lstm(m).set("layout", 1);
       m.node("Flatten", {"a"}, {"y"});
     }},
    {"gru",
     {2, 2},
     [](Model& m) {
       gru(m).set("linear_before_reset", 1).set("layout", 1);
       m.node("Flatten", {"h"}, {"y"});
     }},
    {"lstm_of_steps",
     {2, 2},
     [](Model& m) {
       lstm(m);
       m.node("Flatten", {"a"}, {"y"});
     }},
    {"gru_of_steps",
     {2, 2},
     [](Model& m) {
       gru(m);
       m.node("Flatten", {"a"}, {"y"});
     }},
    {"sequences",
     {4},
     [](Model& m) {
       m.weight(integers("parts", {2}, {1, 3}));
       m.weight(integers("one", {}, {1}));
       m.node("SplitToSequence", {"x", "parts"}, {"s"}).set("axis", 1);
       m.node("SequenceAt", {"s", "one"}, {"a"});
       m.node("SequenceInsert", {"s", "a"}, {"t"});
       m.node("ConcatFromSequence", {"t"}, {"b"}).set("axis", 1);
       m.node("Sin", {"b"}, {"y"});
     }},
    {"signals",
     {8, 1},
     [](Model& m) {
       m.weight(integers("step", {}, {2}));
       m.weight(integers("size", {}, {4}));
       m.node("HannWindow", {"size"}, {"w"});
       m.node("STFT", {"x", "step", "w"}, {"a"});
       m.node("Mul", {"a", "a"}, {"y"});
     }},
};

class OnnxFamily : public testing::TestWithParam<Family> {};

TEST_P(OnnxFamily, HoldsForAnyBatchAndHasDerivatives) {
  const Family& f = GetParam();
  Model m;
  std::vector<Size> sizes{"N"};
  for (int64_t n : f.rest) sizes.emplace_back(n);
  m.input("x", f32, sizes);
  f.build(m);
  m.output("y");
  onnx::Import model = m.import();
  const ir::Graph& g = model.program;
  const ir::Type& type = g[g.stages[0].results[0].value].type;
  EXPECT_FALSE(ir::all_constant(type.dims)) << to_string(type);
  for (int64_t batch : {2, 3}) {
    std::vector<int64_t> shape{batch};
    shape.insert(shape.end(), f.rest.begin(), f.rest.end());
    Tensor x = uniform_tensor(DType::f32, shape, -1, 1, "x", 5, *Context::default_context());
    Values in{{"x", x}};
    EXPECT_EQ(run(model, in)["y"].shape()[0], batch);
    if (batch == 2) expect_gradients(model, in);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnnxFamily, testing::ValuesIn(families),
                         [](const auto& family) { return family.param.name; });

Tensor one_result(Model& m, const Values& in) {
  m.output("y");
  return run(m.import(known(in)), in)["y"];
}

Tensor whole(std::vector<int64_t> shape, std::vector<double> values, DType dtype = DType::i64) {
  return Tensor::from(dtype, shape, values);
}

// Integers are divided towards zero, and their remainders have the divisor's sign.
TEST(OnnxOperators, DivisionOfIntegers) {
  Values in{{"a", whole({4}, {7, -7, 7, -7})}, {"b", whole({4}, {2, 2, -2, -2})}};
  for (auto [op, expected] :
       {std::pair{"Div", std::vector<double>{3, -3, -3, 3}}, {"Mod", {1, 1, -1, -1}}}) {
    Model m;
    m.input("a", i64, {4});
    m.input("b", i64, {4});
    m.node(op, {"a", "b"}, {"y"});
    expect_near(one_result(m, in), expected);
  }
}

TEST(OnnxOperators, ScattersThatCombine) {
  Values in{{"x", floats({3}, {1, 5, 2})}};
  for (auto [how, expected] : {std::pair{"add", std::vector<double>{1, 12, 2}},
                               {"mul", {1, 60, 2}},
                               {"max", {1, 5, 2}},
                               {"min", {1, 3, 2}}}) {
    Model m(18);
    m.input("x", f32, {3});
    m.weight(integers("i", {2}, {1, -2}));
    m.weight(tensor("u", {2}, {4, 3}));
    m.node("ScatterElements", {"x", "i", "u"}, {"y"}).set("reduction", how);
    expect_near(one_result(m, in), expected);
  }
}

// From numbers that are inputs.
TEST(OnnxOperators, RangesByData) {
  struct Case {
    double start, limit, delta;
    std::vector<double> y;
  };
  const Case cases[] = {{0.5, 2.1, 0.5, {0.5, 1, 1.5, 2}},
                        {3, 0.4, -1.25, {3, 1.75, 0.5}},
                        {1, 3, 1, {1, 2}},
                        {1, 1, 1, {}},
                        {1, 3, -1, {}}};
  for (const Case& k : cases) {
    Model m;
    for (const char* name : {"start", "limit", "delta"}) m.input(name, f32, std::vector<Size>{});
    m.node("Range", {"start", "limit", "delta"}, {"r"});
    m.node("Mul", {"r", "r"}, {"y"});
    m.output("y");
    onnx::Import model = m.import();
    Values in{{"start", floats({}, {k.start})},
              {"limit", floats({}, {k.limit})},
              {"delta", floats({}, {k.delta})}};
    std::vector<double> squares;
    for (double v : k.y) squares.push_back(v * v);
    expect_near(run(model, in)["y"], squares);
  }
  for (auto [start, limit, delta, expected] : {std::tuple{1, 8, 3, std::vector<double>{1, 4, 7}},
                                               {9, 2, -3, {9, 6, 3}},
                                               {-1, 5, 6, {-1}},
                                               {0, -4, 2, {}}}) {
    Model m;
    for (const char* name : {"start", "limit", "delta"}) m.input(name, i64, std::vector<Size>{});
    m.node("Range", {"start", "limit", "delta"}, {"y"});
    Values in{{"start", whole({}, {double(start)})},
              {"limit", whole({}, {double(limit)})},
              {"delta", whole({}, {double(delta)})}};
    expect_near(one_result(m, in), expected);
  }
}

// What data count has a name, in the results of derivatives too.
TEST(OnnxOperators, SizesThatDataDecide) {
  Model m;
  m.input("x", f32, {"N"});
  m.weight(tensor("zero", {}, {0}));
  m.node("Greater", {"x", "zero"}, {"mask"});
  m.node("Compress", {"x", "mask"}, {"h"});
  m.node("Mul", {"h", "h"}, {"y"});
  m.output("y");
  onnx::Import model = m.import();
  Values in{{"x", floats({4}, {1, -2, 3, -4})}};
  expect_near(run(model, in)["y"], {1, 9});
  expect_gradients(model, in);
}

TEST(OnnxOperators, SequencesOfDifferentLengths) {
  Model m;
  m.input("x", f32, {3, "N", 1});
  m.weight(tensor("w", {1, 1, 1}, {1}));
  m.weight(tensor("r", {1, 1, 1}, {1}));
  m.input("lengths", pb::TensorProto::INT32, {"N"});
  m.node("RNN", {"x", "w", "r", "", "lengths"}, {"all", "y"}).set("hidden_size", 1);
  Values in{{"x", floats({3, 2, 1}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6})},
            {"lengths", whole({2}, {3, 1}, DType::i32)}};
  double a = std::tanh(0.1), b = std::tanh(0.3 + a), c = std::tanh(0.5 + b);
  expect_near(one_result(m, in), {c, std::tanh(0.2)});
}

// A number of steps that has a name is a loop. It gives what the steps themselves give.
TEST(OnnxOperators, RecurrencesOverNamedSteps) {
  for (const char* op : {"RNN", "GRU", "LSTM"})
    for (const char* direction : {"forward", "bidirectional"})
      for (const bool lengths : {false, true}) {
        const int64_t directions = direction[0] == 'f' ? 1 : 2;
        const int64_t gates = op[0] == 'R' ? 1 : op[0] == 'G' ? 3 : 4;
        auto model = [&](bool named) {
          Model m;
          if (named)
            m.input("x", f32, {"S", 2, 2});
          else
            m.input("x", f32, {3, 2, 2});
          m.input("lengths", pb::TensorProto::INT32, {2});
          m.weight(spread("w", {directions, gates * 3, 2}));
          m.weight(spread("r", {directions, gates * 3, 3}));
          m.weight(spread("b", {directions, gates * 6}));
          m.node(op, {"x", "w", "r", "b", lengths ? "lengths" : ""}, {"a", "h"})
              .set("hidden_size", 3)
              .set("direction", direction);
          m.node("ReduceSum", {"a"}, {"s"}).set("keepdims", 0);
          m.node("Add", {"h", "s"}, {"y"});
          m.output("y");
          return m.import();
        };
        const std::vector<int64_t> shape{3, 2, 2};
        Tensor x = uniform_tensor(DType::f32, shape, -1, 1, "x", 5, *Context::default_context());
        Values in{{"x", x}, {"lengths", whole({2}, {3, 1}, DType::i32)}};
        SCOPED_TRACE(fmt::format("{} {} {}", op, direction, lengths));
        onnx::Import loop = model(true);
        expect_near(run(loop, in)["y"], run(model(false), in)["y"].to_doubles());
        expect_gradients(loop, in);
      }
}

// What ONNX's own tests leave out.
TEST(OnnxOperators, GroupsOfChannels) {
  Model m(18);
  m.input("x", f32, {"N", 4, 1});
  m.weight(tensor("w", {2}, {2, 3}));
  m.weight(tensor("b", {2}, {0, 1}));
  m.node("GroupNormalization", {"x", "w", "b"}, {"y"}).set("num_groups", 2).set("epsilon", 0.0f);
  Values in{{"x", floats({1, 4, 1}, {1, 3, 10, 30})}};
  expect_near(one_result(m, in), {-2, 2, -2, 4});
  expect_gradients(m.import(), in);
}

TEST(OnnxOperators, PoolsOfPowers) {
  Model m;
  m.input("x", f32, {"N", 1, 3});
  m.node("LpPool", {"x"}, {"y"}).set("kernel_shape", std::vector<int64_t>{2}).set("p", 2);
  expect_near(one_result(m, {{"x", floats({1, 1, 3}, {3, -4, 0})}}), {5, 4});
}

// Columns of 2 by 2 windows, which overlap, with uneven pads.
TEST(OnnxOperators, WindowsAddedUp) {
  Model m(18);
  m.input("x", f32, {"N", 4, 4});
  m.weight(integers("image", {2}, {2, 2}));
  m.weight(integers("block", {2}, {2, 2}));
  m.node("Col2Im", {"x", "image", "block"}, {"y"}).set("pads", std::vector<int64_t>{1, 0, 0, 1});
  std::vector<double> x;
  for (int i = 1; i <= 16; ++i) x.push_back(i);
  Values in{{"x", floats({1, 4, 4}, x)}};
  // Element (i, j) of window (p, q) is added to (p + i - 1, q + j) of the image.
  std::vector<double> y(4);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      for (int p = 0; p < 2; ++p)
        for (int q = 0; q < 2; ++q)
          if (const int row = p + i - 1, column = q + j; row >= 0 && column < 2)
            y[static_cast<size_t>(2 * row + column)] +=
                x[static_cast<size_t>(8 * i + 4 * j + 2 * p + q)];
  expect_near(one_result(m, in), y);
  expect_gradients(m.import(), in);
}

TEST(OnnxOperators, UpsamplingOfOldVersions) {
  Model m(6);
  m.input("x", f32, {1, 1, 1, 2});
  m.node("Upsample", {"x"}, {"y"}).set("height_scale", 2.0f).set("width_scale", 2.0f);
  expect_near(one_result(m, {{"x", floats({1, 1, 1, 2}, {1, 2})}}), {1, 1, 2, 2, 1, 1, 2, 2});
}

// Before version 7 the second operand lies along an axis.
TEST(OnnxOperators, BroadcastingOfOldVersions) {
  Model m(6);
  m.input("x", f32, {2, 2});
  m.weight(tensor("b", {2}, {10, 20}));
  m.node("Add", {"x", "b"}, {"y"}).set("broadcast", 1).set("axis", 0);
  expect_near(one_result(m, {{"x", floats({2, 2}, {1, 2, 3, 4})}}), {11, 12, 23, 24});
}

TEST(OnnxOperators, GradientsAsValues) {
  Model m;
  m.proto.add_opset_import()->set_domain("ai.onnx.preview.training");
  m.proto.mutable_opset_import(1)->set_version(1);
  m.input("x", f32, {2});
  m.node("Mul", {"x", "x"}, {"h"});
  auto node = m.node("Gradient", {"x"}, {"y"}).in_domain("ai.onnx.preview.training");
  node.set("y", "h");
  auto* xs = m.graph().mutable_node(1)->add_attribute();
  xs->set_name("xs");
  xs->set_type(pb::AttributeProto::STRINGS);
  xs->add_strings("x");
  expect_near(one_result(m, {{"x", floats({2}, {3, -1})}}), {6, -2});
}

}  // namespace
}  // namespace gradus::test
