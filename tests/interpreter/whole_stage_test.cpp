// Small stages that run as one function: which do, with the same bits, and where they do not.
#include <atomic>

#include "fusion/cost.h"
#include "fusion/cpu/compiler.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

class Whole : public testing::Test {
 protected:
  void SetUp() override {
    if (!fusion::cpu::runs_here(fusion::cpu::Isa::avx2)) GTEST_SKIP() << "no kernels here";
  }
  static std::shared_ptr<Context> context(const KernelOptions& options = {}) {
    ContextOptions context_options;
    context_options.workers = 2;
    auto context = std::make_shared<Context>(context_options);
    set_kernel_options(*context, options);
    return context;
  }
  static State first(std::shared_ptr<const Code> code,
                     const std::shared_ptr<Context>& where = context()) {
    return State(std::move(code), where, {.fusion = FusionMode::first});
  }
  static State unfused(std::shared_ptr<const Code> code) {
    return State(std::move(code), Context::default_context(), {.fusion = FusionMode::off});
  }
};

Tensor random(const Sizes& shape, uint64_t seed, DType dtype = DType::f64) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& v : values) v = normal(generator);
  return Tensor::from(dtype, shape, values);
}

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].defined() ? bitwise_equal(a[i], b[i]) : !b[i].defined()) << "result " << i;
}

// A layer, then what it is derived to. Index_select checks its indices in each run.
constexpr const char* layer = R"(graph layer {
  stage 0 (%x: f64[2, 5], %w: f64[3, 5], %at: i64[2]) {
    %h = linear(%x, %w)
    %t = tanh(%h)
    %p = index_select(%t, %at) {dim = 0}
    %s = sigmoid(%p)
    %u = mul(%s, %p)
    %c = cumsum(%u) {dim = 1}
    %y = mul(%c, %c)
    return %y
  }
}
)";

std::vector<std::vector<Tensor>> layer_inputs(uint64_t seed, double index = 1) {
  return {{random({2, 5}, seed), random({3, 5}, seed + 1),
           Tensor::from(DType::i64, Sizes{2}, std::vector<double>{index, 0})},
          {random({2, 3}, seed + 2)},
          {random({2, 5}, seed + 3), random({3, 5}, seed + 4)}};
}

TEST_F(Whole, EveryOrderHasTheBitsOfSingleInstructions) {
  auto code = compile(layer, 2);
  State whole = first(code), plain = unfused(code);
  for (uint64_t round = 0; round < 3; ++round) {
    const auto inputs = layer_inputs(10 * round);
    for (size_t stage = 0; stage < 3; ++stage)
      expect_same(run(whole, inputs[stage]), run(plain, inputs[stage]));
    ASSERT_EQ(whole.whole_stages().size(), 3u);
    whole.restart(), plain.restart();
  }
  const auto stages = whole.whole_stages();
  size_t products = 0, calls = 0;
  for (const auto& s : stages)
    for (const auto& item : s.items) products += item.kind == "product", calls += item.kind.empty();
  EXPECT_GT(products, 4u);  // of the layer and of both its derivatives
  EXPECT_GT(calls, 0u);     // the running sum, at least
  EXPECT_NE(describe_groups(whole).find("stage 2 is one function of "), std::string::npos);
}

TEST_F(Whole, WhatStagesLeaveIsTheClonesToo) {
  auto code = compile(layer, 1);
  State whole = first(code), plain = unfused(code);
  const auto inputs = layer_inputs(3);
  run(whole, inputs[0]), run(plain, inputs[0]);
  State clone = whole.clone();
  const Tensor other = random({2, 3}, 99);
  const auto expected = run(plain, inputs[1]);
  expect_same(run(whole, inputs[1]), expected);
  expect_same(run(clone, inputs[1]), expected);
  whole.restart();
  run(whole, inputs[0]);
  plain.restart();
  run(plain, inputs[0]);
  expect_same(run(whole, {other}), run(plain, {other}));
}

// As in kernels of groups.
TEST_F(Whole, TakesShortRowsSideBySide) {
  auto code = compile(R"(graph rows {
  stage 0 (%x: f32[30, 3]) {
    %m = mean(%x) {dim = [1], keepdim = true}
    %d = sub(%x, %m)
    %n = norm(%d) {dim = [1]}
    %y = softmax(%d) {dim = 1}
    return %n, %y
  }
}
)");
  State whole = first(code, context({.vector_bits = 256})), plain = unfused(code);
  const std::vector<Tensor> inputs{random({30, 3}, 5, DType::f32)};
  expect_same(run(whole, inputs), run(plain, inputs));
  ASSERT_EQ(whole.whole_stages().size(), 1u);
  EXPECT_NE(describe_groups(whole).find("nest 2 rows 3 {"), std::string::npos);
}

