// Graphs of torch.export give what eager torch gives, also for other sizes: numbers that are
// computed from sizes, integers among the inputs, writes where no derivative passes.
#include <array>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gradus/pt2.h"
#include "gradus/state.h"
#include "tests/pt2/archive_bytes.h"

namespace gradus::test {
namespace {

using ModelJson = nlohmann::json;

// 1/n, 2/n, .., 1 of that shape; an integer.
Tensor argument_of(const ModelJson& shape) {
  if (shape.is_number()) {
    Tensor one = Tensor::zeros(DType::i64, Sizes{});
    *one.mutable_data_as<int64_t>() = shape.get<int64_t>();
    return one;
  }
  Sizes sizes;
  for (const ModelJson& n : shape) sizes.push_back(n.get<int64_t>());
  Tensor x = Tensor::zeros(DType::f64, sizes);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data_as<double>()[i] = static_cast<double>(i + 1) / static_cast<double>(x.numel());
  return x;
}

void check_model(const ModelJson& model) {
  const std::string archive = archive_of(model.dump());
  const ImportedProgram p = pt2::import_bytes(bytes_of(archive), "m.pt2");
  State state(Code::compile(p.module.program()), Context::default_context());
  for (const ModelJson& run : model["runs"]) {
    std::vector<Tensor> inputs;
    for (const ModelJson& a : run["arguments"]) inputs.push_back(argument_of(a));
    state.restart();
    const Tensor y = state.run(inputs)[0].contiguous();
    const ModelJson& expected = run["result"];
    ASSERT_EQ(y.numel(), static_cast<int64_t>(expected.size()));
    for (int64_t i = 0; i < y.numel(); ++i)
      ASSERT_NEAR(y.data_as<double>()[i], expected[static_cast<size_t>(i)].get<double>(), 1e-12);
  }
}

TEST(Pt2Models, GiveWhatTorchGives) {
  int models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(GRADUS_SOURCE_DIR "/tests/pt2/models")) {
    SCOPED_TRACE(entry.path());
    std::ifstream file(entry.path());
    try {
      check_model(ModelJson::parse(file));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    ++models;
  }
  EXPECT_GE(models, 10);
}

}  // namespace
}  // namespace gradus::test
