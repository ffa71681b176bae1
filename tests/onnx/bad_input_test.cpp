// Models that are damaged, hostile or contradict themselves: an Error, never more.
#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

Model small() {
  Model m;
  m.input("x", f32, {"N", 2});
  m.weight(tensor("w", {2, 2}, {1, 2, 3, 4}));
  m.weight(integers("shape", {2}, {-1, 4}));
  m.node("MatMul", {"x", "w"}, {"h"});
  m.node("Reshape", {"h", "shape"}, {"y"});
  m.output("y");
  return m;
}

// Whatever bytes are given: a program, or an exception of ours.
void import_anything(const std::string& bytes) {
  try {
    onnx::import_bytes(bytes, "test.onnx");
  } catch (const Error&) {
  } catch (const ResourceError&) {
  }
}

TEST(OnnxBadInput, CutShortAnywhere) {
  std::string bytes = small().bytes();
  for (size_t n = 0; n < bytes.size(); ++n) import_anything(bytes.substr(0, n));
  Model m;
  EXPECT_THROW(onnx::import_bytes("", "test.onnx"), Error);
  EXPECT_THROW(onnx::import_bytes(bytes.substr(0, bytes.size() / 2), "test.onnx"), Error);
}

TEST(OnnxBadInput, AnyByteChanged) {
  std::string bytes = small().bytes();
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = bytes;
    for (unsigned k = 0; k <= random() % 3; ++k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    import_anything(damaged);
  }
}

TEST(OnnxBadInput, WeightsOfAWrongSize) {
  Model few = small();
  few.weight(tensor("v", {3, 3}, {1, 2}));
  expect_refused(few, {"weight 'v'", "9 elements", "brings 2"});
  // Sizes are believed only as far as bytes are there.
  Model huge = small();
  huge.weight(tensor("v", {1 << 30, 1 << 30}, {1}));
  expect_refused(huge, {"weight 'v'"});
  Model overflowing = small();
  overflowing.weight(tensor("v", {int64_t{1} << 62, int64_t{1} << 62}, {1}));
  expect_refused(overflowing, {"weight 'v'", "counted"});
  Model negative = small();
  negative.weight(tensor("v", {-1}, {1}));
  expect_refused(negative, {"weight 'v'", "-1"});
}

TEST(OnnxBadInput, WeightsOfAWrongType) {
  Model strange = small();
  auto t = tensor("v", {1}, {1});
  t.set_data_type(77);
  strange.weight(t);
  expect_refused(strange, {"weight 'v'", "77"});
  Model strings = small();
  t.set_data_type(pb::TensorProto::STRING);
  strings.weight(t);
  expect_refused(strings, {"weight 'v'", "string"});
  Model declared = small();
  declared.input("w", f64, {2, 2});
  expect_refused(declared, {"weight 'w'", "f64[2, 2]"});
}

TEST(OnnxBadInput, SizesThatAreNone) {
  Model m;
  m.input("x", f32, {-3});
  expect_refused(m, {"input 'x'", "-3"});
  Model huge;
  huge.input("x", f32, {int64_t{1} << 40, int64_t{1} << 40});
  expect_refused(huge, {"input 'x'"});
}

TEST(OnnxBadInput, GraphsThatDoNotHold) {
  Model cycle;
  cycle.input("x", f32, {2});
  cycle.node("Add", {"x", "b"}, {"a"});
  cycle.node("Add", {"x", "a"}, {"b"});
  cycle.output("b");
  expect_refused(cycle, {"node of 'a' (Add)", "'b'", "cycle"});
  Model twice = small();
  twice.node("Relu", {"x"}, {"h"});
  expect_refused(twice, {"'h'", "twice"});
  Model missing = small();
  missing.output("z");
  expect_refused(missing, {"output 'z'"});
  Model shapes;
  shapes.input("x", f32, {2, 3});
  shapes.input("w", f32, {4, 5});
  shapes.node("MatMul", {"x", "w"}, {"y"});
  shapes.output("y");
  expect_refused(shapes, {"node of 'y' (MatMul)"});
  Model classes;
  classes.input("x", f32, {"N", 3, 2, 2});
  classes.input("t", i64, {});
  classes.node("SoftmaxCrossEntropyLoss", {"x", "t"}, {"y"});
  classes.output("y");
  expect_refused(classes, {"node of 'y'", "classes [N, d..]"});
  Model attribute;
  attribute.input("x", f32, {2, 3});
  attribute.node("Softmax", {"x"}, {"y"}).set("axis", "last");
  attribute.output("y");
  expect_refused(attribute, {"attribute 'axis'"});
}

