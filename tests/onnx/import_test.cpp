// What importing makes of models as a whole: weights, folding, sizes with names, subgraphs.
#include <google/protobuf/unknown_field_set.h>

#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

// SPEC W2
TEST(OnnxImport, WeightsAreInputsAfterTheModelsOwn) {
  Model m;
  m.input("x", f32, {"N", 2});
  m.weight(tensor("w", {2, 3}, {1, 2, 3, 4, 5, 6}));
  m.weight(tensor("b", {3}, {0.5, -0.5, 0}));
  m.weight(tensor("unused", {100}, std::vector<float>(100)));
  m.node("Gemm", {"x", "w", "b"}, {"y"});
  m.output("y");
  onnx::Import model = m.import();
  const ir::Graph& g = model.program;
  std::vector<std::string> inputs;
  for (ir::ValueId v : g.stages[0].inputs) inputs.push_back(g[v].name);
  EXPECT_EQ(inputs, (std::vector<std::string>{"x", "w", "b"}));
  EXPECT_EQ(model.weights.size(), 2u);
  EXPECT_EQ(to_string(g[g.stages[0].results[0].value].type), "f32[N, 3]");
  Values in{{"x", floats({1, 2}, {1, -1})}};
  expect_near(run(model, in)["y"], {-2.5, -3.5, -3});
  expect_near(run(model, {{"x", floats({1, 2}, {1, -1})}, {"b", floats({3}, {0, 0, 0})}})["y"],
              {-3, -3, -3});
  expect_gradients(model, {{"x", floats({2, 2}, {1, -1, 0.3, 0.7})}});
}

// A node's module: by its name, as PyTorch's first exporter writes it, or by the scopes of the
// later one.
TEST(OnnxImport, NodesNameTheirModules) {
  Model m;
  m.input("x", f32, {2});
  auto add = [&](const char* op, const char* in, const char* out, const char* name) {
    m.node(op, {in}, {out});
    pb::NodeProto* node = m.graph().mutable_node(m.graph().node_size() - 1);
    node->set_name(name);
    return node;
  };
  add("Tanh", "x", "a", "/encoder/layers.0/Tanh");
  pb::StringStringEntryProto scopes;
  scopes.set_key("pkg.torch.onnx.name_scopes");
  scopes.set_value("['', 'encoder', 'encoder.layers.1', 'node_Exp']");
  pb::NodeProto* exp = add("Exp", "a", "b", "node_Exp");
  exp->GetReflection()->MutableUnknownFields(exp)->AddLengthDelimited(9,
                                                                      scopes.SerializeAsString());
  add("Neg", "b", "c", "last");
  m.output("c");
  const ir::Graph g = m.import().program;
  ASSERT_TRUE(g.source);
  EXPECT_EQ(g.source->modules,
            (std::vector<std::string>{"encoder/layers.0", "encoder/layers.1", ""}));
  EXPECT_EQ(g.source->line(g.stages[0].nodes[1].where), "b = Exp  # node_Exp");
}

// PyTorch writes the 2 of x**2 as a weight. Others may be learned.
TEST(OnnxImport, AnExponentThatIsAMultipleOfAHalfIsANumber) {
  auto weights_of = [](const pb::TensorProto& exponent, bool declared) {
    Model m;
    m.input("x", f32, {2});
    if (declared) m.input("e", f32, {});
    m.weight(exponent);
    m.node("Pow", {"x", "e"}, {"y"});
    m.output("y");
    return m.import();
  };
  const onnx::Import square = weights_of(tensor("e", {}, {2}), false);
  EXPECT_TRUE(square.weights.empty());
  const Values in{{"x", floats({2}, {-1.5, 0.5})}};
  expect_near(run(square, in)["y"], {2.25, 0.25});
  expect_gradients(square, in);
  EXPECT_TRUE(weights_of(tensor("e", {}, {0.5}), false).weights.empty());
  EXPECT_EQ(weights_of(tensor("e", {}, {2.3F}), false).weights.size(), 1u);
  EXPECT_EQ(weights_of(tensor("e", {1}, {2}), false).weights.size(), 1u);
  EXPECT_EQ(weights_of(tensor("e", {}, {2}), true).weights.size(), 1u);
}

