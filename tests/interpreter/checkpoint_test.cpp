// Loops whose derivatives keep the carries before segments alone.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/interpreter/support.h"

namespace gradus::test {
namespace {

// `said` is the loop's further attributes. The carry is a step's result, too, and read twice.
std::string recurrent(int64_t steps, const std::string& dtype, const std::string& said) {
  std::string text = fmt::format(R"(
graph cell {{
  stage 0 (%h: f64[H], %x: f64[H], %w: f64[H, H]) {{
    %a = mv(%w, %h)
    %s = add(%a, %x)
    %n = tanh(%s)
    %m = mul(%n, %h)
    return %n, %m
  }}
}}
graph recurrent {{
  stage 0 (%h0: f64[3], %xs: f64[{}, 3], %w: f64[3, 3]) {{
    %h, %ys = scan(%h0, %xs, %w) {{body = "cell", carries = 1, sequences = 1{}}}
    %z = tanh(%w)
    return %h, %ys, %z
  }}
}}
)",
                                 steps, said);
  for (size_t at; dtype != "f64" && (at = text.find("f64")) != std::string::npos;)
    text.replace(at, 3, dtype);
  return text;
}

Tensor waves(DType dtype, const Sizes& shape, double step) {
  size_t count = 1;
  for (int64_t n : shape) count *= static_cast<size_t>(n);
  std::vector<double> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = 0.7 * std::sin(step * static_cast<double>(i + 1));
  return Tensor::from(dtype, shape, v);
}

// Results of all stages, one after the other.
std::vector<std::vector<double>> results(const Code& code, State& state, DType dtype) {
  std::vector<std::vector<double>> all;
  double step = 0.3;
  for (size_t s = 0; s < code.stages(); ++s) {
    std::vector<Tensor> given;
    for (ir::ValueId v : code.graph().stages[s].inputs) {
      Sizes shape;
      for (const ir::Dim& d : code.graph()[v].type.dims) shape.push_back(d.value());
      given.push_back(waves(dtype, shape, step += 0.17));
    }
    for (const Tensor& t : run(state, given)) all.push_back(t.to_doubles());
  }
  return all;
}

// SPEC L5
TEST(Checkpoints, KeepTheBits) {
  for (const std::string dtype : {"f64", "f32"})
    for (const std::string direction : {"", ", reverse = true"})
      for (const int64_t steps : {0, 1, 5, 12, 13})
        for (const std::string lengths : {"1", "3", "6", "[6, 2]", "[5, 3, 2, 1]", "100"}) {
          const DType type = dtype == "f32" ? DType::f32 : DType::f64;
          auto all = compile(recurrent(steps, dtype, direction), 2);
          auto some = compile(recurrent(steps, dtype, direction + ", checkpoint = " + lengths), 2);
          State first(all), second(some);
          for (int round = 0; round < 2; ++round) {
            EXPECT_EQ(results(*all, first, type), results(*some, second, type))
                << dtype << direction << ' ' << steps << " steps, checkpoint " << lengths;
            first.restart();
            second.restart();
          }
        }
}

// What is held after stage 0, and the buffers of both stages.
std::pair<int64_t, int64_t> bytes(const std::string& text) {
  ir::Graph g = ir::differentiate(ir::parse(text, "test.ir").program(), {.order = 1});
  State state(Code::compile(g));
  int64_t buffers = 0;
  for (const auto& prepared : state.prepare({})) buffers += static_cast<int64_t>(prepared.buffer);
  return {ir::held_bytes(ir::lower(g), {})[0], buffers};
}

// A carry of three f64, and as much of each step within a segment, in places of 64 bytes.
TEST(Checkpoints, MemoryGrowsAsTheRootOfTheLength) {
  for (const int64_t root : {10, 30, 100}) {
    const int64_t steps = root * root;
    const auto [held, buffers] =
        bytes(recurrent(steps, "f64", fmt::format(", checkpoint = {}", root)));
    EXPECT_LE(held, 24 * root + 64);
    EXPECT_LE(buffers, 4 * 24 * root + 4096);
    EXPECT_GE(bytes(recurrent(steps, "f64", "")).first, 24 * steps);
  }
}

// By `memory`: bytes follow the logarithm of the length.
TEST(Checkpoints, AsManyLevelsAsTheBytesWant) {
  for (const int64_t steps : {100, 10000, 1000000}) {
    const auto levels = static_cast<int64_t>(std::log2(static_cast<double>(steps)));
    const int64_t most = 24 * 2 * (levels + 2);
    const auto [held, buffers] = bytes(recurrent(steps, "f64", fmt::format(", memory = {}", most)));
    EXPECT_LE(held, most + 64) << steps;
  }
}

TEST(Checkpoints, FewerBytesThanOneSegmentNeedsAreAnError) {
  const std::string said = error_of([] { bytes(recurrent(1000, "f64", ", memory = 50")); });
  EXPECT_NE(said.find("scan: memory is 50 bytes; the derivatives of its 1000 steps keep"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace gradus::test
