// Running of models in tests.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "gradus/code.h"
#include "gradus/gradcheck.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/onnx/model.h"

namespace gradus::test {

using Values = std::map<std::string, Tensor, std::less<>>;

inline Tensor floats(std::vector<int64_t> shape, std::vector<double> values) {
  return Tensor::from(DType::f32, shape, values);
}

inline onnx::ImportOptions known(const Values& values) {
  onnx::ImportOptions options;
  options.value = [values](std::string_view name) {
    auto it = values.find(name);
    return it == values.end() ? Tensor() : it->second;
  };
  return options;
}

inline InputSources sources_of(const onnx::Import& model, const Values& values) {
  InputSources sources;
  sources.find = [&model, values](std::string_view name) -> std::optional<FoundTensor> {
    if (auto it = values.find(name); it != values.end()) return FoundTensor{it->second, "test"};
    for (const auto& [weight, tensor] : model.weights)
      if (weight == name) return FoundTensor{tensor, "weights"};
    return std::nullopt;
  };
  return sources;
}

// The results, by name.
inline Values run(const onnx::Import& model, const Values& values) {
  auto code = Code::compile(model.program);
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  std::vector<Tensor> out = state.run(find_inputs(state, sources_of(model, values)));
  Values results;
  for (size_t i = 0; i < out.size(); ++i) results[code->results(0)[i].name] = out[i];
  return results;
}

inline void expect_near(const Tensor& got, const std::vector<double>& expected,
                        double tolerance = 1e-5) {
  std::vector<double> values = got.to_doubles();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], tolerance) << "element " << i;
}

inline void expect_gradients(const onnx::Import& model, const Values& values, int order = 2) {
  GradcheckOptions options;
  options.order = order;
  GradcheckReport report = gradcheck(model.program, sources_of(model, values), options);
  EXPECT_FALSE(report.entries.empty());
  for (const GradcheckEntry& e : report.entries)
    EXPECT_TRUE(e.passed) << "d" << e.stage << "_" << e.input << ": " << e.error << " " << e.why;
}

// The message of the Error that importing ends in; a test fails if it does not.
inline std::string refusal(const Model& model, const onnx::ImportOptions& options = {}) {
  try {
    model.import(options);
  } catch (const Error& e) {
    return e.message();
  }
  ADD_FAILURE() << "the model was imported";
  return {};
}

inline void expect_refused(const Model& model, std::vector<std::string> parts,
                           const onnx::ImportOptions& options = {}) {
  std::string message = refusal(model, options);
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
}

}  // namespace gradus::test