TEST(OnnxImport, ADefaultThatIsAlsoAnInputIsAWeight) {
  Model m;
  m.input("x", f32, {2});
  m.input("w", f32, {2});
  m.weight(tensor("w", {2}, {3, 4}));
  m.node("Mul", {"x", "w"}, {"y"});
  m.output("y");
  onnx::Import model = m.import();
  EXPECT_EQ(model.program.stages[0].inputs.size(), 2u);
  expect_near(run(model, {{"x", floats({2}, {1, 2})}})["y"], {3, 8});
}

// x -> reshape(x, [shape(x)[0], -1]), as exporters write a flatten.
TEST(OnnxImport, FoldsArithmeticOnNamedSizes) {
  Model m;
  m.input("x", f32, {"batch size", 3, 4});
  m.weight(integers("zero", {}, {0}));
  m.weight(integers("axes", {1}, {0}));
  m.weight(integers("rest", {1}, {-1}));
  m.node("Shape", {"x"}, {"shape"});
  m.node("Gather", {"shape", "zero"}, {"n"});
  m.node("Unsqueeze", {"n", "axes"}, {"n1"});
  m.node("Concat", {"n1", "rest"}, {"to"}).set("axis", 0);
  m.node("Reshape", {"x", "to"}, {"y"});
  m.output("y");
  onnx::Import model = m.import();
  const ir::Graph& g = model.program;
  EXPECT_EQ(g.stages[0].nodes.size(), 1u) << ir::print(g);
  EXPECT_EQ(to_string(g[g.stages[0].results[0].value].type), "f32[batch_size, 12]");
}

TEST(OnnxImport, ANamedSizeCanBeAValue) {
  Model m;
  m.input("x", f32, {"N", "M"});
  m.node("Shape", {"x"}, {"shape"});
  m.node("Cast", {"shape"}, {"y"}).set("to", f32);
  m.output("y");
  expect_near(run(m.import(), {{"x", floats({2, 3}, {0, 0, 0, 0, 0, 0})}})["y"], {2, 3});
}

TEST(OnnxImport, ComputesConstants) {
  Model m;
  m.input("x", f32, {2});
  m.node("Constant", {}, {"a"}).set("value", tensor("", {}, {3}));
  m.node("Constant", {}, {"b"}).set("value_float", 4.0f);
  m.node("Mul", {"a", "b"}, {"c"});
  m.node("Sqrt", {"c"}, {"d"});
  m.node("Mul", {"x", "d"}, {"y"});
  m.output("y");
  onnx::Import model = m.import();
  EXPECT_EQ(model.program.stages[0].nodes.size(), 2u) << ir::print(model.program);
  expect_near(run(model, {{"x", floats({2}, {1, 2})}})["y"], {3.4641016, 6.9282032});
}

TEST(OnnxImport, DerivativesGoThroughFunctionsOfWeights) {
  Model m;
  m.input("x", f32, {"N", 2});
  m.weight(tensor("w", {3, 2}, {1, 2, 3, 4, 5, 6}));
  m.node("Transpose", {"w"}, {"wt"});
  m.node("MatMul", {"x", "wt"}, {"h"});
  m.node("Tanh", {"h"}, {"y"});
  m.output("y");
  expect_gradients(m.import(), {{"x", floats({2, 2}, {0.1, 0.2, -0.3, 0.1})}});
}

TEST(OnnxImport, AValueThatDecidesStructureIsAskedFor) {
  Model m;
  m.input("x", f32, {6});
  m.input("shape", i64, {2});
  m.node("Reshape", {"x", "shape"}, {"y"});
  m.output("y");
  expect_refused(m, {"Reshape", "shape", "depends on data"});
  Tensor shape = Tensor::from(DType::i64, std::vector<int64_t>{2}, std::vector<double>{2, 3});
  onnx::Import model = m.import(known({{"shape", shape}}));
  EXPECT_EQ(model.fixed, std::vector<std::string>{"shape"});
  EXPECT_EQ(model.program.stages[0].inputs.size(), 1u);
}

pb::GraphProto doubling_body() {
  pb::GraphProto body;
  describe_value(body.add_input(), "i", i64, {});
  describe_value(body.add_input(), "go", boolean, {});
  describe_value(body.add_input(), "s", f32, {2});
  add_node(body, "Identity", {"go"}, {"go_on"});
  add_node(body, "Mul", {"s", "w"}, {"t"});  // w is seen from outside
  for (const char* name : {"go_on", "t", "t"}) describe_value(body.add_output(), name, f32, {});
  return body;
}

