// Kernels compiled behind the runs: which a state uses, and what happens to those who wait.
#include <atomic>
#include <cstdlib>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "fusion/cpu/compiler.h"
#include "fusion/cpu/kernels.h"
#include "tests/corpus/fused.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

constexpr const char* program =
    "graph g {\n  stage 0 (%x: f64[N]) {\n    %a = exp(%x)\n    %b = sin(%a)\n"
    "    %c = mul(%b, %x)\n    return %c\n  }\n  stage 1 (%ct: f64[N]) {\n"
    "    %d = mul(%ct, %b)\n    %e = add(%d, %a)\n    return %e\n  }\n}\n";

class Behind : public testing::Test {
 protected:
  void SetUp() override {
    if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  }
  static std::shared_ptr<Context> context(LogSink log = {}) {
    ContextOptions options;
    options.workers = 2;
    options.log = std::move(log);
    auto context = std::make_shared<Context>(options);
    set_kernel_options(*context, {.always = true});
    return context;
  }
  static State behind(std::shared_ptr<const Code> code, const std::shared_ptr<Context>& context) {
    return State(std::move(code), context, {.fusion = FusionMode::behind});
  }
  static Tensor input(int64_t n = 2000) {
    Tensor x = Tensor::zeros(DType::f64, Sizes{n});
    for (int64_t i = 0; i < n; ++i) x.mutable_data_as<double>()[i] = 0.001 * static_cast<double>(i);
    return x;
  }
  // Both stages; the results are those of an unfused state.
  static void run_both(State& state, const Tensor& x) {
    State plain(state.code(), Context::default_context(), {.fusion = FusionMode::off});
    for (int stage = 0; stage < 2; ++stage)
      EXPECT_TRUE(bitwise_equal(run(state, {x})[0], run(plain, {x})[0]));
  }
};

// SPEC F3
TEST_F(Behind, AStateKeepsWhatItWasMadeWith) {
  auto shared = context();
  auto code = compile(program);
  Tensor x = input();
  State first = behind(code, shared);
  run_both(first, x);
  fusion::kernels_of(*shared)->wait();
  EXPECT_EQ(fusion::kernels_of(*shared)->statistics().misses, 2u);
  State later = behind(code, shared), clone = first.clone();
  first.restart(), clone.restart();
  for (State* s : {&first, &clone}) {
    run_both(*s, x);
    EXPECT_EQ(s->groups().size(), 0u);
  }
  run_both(later, x);
  EXPECT_EQ(later.groups().size(), 2u);
  // Sizes that are new to it change nothing, though others have plans for them.
  State other_size = behind(code, shared);
  run_both(other_size, input(50));
  EXPECT_EQ(other_size.groups().size(), 2u);
  for (State* s : {&first, &clone}) {
    s->restart();
    run_both(*s, input(50));
    EXPECT_EQ(s->groups().size(), 0u);
  }
  State of_later = later.clone();
  of_later.restart();
  run_both(of_later, x);
  EXPECT_EQ(of_later.groups().size(), 2u);
  // Nothing was compiled again, and one that compiles first finds all there.
  State last(code, shared, {.fusion = FusionMode::first});
  run_both(last, x);
  EXPECT_EQ(last.groups().size(), 2u);
  EXPECT_EQ(fusion::kernels_of(*shared)->statistics().misses, 2u);
  // Another size neither.
  State other = behind(code, shared);
  run_both(other, input(77));
  EXPECT_EQ(other.groups().size(), 2u);
}

// A state between two stages does not change either.
TEST_F(Behind, StagesOfOneStateAreOfOneMoment) {
  auto shared = context();
  auto code = compile(program);
  Tensor x = input();
  State state = behind(code, shared);
  run(state, {x});
  // Compiles the kernels of both stages meanwhile.
  State first(code, shared, {.fusion = FusionMode::first});
  run_both(first, x);
  run(state, {x});
  EXPECT_EQ(state.groups().size(), 0u);
}

TEST_F(Behind, ManyThreadsAskAtOnce) {
  auto shared = context();
  auto code = compile(program);
  Tensor x = input();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        State state = behind(code, shared);
        run_both(state, x);
      }
    });
  for (std::thread& t : threads) t.join();
  fusion::kernels_of(*shared)->wait();
  EXPECT_EQ(fusion::kernels_of(*shared)->statistics().misses, 2u);
}

// What is waiting is left; the context's end waits for one compilation at most.
TEST_F(Behind, AContextEndsWhileItsThreadCompiles) {
  for (int round = 0; round < 3; ++round) {
    auto shared = context();
    std::vector<std::shared_ptr<const Code>> codes;
    for (int i = 0; i < 50; ++i) {
      auto code = compile(fmt::format(
          "graph g {{ stage 0 (%x: f64[N]) {{ %a = mul(%x, {}.5) %b = tanh(%a) return %b }} }}",
          i));
      State state = behind(code, shared);
      run(state, {input()});
    }
    EXPECT_GT(fusion::kernels_of(*shared)->statistics().waiting, 10u);
  }
}

// Nests that find no room are asked for again by who needs them next.
TEST_F(Behind, SoManyWaitAndNoMore) {
  auto shared = context();
  auto kernels = fusion::kernels_of(*shared);
  constexpr size_t most = fusion::cpu::CpuKernels::most_waiting;
  for (size_t i = 0; i < most + 300; ++i) {
    fusion::Nest nest =
        fusion::parse_nest(fmt::format("nest 1 {{\n %v0 = load f32 [contiguous]\n %v1 = number {}\n"
                                       " %v2 = mul(%v0, %v1) : f32 in f32\n store %v2\n}}\n",
                                       i));
    kernels->request(nest, fusion::print(nest));
  }
  const KernelStatistics s = kernels->statistics();
  EXPECT_LE(s.waiting, most + 1);
  EXPECT_GT(s.dropped, 0u);
}

