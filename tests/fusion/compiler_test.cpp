// The compiler beside its code: threads, faults, lifetimes, keys.
#include <thread>

#include "fusion/cost.h"
#include "fusion/cpu/code_maker.h"
#include "fusion/cpu/kernel_sources.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

Nest sample(int n) {
  return parse_nest(fmt::format(
      "nest 1 {{ %v0 = load f32 [contiguous] %v1 = number {} %v2 = tanh(%v0) : f32 in f32\n"
      "%v3 = mul(%v2, %v1) : f32 in f32 store %v3 }}",
      n));
}

class CompilerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  }
  WorkerPool workers{1};
};

TEST_F(CompilerTest, CompilesOnSeveralThreads) {
  cpu::Compiler compiler;
  std::vector<std::thread> threads;
  std::vector<std::string> differences(3);
  for (size_t t = 0; t < differences.size(); ++t)
    threads.emplace_back([&, t] {
      WorkerPool alone(1);
      for (int i = 0; i < 4; ++i) {
        Nest nest = sample(static_cast<int>(t) * 10 + i);
        auto kernel = compiler.compile(nest, some_isa);
        differences[t] += Memory(nest, {100}, 3).difference(*kernel, alone);
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& d : differences) EXPECT_EQ(d, "");
}

TEST_F(CompilerTest, KernelsOutliveTheirCompiler) {
  Nest nest = sample(3);
  std::shared_ptr<const cpu::Kernel> kernel;
  {
    cpu::Compiler compiler;
    kernel = compiler.compile(nest, some_isa);
    compiler.compile(sample(4), some_isa);  // gone at once
  }
  EXPECT_EQ(Memory(nest, {50}, 3).difference(*kernel, workers), "");
  EXPECT_GT(kernel->times().generate, 0);
}

// From where e^x is 0 over gradual underflow to where it is infinite, by whatever scales by a power
// of two; in vectors of one register and of two, and in a few elements of a stage.
TEST_F(CompilerTest, ExponentialsWhereTheyUnderflow) {
  cpu::Compiler compiler;
  for (auto [dtype, low, high] :
       {std::tuple(DType::f32, -104.5, 89.0), {DType::f64, -746.5, 710.0}})
    for (const char* op : {"exp", "exp2", "sinh", "erfc"}) {
      const Nest nest = parse_nest(fmt::format(
          "nest 1 {{ %v0 = load {0} [contiguous] %v1 = {1}(%v0) : {0} in {0} store %v1 }}",
          name_of(dtype), op));
      constexpr int64_t n = 20001;
      std::vector<std::byte> x(n * size_of(dtype)), expected(x), actual(x);
      visit_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (std::is_floating_point_v<T>)
          for (int64_t i = 0; i < n; ++i)
            reinterpret_cast<T*>(x.data())[i] =
                static_cast<T>(low + (high - low) * static_cast<double>(i) / (n - 1));
      });
      for (Isa isa : cpu::all_isas) {
        if (!cpu::runs_here(isa)) continue;
        auto kernel = compiler.compile(nest, isa);
        for (int64_t size : {n, int64_t{5}}) {
          const Frame frame{{size}, {{1}}};
          StageProgram stage;
          stage.pieces.push_back(work::Loops{nest, frame});
          auto whole = size < n ? compiler.compile(stage, isa) : nullptr;
          for (int64_t first = 0; first + size <= n; first += size) {
            const size_t at = static_cast<size_t>(first) * size_of(dtype),
                         bytes = static_cast<size_t>(size) * size_of(dtype);
            std::byte* to[] = {x.data() + at, expected.data() + at};
            evaluate(nest, frame, to);
            to[1] = actual.data() + at;
            if (whole)
              whole->loops(0)(to);
            else
              kernel->run(frame, to, workers);
            ASSERT_EQ(std::memcmp(&expected[at], &actual[at], bytes), 0)
                << op << " " << cpu::name_of(isa) << " from " << first << " on";
          }
        }
      }
    }
}