TEST(OnnxImport, LoopsOfKnownLengthAreUnrolled) {
  Model m;
  m.input("x", f32, {2});
  m.weight(tensor("w", {}, {2}));
  m.weight(integers("trips", {}, {3}));
  m.node("Loop", {"trips", "", "x"}, {"y", "all"}).set("body", doubling_body());
  m.output("y");
  m.output("all");
  onnx::Import model = m.import();
  Values in{{"x", floats({2}, {1, 5})}};
  Values out = run(model, in);
  expect_near(out["y"], {8, 40});
  expect_near(out["all"], {2, 10, 4, 20, 8, 40});
  expect_gradients(model, in);
}

// One input for all rounds, apart from the outer weight of that name, and derivatives for both.
TEST(OnnxImport, WeightsOfInnerGraphsAreWeights) {
  pb::GraphProto body = doubling_body();
  *body.add_initializer() = tensor("w", {}, {3});
  Model m;
  m.input("x", f32, {2});
  m.weight(tensor("w", {}, {2}));
  m.weight(integers("trips", {}, {2}));
  m.node("Mul", {"x", "w"}, {"h"});
  m.node("Loop", {"trips", "", "h"}, {"y", "all"}).set("body", body);
  m.output("y");
  onnx::Import model = m.import();
  ASSERT_EQ(model.weights.size(), 2u);
  EXPECT_EQ(model.weights[0].first, "w");
  EXPECT_EQ(model.weights[1].first, "w_1");
  Values in{{"x", floats({2}, {1, 5})}};
  expect_near(run(model, in)["y"], {18, 90});
  expect_near(run(model, {{"x", floats({2}, {1, 5})}, {"w_1", floats({}, {1})}})["y"], {2, 10});
  expect_gradients(model, in);
}

// Images of any size are doubled.
TEST(OnnxImport, NearestElementsAreRepeatedAlongNamedSizes) {
  for (const char* transform : {"asymmetric", "half_pixel"}) {
    Model m;
    m.input("x", f32, {1, 1, "H", "W"});
    m.weight(tensor("scales", {4}, {1, 1, 2, 3}));
    m.node("Resize", {"x", "", "scales"}, {"y"})
        .set("coordinate_transformation_mode", transform)
        .set("nearest_mode", transform[0] == 'a' ? "floor" : "round_prefer_floor");
    m.output("y");
    onnx::Import model = m.import();
    Values in{{"x", floats({1, 1, 2, 2}, {1, 2, 3, 4})}};
    expect_near(run(model, in)["y"],
                {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4});
    expect_gradients(model, in);
  }
}

// Scales along a size that has a name give what they give where the size is known.
TEST(OnnxImport, ResizesAlongNamedSizes) {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* transform : {"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric",
                                  "align_corners", "asymmetric"})
      for (const float scale : {1.5f, 0.6f, 2.0f, 0.3f}) {
        auto model = [&](bool named) {
          Model m(19);
          if (named)
            m.input("x", f32, {1, "H", "W"});
          else
            m.input("x", f32, {1, 5, 4});
          m.weight(tensor("scales", {3}, {1, scale, 1.3f}));
          m.node("Resize", {"x", "", "scales"}, {"y"})
              .set("mode", mode)
              .set("coordinate_transformation_mode", transform)
              .set("exclude_outside", mode[0] == 'c' ? 1 : 0);
          m.output("y");
          return m.import();
        };
        SCOPED_TRACE(fmt::format("{} {} {}", mode, transform, scale));
        std::vector<double> numbers;
        for (int i = 0; i < 20; ++i) numbers.push_back(0.1 * ((i * 7) % 11) - 0.5);
        Values in{{"x", floats({1, 5, 4}, numbers)}};
        onnx::Import any = model(true);
        const Tensor y = run(any, in)["y"], known = run(model(false), in)["y"];
        EXPECT_EQ(to_string(y.shape()), to_string(known.shape()));
        expect_near(y, known.to_doubles());
        if (scale == 1.5f) expect_gradients(any, in);
      }
}

