// What came with versions 19 to 28 of the operators.
#include <limits>

#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor of(DType dtype, std::vector<int64_t> shape, std::vector<double> values) {
  return Tensor::from(dtype, shape, values);
}

// The result y of a model of one node whose inputs are tensors; they are called a, b, c, ….
class OneNode : public Model {
 public:
  OneNode(int opset, const std::string& op, std::vector<Tensor> operands, size_t outputs = 1)
      : Model(opset), node_(build(op, std::move(operands), outputs)) {}
  template <class Value>
  OneNode& with(const std::string& name, const Value& value) {
    node_.set(name, value);
    return *this;
  }
  Values results() { return run(import(known(in)), in); }
  Tensor y() { return results().at("y0"); }
  void has_gradients(int order = 2) { expect_gradients(import(known(in)), in, order); }

  Values in;

 private:
  static int element_type(DType dtype) {
    return dtype == DType::f64       ? f64
           : dtype == DType::i64     ? i64
           : dtype == DType::boolean ? boolean
           : dtype == DType::i32     ? int{pb::TensorProto::INT32}
           : dtype == DType::i8      ? int{pb::TensorProto::INT8}
           : dtype == DType::u8      ? int{pb::TensorProto::UINT8}
                                     : f32;
  }
  Node build(const std::string& op, std::vector<Tensor> operands, size_t outputs) {
    std::vector<std::string> names, results;
    for (Tensor& t : operands) {
      std::string name = t.defined() ? std::string(1, static_cast<char>('a' + names.size())) : "";
      names.push_back(name);
      if (name.empty()) continue;
      input(name, element_type(t.dtype()), std::vector<Size>(t.shape().begin(), t.shape().end()));
      in[name] = t;
    }
    for (size_t i = 0; i < outputs; ++i) results.push_back("y" + std::to_string(i));
    for (const std::string& r : results) output(r);
    return node(op, names, results);
  }
  Node node_;
};

TEST(OnnxLater, ElementTypesAreRefusedByName) {
  auto with = [](int type) {
    Model m(25);
    m.input("x", type, {2});
    m.node("Identity", {"x"}, {"y"});
    m.output("y");
    return m;
  };
  expect_refused(with(pb::TensorProto::STRING), {"input 'x'", "no tensors of string"});
  expect_refused(with(pb::TensorProto::COMPLEX64), {"no tensors of complex64"});
  expect_refused(with(29), {"29 is no element type"});
}

TEST(OnnxLater, Activations) {
  Tensor x = floats({3}, {-1, 0.5, 2}), z = floats({3}, {2, 3, 4});
  expect_near(OneNode(20, "Gelu", {x}).y(), {-0.158655, 0.345731, 1.954500});
  expect_near(OneNode(20, "Gelu", {x}).with("approximate", "tanh").y(),
              {-0.158808, 0.345714, 1.954598});
  expect_near(OneNode(24, "Swish", {x}).with("alpha", 2.0f).y(), {-0.119203, 0.365529, 1.964028});
  expect_near(OneNode(28, "SwiGLU", {x, z}).y(), {-0.537883, 0.933689, 7.046377});
  OneNode(28, "SwiGLU", {x, z}).with("alpha", 0.5f).has_gradients();
}

TEST(OnnxLater, NormsOverGroupsAndRoots) {
  OneNode rms(23, "RMSNormalization", {floats({1, 2}, {3, 4}), floats({2}, {1, 2})});
  rms.with("epsilon", 0.0f);
  expect_near(rms.y(), {0.848528, 2.262742});
  rms.has_gradients();
  // One scale and shift for each of two channels.
  OneNode group(21, "GroupNormalization",
                {floats({1, 2, 2}, {1, 3, 5, 7}), floats({2}, {1, 2}), floats({2}, {0, 10})});
  group.with("num_groups", 2).with("epsilon", 0.0f);
  expect_near(group.y(), {-1, 1, 8, 12});
  expect_near(OneNode(22, "LpNormalization", {floats({2, 2}, {3, 4, 0, 0})}).y(), {0.6, 0.8, 0, 0});
}

TEST(OnnxLater, ReductionsOfTruthAndOfNothing) {
  Tensor truth = of(DType::boolean, {2, 2}, {0, 1, 0, 0}), axis = of(DType::i64, {1}, {1});
  Tensor any = OneNode(20, "ReduceMax", {truth, axis}).with("keepdims", 0).y();
  EXPECT_EQ(any.dtype(), DType::boolean);
  EXPECT_EQ(any.to_int64s(), (std::vector<int64_t>{1, 0}));
  Tensor nothing = floats({2, 0}, {});
  EXPECT_EQ(OneNode(20, "ReduceMin", {nothing, axis}).with("keepdims", 0).y().to_doubles(),
            (std::vector<double>{infinity, infinity}));
  EXPECT_EQ(OneNode(20, "ReduceMax", {of(DType::i32, {1, 0}, {}), axis}).y().to_int64s()[0],
            std::numeric_limits<int32_t>::min());
  // Over no axes each element is a sum of its own.
  Tensor x = floats({2}, {-2, 3});
  expect_near(OneNode(18, "ReduceSumSquare", {x}).with("noop_with_empty_axes", 1).y(), {4, 9});
  Tensor n = floats({3}, {1, 2, 3}), at = of(DType::i64, {}, {0});
  expect_near(OneNode(26, "CumProd", {n, at}).with("exclusive", 1).with("reverse", 1).y(),
              {6, 3, 1});
}

