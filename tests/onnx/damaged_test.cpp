// ONNX's backend tests with one thing wrong in each, and models that would have a rule read beyond
// a list, recurse or take memory without end: a program that holds, or an Error.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/onnx/support.h"

namespace gradus::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t most = INT64_MAX, least = INT64_MIN;

// One change of a model; false where there is nothing left to change.
using Damage = std::function<bool(pb::ModelProto&, int)>;

// The k-th of all (object, way) pairs, `ways` for each object.
template <class List>
auto* at_of(List* list, int k, int ways) {
  return k / ways < list->size() ? list->Mutable(k / ways) : nullptr;
}

bool shapes(pb::ModelProto& model, int k) {
  constexpr int ways = 7;
  auto* input = at_of(model.mutable_graph()->mutable_input(), k, ways);
  if (!input) return false;
  auto* type = input->mutable_type()->mutable_tensor_type();
  auto* dims = type->mutable_shape()->mutable_dim();
  const int way = k % ways;
  if (way == 0) dims->Clear();
  if (way == 1 && !dims->empty()) dims->RemoveLast();
  if (way == 2) dims->Add()->set_dim_value(2);
  if (way == 3 && !dims->empty()) dims->Mutable(0)->set_dim_value(0);
  if (way == 4 && !dims->empty()) dims->Mutable(dims->size() - 1)->set_dim_value(7);
  if (way == 5 && !dims->empty()) dims->Mutable(0)->set_dim_param("some");
  if (way == 6) type->set_elem_type(type->elem_type() == f32 ? i64 : f32);
  return true;
}

bool operands(pb::ModelProto& model, int k) {
  constexpr int ways = 4;
  auto* node = at_of(model.mutable_graph()->mutable_node(), k, ways);
  if (!node) return false;
  auto* inputs = node->mutable_input();
  const int way = k % ways;
  if (way == 0 && !inputs->empty()) inputs->RemoveLast();
  if (way == 1 && !inputs->empty()) *inputs->Add() = inputs->Get(0);
  if (way == 2) std::reverse(inputs->begin(), inputs->end());
  if (way == 3 && inputs->size() > 1) *inputs->Mutable(1) = "";
  return true;
}

void change(pb::AttributeProto& a, int way) {
  const int64_t strange[] = {0, -1, 1000, most, least};
  if (way < 5) {
    a.set_i(strange[way]);
    for (int64_t& v : *a.mutable_ints()) v = strange[way];
  }
  if (way == 5) a.mutable_ints()->Clear();
  if (way == 6) a.add_ints(1);
  if (way == 7) {
    a.set_s("other");
    a.set_f(std::numeric_limits<float>::infinity());
    a.mutable_floats()->Clear();
    a.mutable_strings()->Clear();
  }
  if (way == 8) a.mutable_t()->mutable_dims()->Clear();
  if (way == 9) a.mutable_t()->add_dims(3);
  if (way == 10)
    a.set_type(a.type() == pb::AttributeProto::INT ? pb::AttributeProto::FLOATS
                                                   : pb::AttributeProto::INT);
}

bool attributes(pb::ModelProto& model, int k) {
  constexpr int ways = 12;
  int of_node = k / ways;
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (of_node >= node.attribute_size()) {
      of_node -= node.attribute_size();
      continue;
    }
    if (k % ways == 11)
      node.mutable_attribute()->DeleteSubrange(of_node, 1);
    else
      change(*node.mutable_attribute(of_node), k % ways);
    return true;
  }
  return false;
}

// Weights, of which shapes and indices are read.
bool constants(pb::ModelProto& model, int k) {
  constexpr int ways = 4;
  auto* weight = at_of(model.mutable_graph()->mutable_initializer(), k, ways);
  if (!weight) return false;
  const int way = k % ways;
  if (way == 0) weight->mutable_dims()->Clear();
  if (way == 1) weight->add_dims(1);
  if (way == 2) weight->set_raw_data(std::string(weight->raw_data().size(), '\xff'));
  if (way == 3)
    for (int64_t& v : *weight->mutable_int64_data()) v = v < 0 ? 1 : most - v;
  return true;
}

