// Planning before anything runs: what is reported is what is taken.
#include "fusion/kernels.h"
#include "gradus/inputs.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

constexpr const char* program = R"(
graph g {
  stage 0 (%x: f64[N, M], %w: f64[M]) {
    %a = mul(%x, %w)
    %t = tanh(%a)
    %e = exp(%t)
    %y = sum(%e) {dim = [0]}
    return %y
  }
}
)";

std::vector<Tensor> inputs_of(State& state, const DimSizes& sizes) {
  InputSources sources = random_sources(7, Context::default_context());
  sources.sizes = sizes;
  return find_inputs(state, sources);
}

// SPEC I15
TEST(Prepare, ReportsWhatEachStageTakes) {
  auto code = compile(program, 2);
  for (const DimSizes& sizes : {DimSizes{{"M", 3}, {"N", 2}}, DimSizes{{"M", 40}, {"N", 500}}}) {
    Counted counted;
    State state(code, counted.context, {.fusion = FusionMode::off});
    const auto memory = state.prepare(sizes);
    ASSERT_EQ(memory.size(), code->stages());
    size_t buffer = 0;
    for (const StageMemory& m : memory) buffer = std::max(buffer, m.buffer);
    EXPECT_EQ(counted.heap->live_bytes(), buffer);
    // All results are kept, and what was held is, for the next round.
    std::vector<std::vector<Tensor>> results;
    size_t returned = 0, held = 0;
    for (const StageMemory& m : memory) held += m.held;
    for (size_t s = 0; s < code->stages(); ++s) {
      const size_t before = counted.heap->live_bytes();
      results.push_back(run(state, inputs_of(state, sizes)));
      if (s == 0) {  // later stages also give back what they read last
        EXPECT_GT(memory[s].held, 0u);
        EXPECT_EQ(counted.heap->live_bytes() - before, memory[s].held + memory[s].results);
      }
      size_t bytes = 0;
      for (const Tensor& t : results.back())
        if (t.defined()) bytes += t.storage()->bytes();
      EXPECT_EQ(bytes, memory[s].results) << s;
      returned += bytes;
    }
    EXPECT_EQ(counted.heap->live_bytes(), buffer + held + returned);
  }
}

TEST(Prepare, TheMemoryStays) {
  auto code = compile(program, 1);
  const DimSizes sizes{{"M", 1000}, {"N", 700}};  // more than is kept otherwise
  Counted counted;
  State state(code, counted.context, {.fusion = FusionMode::off});
  size_t held = 0;
  for (const StageMemory& m : state.prepare(sizes)) held += m.held;
  const size_t buffer = counted.heap->live_bytes();
  EXPECT_GT(buffer, size_t{1} << 20);
  EXPECT_GT(held, size_t{1} << 20);
  for (int round = 0; round < 2; ++round) {
    state.restart();
    for (size_t s = 0; s < code->stages(); ++s) run(state, inputs_of(state, sizes));
    EXPECT_EQ(counted.heap->live_bytes(), buffer + held);
  }
}

// Inputs of other sizes are planned when they come.
TEST(Prepare, GivesTheSameResults) {
  auto code = compile(program, 1);
  State plain(code), state(code);
  const DimSizes sizes{{"M", 5}, {"N", 4}};
  state.prepare(sizes);
  const DimSizes others{{"M", 6}, {"N", 1}};
  for (const DimSizes& s : {sizes, others}) {
    plain.restart();
    state.restart();
    const auto first = inputs_of(plain, s);
    EXPECT_TRUE(bitwise_equal(run(plain, first)[0], run(state, first)[0]));
    State clone = state.clone();
    const auto second = inputs_of(plain, s);
    const auto expected = run(plain, second);
    for (State* other : {&state, &clone}) {
      const auto results = run(*other, second);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(bitwise_equal(results[i], expected[i])) << i;
    }
  }
}

