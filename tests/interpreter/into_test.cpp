// Results in the caller's memory, and rounds that take none from the heap.
// SPEC I15
#include "gradus/inputs.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

// A result that is made, twice (y), one that later stages read (t), a view (v), an input (w) and a
// value of the program (c).
constexpr const char* program = R"(
graph g {
  stage 0 (%x: f64[N, 2], %w: f64[N, 2]) {
    %a = mul(%x, %w)
    %t = tanh(%a)
    %y = sum(%t) {dim = [1]}
    %e = exp(%t)
    %v = transpose(%e) {dim0 = 0, dim1 = 1}
    %c = full() {shape = [3], value = 2.5, dtype = f64}
    return %y, %t, %v, %w, %c, again = %y
  }
}
)";

std::vector<Tensor> inputs_of(State& state, int64_t n, uint64_t seed) {
  InputSources sources = random_sources(seed, Context::default_context());
  sources.sizes = {{"N", n}};
  return find_inputs(state, sources);
}

std::vector<Tensor> buffers_like(const std::vector<Tensor>& results) {
  std::vector<Tensor> buffers;
  for (const Tensor& t : results)
    buffers.push_back(t.defined() ? Tensor::zeros(t.dtype(), t.shape()) : Tensor());
  return buffers;
}

TEST(RunInto, GivesWhatRunGivesInTheCallersMemory) {
  auto code = compile(program, 2);
  for (FusionMode mode : {FusionMode::off, FusionMode::first})
    for (bool prepared : {false, true}) {
      State plain(code), state(code, Context::default_context(), {.fusion = mode});
      if (prepared) state.prepare({{"N", 5}});
      std::vector<std::vector<Tensor>> buffers(code->stages());
      for (uint64_t round = 0; round < 4; ++round) {
        const int64_t n = prepared && round == 2 ? 3 : 5;  // others in between
        plain.restart();
        state.restart();
        for (size_t s = 0; s < code->stages(); ++s) {
          const auto inputs = inputs_of(plain, n, 10 * round + s);
          const auto expected = run(plain, inputs);
          if (buffers[s].empty() || n != 5 || round == 3) buffers[s] = buffers_like(expected);
          std::vector<const std::byte*> places;
          for (const Tensor& t : buffers[s]) places.push_back(t.defined() ? t.data() : nullptr);
          state.run_into(inputs, buffers[s]);
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(buffers[s][i].defined(), expected[i].defined()) << s << " " << i;
            if (!expected[i].defined()) continue;
            EXPECT_EQ(buffers[s][i].data(), places[i]) << s << " " << i;
            EXPECT_TRUE(bitwise_equal(buffers[s][i], expected[i])) << s << " " << i;
          }
        }
        if (n != 5) buffers.assign(code->stages(), {});
      }
    }
}

TEST(RunInto, FillsEntriesThatHaveNone) {
  auto code = compile(program);
  State plain(code), state(code);
  const auto inputs = inputs_of(plain, 4, 1);
  const auto expected = run(plain, inputs);
  std::vector<Tensor> results(6);
  results[2] = Tensor::zeros(DType::f64, expected[2].shape());
  state.run_into(inputs, results);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(bitwise_equal(results[i], expected[i])) << i;
}

// A clone, or whoever kept the results of a round, does not see the next one's.
TEST(RunInto, LeavesAloneWhatOthersHold) {
  // The other holds small values, which later stages alone read.
  constexpr const char* inside = R"(
graph g {
  stage 0 (%x: f64[N, 2], %w: f64[N, 2]) {
    %a = mul(%x, %w)
    %t = tanh(%a)
    %y = sin(%t)
    return %y
  }
}
)";
  for (const char* text : {program, inside})
    for (int64_t n : {6, 600}) {
      auto code = compile(text, 1);
      Counted counted;
      State state(code, counted.context, {.fusion = FusionMode::off});
      state.prepare({{"N", n}});
      const auto first = inputs_of(state, n, 1), second = inputs_of(state, n, 2);
      run(state, first);
      State clone = state.clone();
      const auto cotangents = inputs_of(state, n, 3);
      const auto expected = run(state, cotangents);
      state.restart();
      run(state, second);
      const auto others = run(state, cotangents);
      EXPECT_FALSE(bitwise_equal(others[0], expected[0]));
      const auto again = run(clone, cotangents);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(bitwise_equal(again[i], expected[i])) << n << " " << i;
    }
}