TEST(OnnxBadInput, FunctionsThatUseThemselves) {
  Model m;
  m.input("x", f32, {2});
  auto* f = m.proto.add_functions();
  f->set_name("F");
  f->set_domain("mine");
  f->add_input("a");
  f->add_output("b");
  auto* n = f->add_node();
  n->set_op_type("F");
  n->set_domain("mine");
  n->add_input("a");
  n->add_output("b");
  m.node("F", {"x"}, {"y"}).in_domain("mine");
  m.output("y");
  expect_refused(m, {"deep"});
}

// A few bytes must not become gigabytes.
TEST(OnnxBadInput, SmallModelsOfLargeThings) {
  Model loop;
  loop.input("x", f32, {2});
  loop.weight(integers("trips", {}, {int64_t{1} << 60}));
  pb::GraphProto body;
  describe_value(body.add_input(), "i", i64, {});
  describe_value(body.add_input(), "go", boolean, {});
  describe_value(body.add_input(), "s", f32, {2});
  for (const char* name : {"go", "s"}) describe_value(body.add_output(), name, f32, {});
  loop.node("Loop", {"trips", "", "x"}, {"y"}).set("body", body);
  loop.output("y");
  expect_refused(loop, {"Loop", "rounds"});
  Model filled;
  filled.weight(integers("shape", {2}, {1 << 20, 1 << 20}));
  filled.node("ConstantOfShape", {"shape"}, {"y"});
  filled.output("y");
  onnx::Import model = filled.import();
  EXPECT_EQ(model.program.stages[0].nodes.size(), 1u);
}

class OnnxFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gradus-onnx-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
    std::filesystem::create_directories(root / "model");
    write(root / "secret.bin", std::string(16, '\1'));
    write(root / "model" / "data.bin", std::string(24, '\0'));
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  static void write(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // The error of a model whose weight of 16 bytes lies there; empty if it is read.
  std::string error_of(const std::string& location, const std::string& offset = "",
                       const std::string& length = "") {
    Model m;
    pb::TensorProto t;
    t.set_name("w");
    t.set_data_type(f32);
    t.add_dims(4);
    t.set_data_location(pb::TensorProto::EXTERNAL);
    auto add = [&](const char* key, const std::string& value) {
      auto* e = t.add_external_data();
      e->set_key(key);
      e->set_value(value);
    };
    add("location", location);
    if (!offset.empty()) add("offset", offset);
    if (!length.empty()) add("length", length);
    m.weight(t);
    m.node("Neg", {"w"}, {"y"});
    m.output("y");
    write(root / "model" / "m.onnx", m.bytes());
    try {
      onnx::import_file((root / "model" / "m.onnx").string());
    } catch (const Error& e) {
      return e.message();
    }
    return {};
  }
  std::filesystem::path root;
};

TEST_F(OnnxFolder, WeightsBesideTheModelAreRead) {
  EXPECT_EQ(error_of("data.bin"), "");
  EXPECT_EQ(error_of("data.bin", "8", "16"), "");
}

TEST_F(OnnxFolder, NothingElseIsRead) {
  std::filesystem::create_symlink(root / "secret.bin", root / "model" / "link.bin");
  std::filesystem::create_directory_symlink(root, root / "model" / "up");
  for (const std::string& path :
       {std::string("../secret.bin"), (root / "secret.bin").string(), std::string("link.bin"),
        std::string("up/secret.bin"), std::string("a/../../secret.bin"), std::string("..")})
    EXPECT_NE(error_of(path).find("outside of the model's folder"), std::string::npos) << path;
}

TEST_F(OnnxFolder, PlacesThatAreNotThere) {
  EXPECT_NE(error_of("data.bin", "16").find("beyond the end"), std::string::npos);
  EXPECT_NE(error_of("data.bin", "4611686018427387904").find("beyond the end"), std::string::npos);
  EXPECT_NE(error_of("data.bin", "x").find("no number"), std::string::npos);
  EXPECT_NE(error_of("data.bin", "", "8").find("16 bytes"), std::string::npos);
  EXPECT_NE(error_of("nothing.bin"), "");
  EXPECT_NE(error_of("."), "");
}

}  // namespace
}  // namespace gradus::test
