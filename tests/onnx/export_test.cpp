// What a program's first stage is as a model: its inputs, weights, sizes, names, and refusals.
#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

pb::ModelProto exported(const ir::Graph& program,
                        const std::vector<std::pair<std::string, Tensor>>& weights = {}) {
  pb::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(onnx::export_stage(program, weights)));
  return model;
}
std::vector<std::string> operators(const pb::ModelProto& model) {
  std::vector<std::string> names;
  for (const auto& node : model.graph().node()) names.push_back(node.op_type());
  return names;
}
std::string refusal(const std::string& text, std::vector<std::pair<std::string, Tensor>> w = {}) {
  try {
    onnx::export_stage(ir::parse(text, "program.ir").program(), w);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

constexpr const char* layer = R"(graph layer {
  stage 0 (%x: f32[N, 2], %w: f32[3, 2], %b: f32[3]) {
    %h = linear(%x, %w, %b)
    %y = relu(%h)
    %rows = flatten(%y)
    return %y, %rows, again = %y, %x
  }
})";

// SPEC W2
TEST(OnnxExport, KeepsInputsWeightsSizesAndNames) {
  ir::Module module = ir::parse(layer, "layer.ir");
  pb::ModelProto m = exported(module.program(), {{"w", floats({3, 2}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(m.opset_import(0).version(), 17);
  const pb::GraphProto& g = m.graph();
  EXPECT_EQ(g.name(), "layer");
  ASSERT_EQ(g.input_size(), 2);
  EXPECT_EQ(g.input(0).name(), "x");
  EXPECT_EQ(g.input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
  EXPECT_EQ(g.input(0).type().tensor_type().shape().dim(1).dim_value(), 2);
  EXPECT_EQ(g.input(1).name(), "b");
  ASSERT_EQ(g.initializer_size(), 1);
  EXPECT_EQ(g.initializer(0).name(), "w");
  std::vector<std::string> outputs;
  for (const auto& o : g.output()) outputs.push_back(o.name());
  EXPECT_EQ(outputs, (std::vector<std::string>{"y", "rows", "again", "x"}));
  EXPECT_EQ(operators(m), (std::vector<std::string>{"Gemm", "Relu", "Constant", "Reshape",
                                                    "Identity", "Identity"}));
}

// The backward stage has no part in it, and what only it reads is not there.
TEST(OnnxExport, IsTheFirstStageAlone) {
  ir::Module module = ir::parse(layer, "layer.ir");
  ir::Graph derived = ir::differentiate(module.program(), {.order = 2});
  pb::ModelProto m = exported(derived);
  EXPECT_EQ(m.graph().input_size(), 3);
  EXPECT_EQ(m.graph().output_size(), 4);
  // The program was taken apart to be derived.
  EXPECT_EQ(operators(m),
            (std::vector<std::string>{"Transpose", "MatMul", "Add", "Relu", "Constant", "Reshape",
                                      "Identity", "Identity"}));
}

// A derivative inside the stage is written out.
TEST(OnnxExport, WritesDerivativesInsideTheStage) {
  ir::Module module = ir::parse(R"(graph force {
  stage 0 (%x: f64[N]) {
    %s = square(%x)
    %e = sum(%s)
    %g = grad(%e, %x)
    return %e, %g
  }
})",
                                "force.ir");
  onnx::Import back = onnx::import_bytes(onnx::export_stage(module.program()), "force");
  Tensor x = Tensor::from(DType::f64, std::array<int64_t, 1>{3}, std::array{1.0, -2.0, 0.5});
  Values y = run(back, {{"x", x}});
  expect_near(y["e"], {5.25});
  expect_near(y["g"], {2, -4, 1});
}

// A table of positions is computed in the model. As a constant, it would come back as a weight.
TEST(OnnxExport, KeepsRangesAndWhatReadsThem) {
  ir::Module module = ir::parse(R"(graph encoded {
  stage 0 (%x: f32[100]) {
    %i = arange() {end = 100}
    %t = cast(%i) {dtype = f32}
    %s = sin(%t)
    %y = add(%x, %s)
    return %y
  }
})",
                                "encoded.ir");
  onnx::Import back = onnx::import_bytes(onnx::export_stage(module.program()), "encoded");
  EXPECT_TRUE(back.weights.empty());
  Tensor y = run(back, {{"x", Tensor::zeros(DType::f32, std::array<int64_t, 1>{100})}})["y"];
  EXPECT_NEAR(y.item(99), std::sin(99.0), 1e-6);
}

// Sizes are computed from the inputs' shapes, wherever a name can be told from them.
TEST(OnnxExport, ComputesSizesFromShapes) {
  ir::Module module = ir::parse(R"(graph sizes {
  stage 0 (%x: f32[2*M + 1, K]) {
    %y = full() {shape = [M // 2, max(K, 3)], value = 1.5, dtype = f32}
    return %y
  }
})",
                                "sizes.ir");
  onnx::Import back = onnx::import_bytes(onnx::export_stage(module.program()), "sizes");
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{11, 2}, {3, 5}}) {
    Tensor y = run(back, {{"x", Tensor::zeros(DType::f32, std::array{rows, columns})}})["y"];
    EXPECT_EQ(y.shape()[0], (rows - 1) / 4);
    EXPECT_EQ(y.shape()[1], std::max<int64_t>(columns, 3));
  }
}