TEST(OnnxImport, ResizesToNamedSizes) {
  Model m(19);
  m.input("x", f32, {1, "H"});
  m.input("like", f32, {1, "K"});
  m.node("Shape", {"like"}, {"sizes"});
  m.node("Resize", {"x", "", "", "sizes"}, {"y"}).set("mode", "linear");
  m.output("y");
  Values in{{"x", floats({1, 2}, {0, 4})}, {"like", floats({1, 4}, {0, 0, 0, 0})}};
  expect_near(run(m.import(), in)["y"], {0, 1, 3, 4});
  Model smooth(19);
  smooth.input("x", f32, {1, "H"});
  smooth.input("like", f32, {1, "K"});
  smooth.node("Shape", {"like"}, {"sizes"});
  smooth.node("Resize", {"x", "", "", "sizes"}, {"y"}).set("mode", "linear").set("antialias", 1);
  smooth.output("y");
  expect_refused(smooth, {"Resize with antialias along a size that has a name"});
}

// Before version 14 a model trains where it asks for the statistics.
TEST(OnnxImport, BatchNormalizationOfOldVersionsTrains) {
  Model m(9);
  m.input("x", f32, {"N", 1, 2});
  for (const char* name : {"scale", "bias", "mean", "var"})
    m.weight(tensor(name, {1}, {name[0] == 's' ? 2.0f : 0.5f}));
  m.node("BatchNormalization", {"x", "scale", "bias", "mean", "var"},
         {"y", "mean_out", "var_out", "batch_mean", "batch_var"})
      .set("epsilon", 0.0f)
      .set("momentum", 0.75f);
  for (const char* name : {"y", "mean_out", "var_out", "batch_mean", "batch_var"}) m.output(name);
  onnx::Import model = m.import();
  Values in{{"x", floats({2, 1, 2}, {1, 3, 1, 3})}};
  Values out = run(model, in);
  expect_near(out["y"], {-1.5, 2.5, -1.5, 2.5});
  expect_near(out["mean_out"], {0.875});
  expect_near(out["var_out"], {0.625});
  expect_near(out["batch_mean"], {2});
  expect_near(out["batch_var"], {1});
  expect_gradients(model, {{"x", floats({2, 1, 2}, {1, 2.5, -0.5, 3})}});
}

TEST(OnnxImport, FunctionsOfTheModelAreInlined) {
  Model m;
  m.input("x", f32, {2});
  auto* f = m.proto.add_functions();
  f->set_name("ScaledRelu");
  f->set_domain("mine");
  f->add_opset_import()->set_version(17);
  f->add_input("a");
  f->add_output("b");
  f->add_attribute("slope");
  auto* n = f->add_node();
  n->set_op_type("LeakyRelu");
  n->add_input("a");
  n->add_output("b");
  auto* a = n->add_attribute();
  a->set_name("alpha");
  a->set_type(pb::AttributeProto::FLOAT);
  a->set_ref_attr_name("slope");
  m.node("ScaledRelu", {"x"}, {"y"}).set("slope", 0.5f).in_domain("mine");
  m.output("y");
  expect_near(run(m.import(), {{"x", floats({2}, {-4, 3})}})["y"], {-2, 3});
}

TEST(OnnxImport, TextOfAModelReadsBack) {
  Model m;
  m.input("input 1", f32, {"N", 2});
  m.weight(tensor("layer/w:0", {2, 2}, {1, 2, 3, 4}));
  m.node("MatMul", {"input 1", "layer/w:0"}, {"1"});
  m.output("1");
  onnx::Import model = m.import();
  std::string text = ir::print(model.program);
  EXPECT_NE(text.find("%\"layer/w:0\": f32[2, 2]"), std::string::npos) << text;
}

TEST(OnnxImport, WhatIsMissingIsNamed) {
  auto of = [](const char* op) {
    Model m;
    m.input("x", f32, {2});
    m.node(op, {"x"}, {"y"});
    m.output("y");
    return m;
  };
  expect_refused(of("StringNormalizer"), {"node of 'y'", "StringNormalizer", "not supported"});
  expect_refused(of("TfIdfVectorizer"), {"TfIdfVectorizer", "not supported"});
  expect_refused(of("RandomUniformLike"), {"RandomUniformLike", "random"});
  expect_refused(of("Nonsense"), {"Nonsense", "not supported"});
  Model next(99);
  expect_refused(next, {"version 99", "1 to 28"});
}

}  // namespace
}  // namespace gradus::test