TEST(OnnxLater, Bits) {
  Tensor x = of(DType::i32, {4}, {-8, 5, -1, 3}), by = of(DType::i32, {4}, {1, 2, 40, -1});
  auto shifted = [&](const char* direction) {
    return OneNode(28, "BitShift", {x, by}).with("direction", direction).y().to_int64s();
  };
  EXPECT_EQ(shifted("RIGHT"), (std::vector<int64_t>{-4, 1, -1, 0}));
  EXPECT_EQ(shifted("LEFT"), (std::vector<int64_t>{-16, 20, 0, 0}));
  Tensor wide = of(DType::i64, {2}, {1, -1}), far = of(DType::i64, {2}, {63, 63});
  EXPECT_EQ(OneNode(28, "BitShift", {wide, far}).with("direction", "LEFT").y().to_int64s(),
            (std::vector<int64_t>{INT64_MIN, INT64_MIN}));
  Tensor byte = of(DType::i8, {2}, {-1, 5});
  Tensor unsigned_byte = OneNode(26, "BitCast", {byte}).with("to", pb::TensorProto::UINT8).y();
  EXPECT_EQ(unsigned_byte.to_int64s(), (std::vector<int64_t>{255, 5}));
  OneNode other(26, "BitCast", {floats({1}, {1})});
  expect_refused(other.with("to", pb::TensorProto::INT32), {"BitCast of f32 to i32"});
  OneNode narrow(26, "BitCast", {floats({1}, {1})});
  expect_refused(narrow.with("to", pb::TensorProto::INT8), {"different numbers of bits"});
  expect_refused(OneNode(18, "BitShift", {x, by}).with("direction", "LEFT"), {"since version 28"});
}

TEST(OnnxLater, RemaindersOfNumbersWithAPoint) {
  Tensor a = floats({4}, {5.5, -5.5, 5.5, -5.5}), b = floats({4}, {2, 2, -2, -2});
  expect_near(OneNode(28, "Mod", {a, b}).y(), {1.5, 0.5, -0.5, -1.5});
  expect_near(OneNode(28, "Mod", {a, b}).with("fmod", 1).y(), {1.5, -1.5, 1.5, -1.5});
  expect_refused(OneNode(22, "Mod", {a, b}), {"want fmod = 1"});
}