TEST_F(CompilerTest, RefusesInvalidNests) {
  Nest nest = sample(3);
  nest.stores.clear();
  cpu::Compiler compiler;
  EXPECT_THROW(compiler.compile(nest, some_isa), Error);
}

TEST_F(CompilerTest, FatalErrorsAreExceptions) {
  cpu::Compiler compiler;
  try {
    cpu::code_maker().give_up("out of ideas");
  } catch (const ResourceError& e) {
    EXPECT_NE(std::string(e.what()).find("out of ideas"), std::string::npos);
  }
  Nest nest = sample(5);
  auto kernel = compiler.compile(nest, some_isa);
  EXPECT_EQ(Memory(nest, {50}, 3).difference(*kernel, workers), "");
}

TEST_F(CompilerTest, KeysTellNestsAndTargetsApart) {
  auto key = [](int n, Isa isa) { return cpu::Compiler::key(sample(n), isa); };
  EXPECT_EQ(key(1, Isa::avx2), key(1, Isa::avx2));
  EXPECT_NE(key(1, Isa::avx2), key(2, Isa::avx2));
  EXPECT_NE(key(1, Isa::avx2), key(1, Isa::avx512));
  EXPECT_NE(key(1, Isa::avx2), key(1, Isa::neon));
  // A folder that another version of Gradus has filled has nothing for this one.
  EXPECT_EQ(cpu::kernel_sources.size(), 64u);
  EXPECT_TRUE(key(1, Isa::avx2).starts_with(fmt::format("gradus {} ", cpu::kernel_sources)));
}

// Of processors that lower their clock rate for 512-bit registers: functions, many steps for few
// operands, and sums of f64.
TEST(Registers, AreNarrowWhereWideOnesGainLittle) {
  auto bits = [](std::string_view dtype, std::string_view steps) {
    return worthwhile_registers(
        parse_nest(fmt::format("nest 2 {{ %v0 = load {0} [strided, contiguous] {1} }}", dtype,
                               fmt::format(fmt::runtime(steps), dtype))));
  };
  EXPECT_EQ(bits("f32", "%v1 = add(%v0, %v0) : {0} in {0} store %v1"), 256);
  EXPECT_EQ(bits("f64", "%v1 = add(%v0, %v0) : {0} in {0} store %v1"), 256);
  EXPECT_EQ(bits("f32", "%v1 = exp(%v0) : {0} in {0} store %v1"), 0);
  EXPECT_EQ(bits("f32", "%v1 = reduce sum(%v0) : {0} in {0} store_row %v1"), 256);
  EXPECT_EQ(bits("f64", "%v1 = reduce sum(%v0) : {0} in {0} store_row %v1"), 0);
  EXPECT_EQ(bits("f32", "%v1 = reduce_columns sum(%v0) : {0} in {0} store_column %v1"), 256);
  EXPECT_EQ(bits("f64", "%v1 = reduce_columns sum(%v0) : {0} in {0} store_column %v1"), 0);
  auto chain = [&](int steps) {
    std::string text;
    for (int i = 1; i <= steps; ++i)
      text += fmt::format("%v{} = add(%v{}, %v0) : {{0}} in {{0}} ", i, i - 1);
    return bits("f32", text + fmt::format("store %v{}", steps));
  };
  EXPECT_EQ(chain(15), 256);
  EXPECT_EQ(chain(16), 0);
}

