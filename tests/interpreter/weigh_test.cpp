// What the cost model says of groups, beside what they take.
#include <algorithm>

#include "gradus/inspect.h"
#include "tests/corpus/fused.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

std::vector<WeighedGroup> weighed(const std::string& text, const DimSizes& sizes) {
  return weigh_groups(*Code::compile(ir::parse(text, "w.ir").program()), sizes);
}

class Weighed : public testing::Test {
 public:
  void SetUp() override {
    if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  }
};

// SPEC F5
TEST_F(Weighed, AGroupHasItsEstimateAndItsProgram) {
  const std::string text =
      "graph g { stage 0 (%x: f32[N, M], %r: f32[M]) {\n%p = mul(%x, %r)\n%s = add(%p, %x)\n"
      "return %s } }";
  const auto groups = weighed(text, {{"N", 300}, {"M", 1024}});
  ASSERT_EQ(groups.size(), 1u);
  const WeighedGroup& g = groups[0];
  EXPECT_EQ(g.operators, (std::vector<std::string_view>{"mul", "add"}));
  EXPECT_EQ(g.places[1].line, 3u);
  EXPECT_TRUE(g.is_kernel);
  EXPECT_GT(g.saved, g.lost);
  EXPECT_EQ(g.refused, "");
  ASSERT_EQ(g.inputs.size(), 2u);
  EXPECT_EQ(g.inputs[0].shape, (Sizes{300, 1024}));
  EXPECT_EQ(g.program->stages[0].nodes.size(), 2u);
  const GroupTimes t = measure_group(g);
  EXPECT_GT(t.apart, 0);
  EXPECT_GT(t.as_kernel, 0);
}

// Values of a gradient have no names.
TEST_F(Weighed, AGroupOfAGradientIsMeasured) {
  const auto groups = weighed(
      "graph g { stage 0 (%x: f64[70, 67], %w: f64[70, 67]) {\n%y = softmax(%x) {dim = 1}\n"
      "%p = mul(%y, %w)\n%s = sum(%p)\n%d = grad(%s, %x)\n%q = square(%d)\n%l = sum(%q)\n"
      "%g = grad(%l, %x)\nreturn %l, %g } }",
      {});
  ASSERT_FALSE(groups.empty());
  for (const WeighedGroup& g : groups) EXPECT_GT(measure_group(g).as_kernel, 0);
}

TEST_F(Weighed, AGroupThatIsNoKernelIsThere) {
  const auto groups = weighed(
      "graph g { stage 0 (%x: f32[N, M], %w: f32[M]) {\n%p = mul(%x, %w)\n%t = tanh(%p)\n"
      "return %t } }",
      {{"N", 10000}, {"M", 3}});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_FALSE(groups[0].is_kernel);
  EXPECT_LT(groups[0].saved, groups[0].lost);
}

// One long row is one worker's as a kernel. Single instructions have all workers.
TEST_F(Weighed, ASumOfAllIsAKernelWhereWorkersAreFew) {
  const auto code = Code::compile(
      ir::parse("graph g { stage 0 (%x: f64[N]) { %p = square(%x) %q = add(%p, 1.0) %s = sum(%q) "
                "return %s } }")
          .program());
  constexpr int64_t n = int64_t{1} << 18;
  const Tensor x = Tensor::from(DType::f64, Sizes{n}, std::vector<double>(n, 0.3));
  std::vector<double> sums;
  for (int workers : {1, 64}) {
    ContextOptions options;
    options.workers = workers;
    auto context = std::make_shared<Context>(options);
    State state(code, context, {.fusion = FusionMode::first});
    sums.push_back(state.run(std::array{x})[0].item());
    EXPECT_EQ(state.groups().size(), workers == 1 ? 1u : 0u) << workers;
  }
  EXPECT_EQ(sums[0], sums[1]);
}

// A view between members is one of the group's, an operand lies as it did, and bodies are among the
// stages' groups.
TEST_F(Weighed, ItsProgramReadsWhatTheGroupReads) {
  const auto groups = weighed(
      "graph g { stage 0 (%x: f64[N, 40], %z: f64[40, N], %k: f64[3, N]) {\n"
      "%t = transpose(%z) {dim0 = 0, dim1 = 1}\n%p = mul(%x, %t)\n"
      "%m = sum(%p) {dim = [1], keepdim = true}\n%d = sub(%p, %m)\n%y = square(%d)\n"
      "%h = scan(%y, %k) {body = graph (%c: f64[A, 40], %w: f64[A]) {\n"
      "%u = unsqueeze(%w) {dim = 1}\n%v = mul(%c, %u)\n%n = add(%v, %c)\nreturn %n\n"
      "}, carries = 1, sequences = 1}\nreturn %h } }",
      {{"N", 200}});
  bool body = false, rows = false;
  for (const WeighedGroup& g : groups) {
    body |= std::ranges::count(g.operators, "add") > 0;
    if (std::ranges::count(g.operators, "sum") == 0) continue;
    rows = true;
    EXPECT_EQ(g.inputs.size(), 2u);
    EXPECT_TRUE(std::ranges::any_of(g.inputs, [](const Layout& l) {
      return l.strides == Sizes{1, 200};
    }));
  }
  EXPECT_TRUE(body);
  EXPECT_TRUE(rows);
  for (const WeighedGroup& g : groups) EXPECT_GT(measure_group(g).as_kernel, 0);
}