// SPEC I15
TEST(Prepare, CompilesWhatRunsUse) {
  auto context = std::make_shared<Context>();
  set_kernel_options(*context, {.always = true});
  auto kernels = fusion::kernels_of(*context);
  auto code = compile(program, 1);
  const DimSizes sizes{{"M", 50}, {"N", 40}};
  State state(code, context);  // which would compile behind its runs
  state.prepare(sizes);
  const KernelStatistics before = kernels->statistics();
  if (before.misses == 0) GTEST_SKIP() << "no kernels here";
  State plain(code, Context::default_context(), {.fusion = FusionMode::off});
  for (size_t s = 0; s < code->stages(); ++s) {
    const auto inputs = inputs_of(plain, sizes);
    const auto expected = run(plain, inputs), results = run(state, inputs);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(bitwise_equal(results[i], expected[i])) << s;
  }
  EXPECT_FALSE(state.groups().empty());
  const KernelStatistics after = kernels->statistics();
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.hits, before.hits);
  EXPECT_EQ(after.waiting, 0u);
}

TEST(Prepare, SaysWhatItCannot) {
  auto code = compile(program, 1);
  State state(code);
  EXPECT_NE(error_of([&] {
              state.prepare({{"M", 3}});
            }).find("needs the size of 'N'"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              state.prepare({{"M", 3}, {"N", 2}, {"K", 2}});
            }).find("'K'"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              state.prepare({{"M", 3}, {"N", -2}});
            }).find("negative"),
            std::string::npos);
  const int64_t huge = int64_t{1} << 40;
  EXPECT_NE(error_of([&] {
              state.prepare({{"M", huge}, {"N", huge}});
            }).find("elements"),
            std::string::npos);
  run(state, inputs_of(state, {{"M", 3}, {"N", 2}}));
  EXPECT_NE(error_of([&] {
              state.prepare({{"M", 3}, {"N", 2}});
            }).find("before stage 0"),
            std::string::npos);
  auto counts =
      compile("graph g {\n stage 0 (%m: bool[N]) {\n %i = nonzero(%m)\n return %i\n }\n}\n");
  State other(counts);
  EXPECT_NE(error_of([&] {
              other.prepare({{"N", 3}});
            }).find("cannot be prepared"),
            std::string::npos);
}

// What is alive at the peak adds up to it, and is what the schedule leaves there.
TEST(Prepare, SaysWhatIsAliveAtThePeak) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[N]) {
    %z = neg(%x)
    %a = sin(%z)
    %b = cos(%a)
    %c = mul(%a, %b)
    %e = exp(%c)
    return y = %e, %c
  }
  stage 1 (%w: f64[N]) {
    %r = mul(%w, %b)
    return %r
  }
}
)");
  State state(code, Context::default_context(), {.fusion = FusionMode::off});
  EXPECT_TRUE(state.peaks().empty());
  state.prepare({{"N", 1000}});
  const auto peaks = state.peaks();
  ASSERT_EQ(peaks.size(), 2u);
  const StagePeak& first = peaks[0];
  EXPECT_EQ(first.stage, 0u);
  EXPECT_EQ(first.instruction, 3u);  // of z there is nothing any more, of e nothing yet
  std::string names;
  size_t bytes = 0;
  for (const StagePeak::Living& l : first.living) {
    names += code->name_of(l.reg) + (l.last ? fmt::format(" until {}, ", *l.last) : " stays, ");
    bytes += l.bytes;
  }
  EXPECT_EQ(names, "%a until 3, %b stays, %c stays, ");
  EXPECT_EQ(bytes, 24000u);
  EXPECT_EQ(first.bytes, 24000u);
  EXPECT_EQ(peaks[1].bytes, 8000u);
  const std::string text = describe_peaks(state, 2);
  EXPECT_NE(text.find("stage 0 takes most at instruction 3 mul @7:10: "), std::string::npos)
      << text;
  EXPECT_NE(text.find("  8000 bytes %a: f64[N], made by 1 sin @5:10, last read by 3 mul @7:10\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  8000 bytes of 1 more\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace gradus