// Who watches sees every instruction, whichever way it would run.
TEST_F(Whole, RunsStepByStepWhereSomebodyWatches) {
  struct Watch : InstructionObserver {
    std::vector<size_t> seen;
    void before(size_t, size_t n) override { seen.push_back(n); }
    void after(size_t, size_t) override {}
  };
  auto code = compile(layer, 1);
  State whole = first(code), plain = unfused(code);
  const auto inputs = layer_inputs(5);
  for (size_t stage = 0; stage < 2; ++stage) {
    Watch watch;
    expect_same(run(whole, inputs[stage], {.observer = &watch}), run(plain, inputs[stage]));
    EXPECT_EQ(watch.seen.size(), code->stage(stage).instructions.size());
    CancelToken never;
    State again = first(code);
    for (size_t before = 0; before < stage; ++before) run(again, inputs[before]);
    plain.restart();
    for (size_t before = 0; before < stage; ++before) run(plain, inputs[before]);
    expect_same(run(again, inputs[stage], {.cancel = &never}), run(plain, inputs[stage]));
  }
  EXPECT_EQ(whole.whole_stages().size(), 2u);
  CancelToken now;
  now.cancel();
  whole.restart();
  EXPECT_NE(error_of([&] { run(whole, inputs[0], {.cancel = &now}); }).find("was cancelled"),
            std::string::npos);
}

TEST_F(Whole, ErrorsOfCallsHaveTheirPlace) {
  auto code = compile(layer);
  State whole = first(code), plain = unfused(code);
  const auto bad = layer_inputs(1, 7);
  const std::string message = error_of([&] { run(whole, bad[0]); });
  EXPECT_EQ(message, error_of([&] { run(plain, bad[0]); }));
  EXPECT_EQ(whole.whole_stages().size(), 1u);
  EXPECT_TRUE(whole.poisoned());
  whole.restart(), plain.restart();
  const auto good = layer_inputs(1);
  expect_same(run(whole, good[0]), run(plain, good[0]));
}

// A loop whose step is one function calls it for many steps at once: of every length the results
// are those of single steps, and errors name the step.
// SPEC L7
TEST_F(Whole, StepsOfALoopRunManyInOneCall) {
  auto looped = [](int64_t steps, bool reverse, std::string_view picked) {
    return compile(fmt::format(R"(graph step {{
  stage 0 (%h: f64[3], %x: f64[3], %at: i64[1], %w: f64[3, 3]) {{
    %p = mv(%w, %h)
    %k = {2} {{dim = 0}}
    %a = add(%p, %k)
    %n = tanh(%a)
    %q = mul(%n, %x)
    %y = sum(%q)
    return %n, %y
  }}
}}
graph g {{
  stage 0 (%h0: f64[3], %xs: f64[{0}, 3], %at: i64[{0}, 1], %w: f64[3, 3]) {{
    %h, %ys = scan(%h0, %xs, %at, %w) {{body = "step", carries = 1, sequences = 2, reverse = {1}}}
    return %h, %ys
  }}
}}
)",
                               steps, reverse, picked),
                   1);
  };
  auto inputs = [](int64_t steps, int64_t wrong = -1) {
    std::vector<double> at(static_cast<size_t>(steps), 2);
    if (wrong >= 0) at[static_cast<size_t>(wrong)] = 3;
    return std::vector<Tensor>{random({3}, 1), random({steps, 3}, 2),
                               Tensor::from(DType::i64, Sizes{steps, 1}, at), random({3, 3}, 3)};
  };
  for (const bool reverse : {false, true})
    for (const int64_t steps : {1, 2, 3, 4, 1025, 3000}) {
      SCOPED_TRACE(fmt::format("{} steps", steps));
      auto code = looped(steps, reverse, "cumsum(%x)");
      State whole = first(code, context({.whole_stages = WholeStages::always})),
            plain = unfused(code);
      for (int round = 0; round < 2; ++round) {
        expect_same(run(whole, inputs(steps)), run(plain, inputs(steps)));
        const std::vector<Tensor> cotangents = {random({3}, 4), random({steps}, 5)};
        expect_same(run(whole, cotangents), run(plain, cotangents));
        whole.restart();
        plain.restart();
      }
    }
  State state = first(looped(3000, true, "index_select(%x, %at)"),
                      context({.whole_stages = WholeStages::always}));
  for (const int64_t wrong : {2999, 2998, 1, 0}) {
    const std::string message = error_of([&] { run(state, inputs(3000, wrong)); });
    EXPECT_NE(message.find(fmt::format("step {} of 'step'", wrong)), std::string::npos) << message;
    state.restart();
  }
  RunOptions late;
  late.deadline = std::chrono::steady_clock::now();
  EXPECT_NE(error_of([&] { run(state, inputs(3000), late); }), "");
}