TEST(OnnxLater, Shapes) {
  Tensor x = floats({1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expect_near(OneNode(28, "SpaceToDepth", {x}).with("blocksize", 2).with("mode", "CRD").y(),
              {1, 2, 3, 4, 5, 6, 7, 8});
  expect_near(OneNode(28, "SpaceToDepth", {x}).with("blocksize", 2).y(), {1, 5, 2, 6, 3, 7, 4, 8});
  OneNode crop(18, "CenterCropPad",
               {floats({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), of(DType::i64, {2}, {2, 5})});
  expect_near(crop.y(), {0, 3, 4, 0, 0, 0, 5, 6, 0, 0});
  // Windows of two, two elements apart, in one dimension.
  OneNode fold(18, "Col2Im",
               {floats({1, 2, 3}, {1, 2, 3, 10, 20, 30}), of(DType::i64, {1}, {5}),
                of(DType::i64, {1}, {2})});
  fold.with("dilations", std::vector<int64_t>{2});
  expect_near(fold.y(), {1, 2, 13, 20, 30});
  fold.has_gradients(1);
}

TEST(OnnxLater, PoolsThatSkip) {
  Tensor x = floats({1, 1, 6}, {1, 2, 4, 8, 16, 32});
  auto pool = [&](const char* op) {
    OneNode m(22, op, {x});
    m.with("kernel_shape", std::vector<int64_t>{2}).with("dilations", std::vector<int64_t>{3});
    return m;
  };
  OneNode mean = pool("AveragePool");
  expect_near(mean.y(), {4.5, 9, 18});
  mean.has_gradients();
  OneNode padded = pool("AveragePool");
  expect_near(padded.with("pads", std::vector<int64_t>{1, 0}).y(), {4, 4.5, 9, 18});
  OneNode counted = pool("AveragePool");
  counted.with("pads", std::vector<int64_t>{1, 0}).with("count_include_pad", 1);
  expect_near(counted.y(), {2, 4.5, 9, 18});
  OneNode root = pool("LpPool");
  root.with("strides", std::vector<int64_t>{2}).with("ceil_mode", 1).with("p", 1);
  expect_near(root.y(), {9, 36});
}

TEST(OnnxLater, TransformsThereAndBack) {
  Tensor x = floats({1, 5, 1}, {1, -2, 3, 0.5, 4}), axis = of(DType::i64, {}, {-2});
  Tensor half = OneNode(20, "DFT", {x, {}, axis}).with("onesided", 1).y();
  ASSERT_EQ(half.numel(), 6);
  EXPECT_NEAR(half.to_doubles()[0], 6.5, 1e-5);
  OneNode back(20, "DFT", {half, of(DType::i64, {}, {5}), axis});
  back.with("onesided", 1).with("inverse", 1);
  expect_near(back.y(), {1, -2, 3, 0.5, 4});
  back.has_gradients(1);
}

TEST(OnnxLater, Resizing) {
  Tensor x = floats({1, 1, 1, 4}, {1, 2, 3, 4}), scales = floats({4}, {1, 1, 1, 0.5});
  OneNode smooth(18, "Resize", {x, {}, scales});
  expect_near(smooth.with("mode", "linear").with("antialias", 1).y(), {1.625, 3.375});
  // Both axes by one half, where the sizes ask for more of the second.
  OneNode kept(18, "Resize",
               {floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), {}, {}, of(DType::i64, {2}, {1, 4})});
  kept.with("keep_aspect_ratio_policy", "not_larger").with("mode", "nearest");
  EXPECT_EQ(kept.y().shape()[1], 2);
  OneNode centred(19, "Resize", {x, {}, floats({4}, {1, 1, 1, 0.6f})});
  centred.with("mode", "linear").with("coordinate_transformation_mode", "half_pixel_symmetric");
  expect_near(centred.y(), {1.666667, 3.333333});
}

TEST(OnnxLater, Grids) {
  Tensor line = floats({1, 1, 3}, {1, 2, 4}), at = floats({1, 2, 1}, {-1, 0.5});
  OneNode sample(20, "GridSample", {line, at});
  expect_near(sample.with("align_corners", 1).y(), {1, 3});
  sample.has_gradients(1);
  OneNode grid(20, "AffineGrid",
               {floats({1, 2, 3}, {1, 0, 0, 0, 1, 2}), of(DType::i64, {4}, {1, 1, 1, 2})});
  expect_near(grid.y(), {-0.5, 2, 0.5, 2});
  // Half a pixel to the right.
  Tensor image = floats({1, 1, 1, 3}, {1, 2, 4}), kernel = floats({1, 1, 1, 1}, {10});
  OneNode conv(19, "DeformConv", {image, kernel, floats({1, 2, 1, 3}, {0, 0, 0, 0.5, 0.5, 0.5})});
  expect_near(conv.y(), {15, 30, 20});
  conv.has_gradients(1);
}

TEST(OnnxLater, DefaultsAndOverloadsOfFunctions) {
  Model m(20);
  m.input("x", f32, {2});
  m.proto.add_opset_import()->set_domain("own");
  m.proto.mutable_opset_import(1)->set_version(1);
  auto field = [](auto& message, int number, const std::string& bytes) {
    message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(number, bytes);
  };
  auto function = [&](const std::string& overload, float slope) {
    auto& f = *m.proto.add_functions();
    f.set_name("leak");
    f.set_domain("own");
    f.add_input("a");
    f.add_output("b");
    f.add_opset_import()->set_version(20);
    auto& inner = *f.add_node();
    inner.set_op_type("LeakyRelu");
    inner.add_input("a");
    inner.add_output("b");
    auto& a = *inner.add_attribute();
    a.set_name("alpha");
    a.set_type(pb::AttributeProto::FLOAT);
    a.set_ref_attr_name("slope");
    pb::AttributeProto standard;
    standard.set_name("slope");
    standard.set_type(pb::AttributeProto::FLOAT);
    standard.set_f(slope);
    field(f, 11, standard.SerializeAsString());
    if (!overload.empty()) field(f, 13, overload);
  };
  function("", 0.5f);
  function("steep", 0.25f);
  m.node("leak", {"x"}, {"y"}).in_domain("own");
  m.node("leak", {"x"}, {"z"}).in_domain("own");
  m.node("leak", {"x"}, {"w"}).in_domain("own").set("slope", 0.125f);
  field(*m.graph().mutable_node(1), 8, "steep");
  for (const char* name : {"y", "z", "w"}) m.output(name);
  Values in{{"x", floats({2}, {-8, 1})}};
  Values out = run(m.import(), in);
  expect_near(out["y"], {-4, 1});
  expect_near(out["z"], {-2, 1});
  expect_near(out["w"], {-1, 1});
}

}  // namespace
}  // namespace gradus::test