TEST_F(Behind, WhatFailedIsRememberedAndTold) {
  std::atomic<int> told{0};
  auto shared = context([&](LogLevel level, std::string_view message) {
    EXPECT_EQ(level, LogLevel::warning);
    EXPECT_NE(message.find("runs unfused"), std::string_view::npos);
    ++told;
  });
  auto kernels = fusion::kernels_of(*shared);
  fusion::Nest bad;  // stores nothing
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kernels->get(bad, "bad"), nullptr);
    kernels->request(bad, "bad");
    kernels->wait();
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(kernels->statistics().failed, 1u);
  EXPECT_EQ(kernels->statistics().misses, 1u);
}

// A compiler that can compile nothing: programs run as they do without one.
TEST_F(Behind, ProgramsRunWhereNoKernelCanBeMade) {
  struct None final : fusion::Kernels {
    std::atomic<int> asked{0};
    uint64_t id() const override { return UINT64_MAX; }
    bool wants(const fusion::Nest&, const fusion::Frame&) const override { return true; }
    std::shared_ptr<const fusion::KernelSet> ready() override {
      return std::make_shared<fusion::KernelSet>();
    }
    std::shared_ptr<const fusion::Kernel> get(const fusion::Nest&, const std::string&) override {
      ++asked;
      return nullptr;
    }
    void request(const fusion::Nest&, const std::string&) override { ++asked; }
    void wait() override {}
    KernelStatistics statistics() const override { return {}; }
  };
  for (FusionMode mode : {FusionMode::behind, FusionMode::first}) {
    auto shared = context();
    auto none = std::make_shared<None>();
    shared->replace_part<fusion::Kernels>(none);
    State state(compile(program), shared, {.fusion = mode});
    run_both(state, input());
    EXPECT_EQ(none->asked, 2);
    EXPECT_EQ(state.groups().size(), 0u);
  }
}

// The child has the parent's plans and kernels, and asks nobody for more.
TEST_F(Behind, AForkedChildMakesNoKernels) {
  auto shared = context();
  auto code = compile(program);
  Tensor x = input(100);
  State state(code, shared, {.fusion = FusionMode::first});
  run_both(state, x);
  auto other =
      compile("graph g { stage 0 (%x: f64[N]) { %a = mul(%x, 0.25) %b = tanh(%a) return %b } }");
  State waiting = behind(other, shared);
  run(waiting, {x});
#if defined(__SANITIZE_ADDRESS__)
  // Before LLVM 18 and GCC 14 the sanitizer's allocator has no rule for forks: a child waits
  // forever for a lock of it that a thread of the parent held. No thread may allocate then.
  fusion::kernels_of(*shared)->wait();
#endif
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    bool right = true;
    state.restart();
    State plain(code, Context::default_context(), {.fusion = FusionMode::off});
    right &= bitwise_equal(run(state, {x})[0], run(plain, {x})[0]);
    for (FusionMode mode : {FusionMode::behind, FusionMode::first}) {
      State fresh(other, shared, {.fusion = mode});
      State reference(other, Context::default_context(), {.fusion = FusionMode::off});
      right &= bitwise_equal(run(fresh, {x})[0], run(reference, {x})[0]);
      right &= fresh.groups().empty();
    }
    fusion::kernels_of(*shared)->wait();
    set_kernel_options(*shared, {});  // ends the parent's here
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Of a context that goes with the process' static objects. Each child is a process from the start.
TEST_F(Behind, AProcessEndsWhileItsThreadCompiles) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 5; ++i)
    EXPECT_EXIT(
        {
          auto context = Context::default_context();
          set_kernel_options(*context, {.always = true});
          State state = behind(compile(program), context);
          run(state, {input()});
          if (fusion::kernels_of(*context)->statistics().waiting == 0) _exit(1);
          std::exit(0);
        },
        testing::ExitedWithCode(0), "");
}

// Static objects that LLVM made while the thread compiled something similar would be gone. glibc
// overwrites what they held.
TEST_F(Behind, AProcessEndsWhileItsThreadCompilesAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("MALLOC_PERTURB_", "90", 1);
  for (const char* op : {"ge", "fmod"})
    for (int ms = 0; ms < 12; ms += 3)
      EXPECT_EXIT(
          {
            alarm(20);
            auto context = Context::default_context();
            set_kernel_options(*context, {.always = true});
            for (int n = 0; n < 8; ++n) {
              const std::string text = fmt::format(
                  "graph g {{ stage 0 (%x: f32[N]) {{ %a = neg(%x) %b = {}(%a, {}.5) return %b }} "
                  "}}",
                  op, n);
              State state = behind(compile(text), context);
              run(state, {Tensor::zeros(DType::f32, Sizes{100})});
              if (n == 0) fusion::kernels_of(*context)->wait();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(ms));
            std::exit(0);
          },
          testing::ExitedWithCode(0), "")
          << op << ' ' << ms;
  unsetenv("MALLOC_PERTURB_");
}

TEST_F(Behind, OptionsThatCannotBeAreRefused) {
  auto shared = context();
  EXPECT_THROW(set_kernel_options(*shared, {.vector_bits = 300}), Error);
}

}  // namespace
}  // namespace gradus