TEST_F(Whole, NotOfSizesToComeNorOfMuchWorkNorOfViews) {
  auto wholes = [](const std::string& text, const std::vector<Tensor>& inputs,
                   const KernelOptions& options = {}) {
    auto code = compile(text);
    State state = first(code, context(options)), plain = unfused(code);
    expect_same(run(state, inputs), run(plain, inputs));
    return state.whole_stages().size();
  };
  auto chain = [](const std::string& size) {
    return "graph g { stage 0 (%x: f64[" + size +
           ", 4]) { %a = exp(%x) %s = cumsum(%a) {dim = 0} %b = sin(%s) %d = mul(%b, %x) return %d "
           "} }";
  };
  const Tensor x = random({6, 4}, 1);
  EXPECT_EQ(wholes(chain("6"), {x}), 1u);
  EXPECT_EQ(wholes(chain("N"), {x}), 0u);
  EXPECT_EQ(wholes(chain("6000"), {random({6000, 4}, 1)}), 0u);
  EXPECT_EQ(wholes(chain("1500"), {random({1500, 4}, 1)}), 0u);
  EXPECT_EQ(wholes(chain("6"), {x}, {.whole_stages = WholeStages::off}), 0u);
  EXPECT_EQ(wholes(chain("6"), {x}, {.always = true}), 0u);
  const Tensor turned = random({4, 6}, 1).view(Layout(DType::f64, {6, 4}, {1, 6}), 0);
  EXPECT_EQ(wholes(chain("6"), {turned}), 0u);
  const std::string calls =
      "graph g { stage 0 (%x: f64[6, 4]) { %a = exp(%x) %s = cumsum(%a) {dim = 0} %b = sin(%s) %c "
      "= "
      "cumsum(%b) {dim = 0} %d = mul(%c, %x) return %d } }";
  EXPECT_EQ(wholes(calls, {x}), 0u);
  EXPECT_EQ(wholes(calls, {x}, {.whole_stages = WholeStages::always}), 1u);
  // A single group is a kernel for all sizes.
  EXPECT_EQ(
      wholes("graph g { stage 0 (%x: f64[6, 4]) { %a = exp(%x) %b = sin(%a) return %b } }", {x}),
      0u);
  // Two products of 50 us each.
  const std::string large =
      "graph g { stage 0 (%x: f64[100, 100]) { %a = matmul(%x, %x) %b = tanh(%a) %c = matmul(%b, "
      "%x) %d = tanh(%c) return %d } }";
  EXPECT_EQ(wholes(large, {random({100, 100}, 1)}), 0u);
}

TEST_F(Whole, BehindComesForStatesAfterManyRuns) {
  auto shared = context();
  auto code = compile(layer, 1);
  auto state = [&] { return State(code, shared, {.fusion = FusionMode::behind}); };
  const auto inputs = layer_inputs(1);
  State early = state(), plain = unfused(code);
  std::vector<std::vector<Tensor>> expected;
  for (const auto& of_stage : inputs)
    if (!plain.finished()) expected.push_back(run(plain, of_stage));
  auto run_both = [&](State& s) {
    s.restart();
    for (size_t stage = 0; stage < 2; ++stage) expect_same(run(s, inputs[stage]), expected[stage]);
  };
  for (uint32_t n = 1; n < fusion::runs_before_stage; ++n) run_both(early);
  fusion::kernels_of(*shared)->wait();
  EXPECT_EQ(fusion::kernels_of(*shared)->ready()->stages(), 0u);
  run_both(early);
  fusion::kernels_of(*shared)->wait();
  EXPECT_EQ(fusion::kernels_of(*shared)->ready()->stages(), 2u);
  State late = state();
  run_both(late);
  EXPECT_EQ(late.whole_stages().size(), 2u);
  run_both(early);  // keeps what it was made with
  EXPECT_EQ(early.whole_stages().size(), 0u);
  State clone = late.clone();
  run_both(clone);
  EXPECT_EQ(clone.whole_stages().size(), 2u);
}

TEST_F(Whole, FirstDoesNotTakeThePlansOfOthers) {
  auto shared = context();
  auto code = compile(layer);
  const auto inputs = layer_inputs(4);
  State behind(code, shared, {.fusion = FusionMode::behind}), whole = first(code, shared);
  const auto expected = run(behind, inputs[0]);
  EXPECT_EQ(behind.whole_stages().size(), 0u);
  expect_same(run(whole, inputs[0]), expected);
  EXPECT_EQ(whole.whole_stages().size(), 1u);
}

TEST_F(Whole, KeptOnDiskAndCountedAsKernels) {
  std::string folder = testing::TempDir() + "gradus_stages_XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  auto code = compile(layer);
  const auto inputs = layer_inputs(2);
  State plain = unfused(code);
  const auto expected = run(plain, inputs[0]);
  for (bool cold : {true, false}) {
    auto own = context({.folder = folder});
    State s = first(code, own);
    expect_same(run(s, inputs[0]), expected);
    EXPECT_EQ(s.whole_stages().size(), 1u);
    const auto statistics = fusion::kernels_of(*own)->statistics();
    EXPECT_EQ(statistics.misses, cold ? 1u : 0u);
    EXPECT_EQ(statistics.loaded, cold ? 0u : 1u);
    EXPECT_EQ(statistics.kernels, 1u);
  }
}

}  // namespace
}  // namespace gradus