bool versions(pb::ModelProto& model, int k) {
  if (k >= 3 || model.opset_import().empty()) return false;
  const int64_t version[] = {1, 9, 22};
  model.mutable_opset_import(0)->set_version(version[k]);
  return true;
}

// Shapes of more than one input at a time: kernels and images, rows and indices.
bool all_shapes(pb::ModelProto& model, int k) {
  if (k >= 3) return false;
  for (auto& input : *model.mutable_graph()->mutable_input()) {
    auto* dims = input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim();
    if (k == 0 && !dims->empty()) dims->RemoveLast();
    if (k == 1) dims->Add()->set_dim_value(2);
    if (k == 2)
      for (auto& d : *dims) d.set_dim_value(0);
  }
  return true;
}

void expect_sound_or_refused(const pb::ModelProto& model) {
  onnx::Import import;
  try {
    import = onnx::import_bytes(model.SerializeAsString(), "damaged.onnx");
  } catch (const Error&) {
    return;
  } catch (const ResourceError&) {
    return;
  }
  ir::verify(import.program);
  const std::string printed = ir::print(import.program);
  EXPECT_EQ(ir::print(ir::parse(printed, "printed.ir").program()), printed);
}

// Each in its own test, so that a time limit names it.
class OnnxHostile : public testing::TestWithParam<const char*> {};
TEST_P(OnnxHostile, IsAProgramOrRefused) {
  const std::string path =
      fmt::format("{}/tests/onnx/hostile/{}.onnx", GRADUS_SOURCE_DIR, GetParam());
  std::ifstream file(path, std::ios::binary);
  pb::ModelProto model;
  ASSERT_TRUE(model.ParseFromIstream(&file)) << path;
  const std::clock_t begin = std::clock();  // of this process, whatever else runs
  expect_sound_or_refused(model);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 30);
}
INSTANTIATE_TEST_SUITE_P(All, OnnxHostile,
                         testing::Values("attn", "bitcast2", "col2im2b", "col2im3", "col2im3b",
                                         "convbig", "double", "linattn", "loopmem", "loops",
                                         "lstmbig", "mel", "rangemin", "rs30", "rs9", "rsbig",
                                         "rsin", "rsroi", "rsroi2", "scatter", "seqins", "seqmap",
                                         "seqnest", "sizes", "slicemin", "stsz", "tree", "tree2",
                                         "unsq"),
                         [](const auto& info) { return std::string(info.param); });

void damage_all(const Damage& damage) {
  const fs::path folder = "/usr/share/libonnx-testdata/data";
  if (!fs::exists(folder)) GTEST_SKIP() << "needs Debian's package libonnx-testdata";
  int models = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    pb::ModelProto whole;
    ASSERT_TRUE(whole.ParseFromIstream(&file)) << entry.path();
    // Networks say nothing that their operators' tests do not.
    if (whole.graph().node_size() > 8) continue;
    ++models;
    for (int k = 0;; ++k) {
      SCOPED_TRACE(fmt::format("{}, change {}", entry.path().string(), k));
      pb::ModelProto model = whole;
      if (!damage(model, k)) break;
      ASSERT_NO_THROW(expect_sound_or_refused(model));
    }
  }
  EXPECT_GT(models, 900);
}

TEST(OnnxDamaged, Shapes) { damage_all(shapes); }
TEST(OnnxDamaged, AllShapes) { damage_all(all_shapes); }
TEST(OnnxDamaged, Operands) { damage_all(operands); }
TEST(OnnxDamaged, Attributes) { damage_all(attributes); }
TEST(OnnxDamaged, Constants) { damage_all(constants); }
TEST(OnnxDamaged, Versions) { damage_all(versions); }

}  // namespace
}  // namespace gradus::test