TEST_F(Weighed, AMissingSizeIsAnError) {
  EXPECT_THROW(weighed("graph g { stage 0 (%x: f32[N]) {\n%p = tanh(%x)\nreturn %p } }", {}),
               Error);
}

// Short rows, whose kernels are worth it or not with these registers and workers.
TEST_F(Weighed, ALargeGroupWithoutAKernelIsSlow) {
  size_t refused = 0;
  for (const int64_t columns : {2, 3, 5, 7, 9, 17, 1 << 17})
    for (const int64_t elements : {1000, 1 << 17}) {
      const std::string text =
          "graph g { stage 0 (%x: f32[N, M]) {\n%f = mul(%x, %x)\n"
          "%h = amax(%f) {dim = [1]}\nreturn %h } }";
      const auto code = Code::compile(ir::parse(text, "w.ir").program());
      const DimSizes sizes{{"N", std::max<int64_t>(1, elements / columns)}, {"M", columns}};
      const auto groups = weigh_groups(*code, sizes);
      ASSERT_EQ(groups.size(), 1u);
      const bool slow = !groups[0].is_kernel && sizes.at("N") * columns >= 1 << 16;
      refused += slow;
      const auto paths = slow_paths(*code, sizes);
      ASSERT_EQ(paths.size(), slow ? 1u : 0u) << columns;
      if (!slow) continue;
      EXPECT_EQ(paths[0].operators, (std::vector<std::string_view>{"mul", "amax"}));
      EXPECT_EQ(paths[0].places[1].line, 3u);
      EXPECT_TRUE(paths[0].reason.find(groups[0].refused) != std::string::npos);
    }
  EXPECT_GT(refused, 0u);
}

std::vector<std::string> slow(const std::string& body, const DimSizes& sizes) {
  const std::string text =
      "graph g { stage 0 (%t: f32[K, C], %x: f32[N, C], %v: f32[N], %i: i64[N], %j: i64[N, C]) "
      "{\n" +
      body + "\nreturn %y } }";
  std::vector<std::string> found;
  for (const SlowPath& p : slow_paths(*Code::compile(ir::parse(text).program()), sizes))
    found.push_back(fmt::format("{}: {}", fmt::join(p.operators, ", "), p.reason));
  return found;
}

TEST_F(Weighed, WhatRunsOnOneThreadOrWithoutVectorsIsSlow) {
  using Lines = std::vector<std::string>;
  const DimSizes large{{"K", 7}, {"C", 1}, {"N", 70000}}, wide{{"K", 7}, {"C", 3000}, {"N", 100}},
      medium{{"K", 7}, {"C", 100}, {"N", 1000}}, small{{"K", 7}, {"C", 1}, {"N", 100}};
  const std::string add = "%y = index_add(%t, %i, %x) {dim = 0}",
                    scatter = "%y = scatter_add(%t, %j, %x) {dim = 0}",
                    trigamma = "%y = polygamma(%v) {n = 1}";
  const Lines in_order{"index_add: 70000 elements are written in index order, on one thread"};
  EXPECT_EQ(slow(add, large), in_order);
  EXPECT_EQ(slow(add, wide), Lines());    // by columns
  EXPECT_EQ(slow(add, medium), Lines());  // by places
  EXPECT_EQ(slow(add, small), Lines());
  EXPECT_EQ(slow(scatter, large),
            Lines{"scatter_add: 70000 elements are written in index order, on one thread"});
  EXPECT_EQ(slow(scatter, wide),
            Lines{"scatter_add: 300000 elements are written in index order, on one thread"});
  EXPECT_EQ(slow("%y = gather(%t, %j) {dim = 0}", large), Lines());
  EXPECT_EQ(
      slow(trigamma, large),
      Lines{"polygamma: 70000 elements of tens of nanoseconds each, without vector instructions"});
  EXPECT_EQ(slow(trigamma, small), Lines());
}

}  // namespace
}  // namespace gradus