// Rows side by side where types state that they are short, and as many as lanes.
TEST(RowSize, IsThatOfShortRows) {
  auto size = [](std::string_view steps, StatedRows rows, unsigned bits = 256) {
    return worthwhile_row_size(
        parse_nest(fmt::format("nest 2 {{ %v0 = load f32 [strided, contiguous] {} }}", steps)),
        rows, bits);
  };
  constexpr std::string_view sum = "%v1 = reduce sum(%v0) : f32 in f32 store_row %v1";
  EXPECT_EQ(size(sum, {100, 3}), 3);
  EXPECT_EQ(size(sum, {100, 31}), 31);
  EXPECT_EQ(size(sum, {100, 32}), 0);
  EXPECT_EQ(size(sum, {100, 1}), 0);
  EXPECT_EQ(size(sum, {0, 3}), 3);
  EXPECT_EQ(size(sum, {100, 0}), 0);
  EXPECT_EQ(size(sum, {8, 3}), 3);
  EXPECT_EQ(size(sum, {7, 3}), 0);
  EXPECT_EQ(size(sum, {100, 3}, 512), 0);
  EXPECT_EQ(size("%v1 = exp(%v0) : f32 in f32 store %v1", {100, 3}), 3);
  EXPECT_EQ(size("%v1 = digamma(%v0) : f32 in f32 store %v1", {100, 3}), 0);
  // Each place in a row has code of its own.
  std::string functions;
  for (int i = 1; i <= 4; ++i) functions += fmt::format("%v{} = exp(%v{}) : f32 in f32 ", i, i - 1);
  functions += "%v5 = reduce sum(%v4) : f32 in f32 store_row %v5";
  EXPECT_EQ(size(functions, {100, 9}), 9);
  EXPECT_EQ(size(functions, {100, 10}), 0);
}

// Four registers of 256 bits where each function waits for the one before, else two.
TEST(Lanes, OfFunctionsThatWaitAreMore) {
  auto lanes = [](std::string_view steps, unsigned bits = 256) {
    return lanes_of(parse_nest(fmt::format(
                        "nest 2 {{ %v0 = load f32 [strided, contiguous] %v1 = load f32 [strided, "
                        "contiguous] {} }}",
                        steps)),
                    bits);
  };
  constexpr std::string_view one = "%v2 = tanh(%v0) : f32 in f32 ",
                             next = "%v3 = exp(%v2) : f32 in f32 ",
                             beside = "%v3 = exp(%v1) : f32 in f32 ";
  EXPECT_EQ(lanes(fmt::format("{} store %v2", one)), 16);
  EXPECT_EQ(lanes(fmt::format("{}{} store %v3", one, next)), 32);
  EXPECT_EQ(lanes(fmt::format("{}{} store %v3, %v2", one, beside)), 16);
  EXPECT_EQ(lanes(fmt::format("{}{} %v4 = sin(%v3) : f32 in f32 store %v4, %v2", one, beside)), 16);
  EXPECT_EQ(lanes(fmt::format("{}{} %v4 = add(%v3, %v2) : f32 in f32 %v5 = sin(%v4) : f32 in f32 "
                              "store %v5",
                              one, next)),
            32);
  EXPECT_EQ(lanes(fmt::format("{}{} %v4 = reduce sum(%v3) : f32 in f32 store_row %v4", one, next)),
            16);
  EXPECT_EQ(lanes(fmt::format("{}{} store %v3", one, next), 512), 32);
}

// Code is made for the registers that were asked for, and fuses what is written fma alone.
TEST_F(CompilerTest, UsesTheRegistersItIsAskedFor) {
  Nest nest = parse_nest(
      "nest 1 { %v0 = load f32 [contiguous] %v1 = load f32 [contiguous]\n"
      "%v2 = mul(%v0, %v1) : f32 in f32 %v3 = add(%v2, %v1) : f32 in f32 store %v3 }");
  std::string narrow = cpu::assembly(nest, Isa::avx2);
  std::string wide = cpu::assembly(nest, Isa::avx512);
  EXPECT_NE(narrow.find("%ymm"), std::string::npos);
  EXPECT_EQ(narrow.find("%zmm"), std::string::npos);
  EXPECT_NE(wide.find("%zmm"), std::string::npos);
  EXPECT_EQ(narrow.find("vfmadd"), std::string::npos);
  EXPECT_EQ(wide.find("vfmadd"), std::string::npos);
}

}  // namespace
}  // namespace gradus::fusion::test
