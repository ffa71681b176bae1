// Models that would have a rule read beyond a list, divide, recurse or take memory without end:
// each is refused by the Error that its member "refused" has, or is a program where that is null.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradus/pt2.h"
#include "tests/pt2/archive_bytes.h"

namespace gradus::test {
namespace {

using Json = nlohmann::json;

std::string error_of(const std::string& model) {
  try {
    pt2::import_bytes(bytes_of(archive_of(model)), "m.pt2");
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

TEST(Pt2Hostile, IsRefused) {
  int models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(GRADUS_SOURCE_DIR "/tests/pt2/hostile")) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path());
    const Json model = Json::parse(file);
    const std::string error = error_of(model.dump());
    EXPECT_EQ(error,
              model["refused"].is_null() ? "" : "m.pt2: " + model["refused"].get<std::string>());
    ++models;
  }
  EXPECT_GT(models, 30);
}

std::string nested(int depth, const std::string& open, const std::string& inside,
                   const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += inside;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Pt2Hostile, IsNotFollowedDeep) {
  const std::string head = R"({"schema_version": {"major": 8, "minor": 0}, "verifiers": )";
  EXPECT_NE(error_of(head + nested(400, "[", "", "]") + "}").find("decomposed"), std::string::npos);
  // So deep that a function that calls itself would not come back.
  EXPECT_NE(error_of(head + nested(100'000, "[", "", "]") + "}").find("more than 512 deep"),
            std::string::npos);
  for (const auto& [open, inside] :
       {std::pair(R"({"as_optional_tensor": )", R"({"as_none": true})"),
        std::pair(R"({"as_sym_bool": )", R"({"as_bool": true})"),
        std::pair(R"({"as_sym_float": )", R"({"as_float": 1.0})")}) {
    const std::string argument = nested(400, open, inside, "}");
    const std::string node =
        R"({"target": "torch.ops.aten.neg.default", "name": "n", "metadata": {}, "outputs": [],)"
        R"("inputs": [{"name": "self", "kind": 1, "arg": )" +
        argument + "}]}";
    const std::string model =
        head +
        R"(["TRAINING"], "range_constraints": {}, "graph_module": {"graph": {"inputs": [],)"
        R"("outputs": [], "sym_int_values": {}, "tensor_values": {}, "nodes": [)" +
        node + R"(]}, "signature": {"input_specs": [], "output_specs": []}}})";
    EXPECT_NE(error_of(model).find("more than 32 deep"), std::string::npos) << error_of(model);
  }
}

}  // namespace
}  // namespace gradus::test