// A size that only a weight has.
TEST(OnnxExport, ComputesSizesFromWeights) {
  ir::Module module = ir::parse(R"(graph sizes {
  stage 0 (%x: f32[], %w: f32[M]) {
    %y = expand(%x) {shape = [M]}
    %z = mul(%y, %w)
    return %z
  }
})",
                                "sizes.ir");
  onnx::Import back = onnx::import_bytes(
      onnx::export_stage(module.program(),
                         std::vector{std::pair<std::string, Tensor>("w", floats({3}, {1, 2, 3}))}),
      "sizes");
  expect_near(run(back, {{"x", floats({}, {2})}})["z"], {2, 4, 6});
}

TEST(OnnxExport, RefusesByThePlaceInTheProgram) {
  EXPECT_EQ(refusal(R"(graph g {
  stage 0 (%x: f64[3]) {
    %y = cumprod(%x) {dim = 0}
    return %y
  }
})")
                .substr(0, 64),
            "program.ir:3:10: error: cumprod: there is no ONNX operator for i");
  EXPECT_NE(refusal(layer, {{"w", Tensor::zeros(DType::f64, std::array<int64_t, 2>{3, 2})}})
                .find("weight w is not of the program's type f32[3, 2]"),
            std::string::npos);
  EXPECT_NE(refusal(layer, {{"w", Tensor::zeros(DType::f32, std::array<int64_t, 2>{2, 2})}})
                .find("weight w is not of the program's type f32[3, 2]"),
            std::string::npos);
}

// The axes of a mean are an attribute of old, an input since version 18.
TEST(OnnxExport, WritesTheVersionThatIsAskedFor) {
  ir::Module module = ir::parse(R"(graph means {
  stage 0 (%x: f32[N, 3]) {
    %a = mean(%x) {dim = [1]}
    %b, %i = max_dim(%x) {dim = 1}
    %y = add(%a, %b)
    %t = all(%x)
    return %y, %t
  }
})",
                                "means.ir");
  Values in{{"x", floats({2, 3}, {1, 2, 6, 4, 5, 0})}};
  for (int opset : {17, 18, 23}) {
    const std::string bytes = onnx::export_stage(module.program(), {}, {.opset = opset});
    pb::ModelProto m;
    ASSERT_TRUE(m.ParseFromString(bytes));
    EXPECT_EQ(m.opset_import(0).version(), opset);
    EXPECT_EQ(m.ir_version(), opset == 23 ? 11 : 8);
    for (const auto& node : m.graph().node())
      if (node.op_type() == "ReduceMean") {
        EXPECT_EQ(node.input_size(), opset >= 18 ? 2 : 1);
        EXPECT_EQ(node.attribute_size(), opset >= 18 ? 1 : 2);
      }
    Values out = run(onnx::import_bytes(bytes, "means"), in);
    expect_near(out["y"], {9, 8});
    expect_near(out["t"], {0});
  }
  for (int opset : {16, 24})
    EXPECT_THROW(onnx::export_stage(module.program(), {}, {.opset = opset}), Error);
}

}  // namespace
}  // namespace gradus::test