TEST(RunInto, RefusesBuffersThatDoNotFit) {
  auto code = compile(program, 1);
  State state(code);
  const auto inputs = inputs_of(state, 4, 1);
  auto refusal = [&](size_t i, Tensor buffer) {
    std::vector<Tensor> results(code->stage(state.next_stage()).returns.size());
    results[i] = std::move(buffer);
    return error_of([&] { state.run_into(inputs, results); });
  };
  auto f64 = [](Sizes shape) { return Tensor::zeros(DType::f64, shape); };
  EXPECT_EQ(refusal(0, Tensor::zeros(DType::f32, Sizes{4})),
            "the buffer for result '%y' is f32[4], the result f64[N]");
  EXPECT_EQ(refusal(4, f64({4})), "the buffer for result '%c' is f64[4], the result f64[3]");
  EXPECT_EQ(refusal(1, f64({2, 4}).view(Layout(DType::f64, {4, 2}, {1, 4}), 0)),
            "the buffer for result '%t' is not contiguous");
  EXPECT_EQ(refusal(1, inputs[0]), "the buffer for result '%t' lies in the memory of input 'x'");
  std::vector<Tensor> two(6);
  Tensor both = f64({20});
  two[0] = both.view(Layout(DType::f64, {4}), 5);
  two[1] = both.view(Layout(DType::f64, {4, 2}), 0);
  EXPECT_EQ(error_of([&] { state.run_into(inputs, two); }),
            "the buffer for result '%t' lies in that for '%y'");
  two.resize(3);
  EXPECT_EQ(error_of([&] { state.run_into(inputs, two); }),
            "stage 0 gives 6 results, 3 entries are there for them");
  // All of that before anything ran.
  EXPECT_FALSE(state.poisoned());
  // What run gave for both is one tensor, which may be given for both.
  const std::vector<Tensor> given = run(state, inputs);
  state.restart();
  std::vector<Tensor> twice(6);
  twice[0] = twice[5] = given[0];
  state.run_into(inputs, twice);
  EXPECT_TRUE(twice[0].same_as(given[0]) && twice[5].same_as(given[0]));
  state.restart();
  // Sizes that have names, once they are known.
  EXPECT_NE(refusal(0, f64({5})).find("the buffer for result '%y' is f64[5], the result f64["),
            std::string::npos);
}

// What a later stage reads is not to be overwritten, by it or before it.
TEST(RunInto, RefusesMemoryThatStagesRead) {
  constexpr int64_t n = 10000;  // small values are copied for later stages
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %t = mul(%x, %w)
    %y = exp(%t)
    return %y, %t
  }
}
)",
                      1);
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  const std::vector<Tensor> results = run(state, inputs_of(state, n, 1));
  const auto cotangents = inputs_of(state, n, 2);
  std::vector<Tensor> gradients(2);
  gradients[1] = results[0];  // which the derivative of exp reads
  EXPECT_EQ(error_of([&] { state.run_into(cotangents, gradients); }),
            "the buffer for result '%d1_w' lies in the memory of '%y', which the stage reads");
  State other(code);
  std::vector<Tensor> its = results;
  other.run_into(inputs_of(other, n, 3), its);
  EXPECT_NE(error_of([&] { run(state, cotangents); }).find("was changed in place"),
            std::string::npos);
}

}  // namespace
}  // namespace gradus
