// What a bound kernel does while it runs: no call of the heap, however the work is cut.
#include <atomic>
#include <cstdlib>
#include <new>

#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/fusion/support.h"

// Sanitizers have a heap of their own, which is not to be mixed with this one.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GRADUS_COUNTS_HEAP_CALLS 1

namespace {
std::atomic<size_t> heap_calls{0};
}

// All of this program's. Not inlined: g++ would see free() where new was called, and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++heap_calls;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  ++heap_calls;
  if (void* p =
          std::aligned_alloc(static_cast<size_t>(alignment),
                             (bytes + static_cast<size_t>(alignment) - 1) /
                                 static_cast<size_t>(alignment) * static_cast<size_t>(alignment)))
    return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace gradus::fusion::test {
namespace {

#if GRADUS_COUNTS_HEAP_CALLS
// Until the compiler's thread of the default context has done what earlier tests left to it: it
// calls the heap.
void wait_for_compiler() { kernels_of(*Context::default_context())->wait(); }

TEST(BoundKernels, AllocateNothing) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  wait_for_compiler();
  cpu::Compiler compiler;
  auto kernel = compiler.compile(
      parse_nest("nest 4 {\n %v0 = load f32 [strided, strided, strided, contiguous]\n"
                 " %v1 = load f32 [broadcast, broadcast, strided, broadcast]\n"
                 " %v2 = load f32 [strided, strided, strided, contiguous]\n"
                 " %v3 = mul(%v0, %v1) : f32 in f32\n %v4 = add(%v3, %v2) : f32 in f32\n"
                 " store %v3, %v4\n}\n"),
      some_isa);
  for (int threads : {1, 3}) {
    WorkerPool workers(threads);
    for (const Sizes& sizes :
         {Sizes{1, 1, 1, 1}, Sizes{2, 3, 4, 5}, Sizes{2, 2, 200, 300}, Sizes{3, 1, 1, 100000}}) {
      Frame frame{sizes, {}};
      const auto n = static_cast<size_t>(frame.count());
      Sizes dense = contiguous_strides(sizes);
      frame.strides = {dense, {0, 0, 1, 0}, dense};
      std::vector<float> x(n, 2), w(static_cast<size_t>(sizes[2]), 3), y(n, 1), p(n), q(n);
      std::byte* args[] = {
          reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(w.data()),
          reinterpret_cast<std::byte*>(y.data()), reinterpret_cast<std::byte*>(p.data()),
          reinterpret_cast<std::byte*>(q.data())};
      work::Kernel bound = kernel->bind(frame);
      work::KernelScope scope{workers, nullptr};
      bound.run(bound.parameters.get(), args, scope);  // the workers' threads start
      const size_t before = heap_calls;
      for (int i = 0; i < 3; ++i) bound.run(bound.parameters.get(), args, scope);
      EXPECT_EQ(heap_calls, before) << to_string(sizes) << ", " << threads << " threads";
      EXPECT_EQ(p.back(), 6);
      EXPECT_EQ(q.back(), 7);
    }
  }
}

TEST(BoundKernels, AllocateNothingForColumns) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  wait_for_compiler();
  cpu::Compiler compiler;
  auto kernel = compiler.compile(
      parse_nest("nest 3 {\n %v0 = load f32 [strided, strided, contiguous]\n"
                 " %v1 = reduce_columns sum(%v0) : f32 in f32\n"
                 " %v2 = reduce_columns max(%v0) : f32 in f32\n store_column %v1, %v2\n}\n"),
      some_isa);
  for (int threads : {1, 3}) {
    WorkerPool workers(threads);
    for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{2, 600, 100}, Sizes{50, 400, 7}}) {
      std::vector<float> x(static_cast<size_t>(numel(sizes)), 2);
      std::vector<float> p(static_cast<size_t>(sizes[2])), q(p.size());
      std::byte* args[] = {reinterpret_cast<std::byte*>(x.data()),
                           reinterpret_cast<std::byte*>(p.data()),
                           reinterpret_cast<std::byte*>(q.data())};
      work::Kernel bound = kernel->bind({sizes, {contiguous_strides(sizes)}});
      std::vector<double> scratch(bound.scratch_bytes / 8);
      work::KernelScope scope{workers, reinterpret_cast<std::byte*>(scratch.data())};
      bound.run(bound.parameters.get(), args, scope);  // the workers' threads start
      const size_t before = heap_calls;
      for (int i = 0; i < 3; ++i) bound.run(bound.parameters.get(), args, scope);
      EXPECT_EQ(heap_calls, before) << to_string(sizes) << ", " << threads << " threads";
      EXPECT_EQ(p.back(), static_cast<float>(2 * sizes[0] * sizes[1]));
      EXPECT_EQ(q.back(), 2);
    }
  }
}

// Rounds of a prepared state into the caller's memory, all stages: small values and large ones
// that stages leave for later ones, fused and not, and stages that are one function each. What a
// library's large products do is not ours.
// SPEC I15
TEST(PreparedStates, TakeNothingFromTheHeap) {
  wait_for_compiler();
  auto compile = [](std::string_view n, std::string_view m) {
    const ir::Module module = ir::parse(fmt::format(R"(
graph g {{
  stage 0 (%x: f32[{0}, {1}], %w: f32[{1}, {1}], %b: f32[{1}]) {{
    %h = matmul(%x, %w)
    %a = add(%h, %b)
    %t = tanh(%a)
    %s = softmax(%t) {{dim = 1}}
    %y = sum(%s) {{dim = [0]}}
    return %y, %s
  }}
}}
)",
                                                    n, m));
    return Code::compile(ir::differentiate(module.program(), {.order = 2}));
  };
  const auto named = compile("N", "M"), numbered = compile("3", "5");
  for (FusionMode mode : {FusionMode::off, FusionMode::behind, FusionMode::first})
    for (int64_t n : {3, 6000, 0}) {  // 0: by numbers
      const auto& code = n ? named : numbered;
      auto context = std::make_shared<Context>(ContextOptions{.workers = 2});
      State state(code, context, {.fusion = mode});
      InputSources sources = random_sources(5, context);
      if (n) sources.sizes = {{"N", n}, {"M", 5}};
      state.prepare(sources.sizes);
      std::vector<std::vector<Tensor>> inputs, results;
      for (size_t s = 0; s < code->stages(); ++s) {
        inputs.push_back(find_inputs(state, sources));
        results.push_back(state.run(inputs.back()));
        for (Tensor& t : results.back())
          if (t.defined()) t = t.copy();
      }
      // Preparing compiles, whatever the mode.
      const bool whole = mode != FusionMode::off && n == 0 && cpu::runs_here(some_isa);
      EXPECT_EQ(state.whole_stages().size(), whole ? code->stages() : 0);
      auto round = [&] {
        state.restart();
        for (size_t s = 0; s < code->stages(); ++s) state.run_into(inputs[s], results[s]);
      };
      for (int i = 0; i < 3; ++i) round();
      const std::vector<std::vector<Tensor>> kept = [&] {
        auto copies = results;
        for (auto& stage : copies)
          for (Tensor& t : stage)
            if (t.defined()) t = t.copy();
        return copies;
      }();
      const size_t before = heap_calls, blocks = context->heap()->calls();
      for (int i = 0; i < 5; ++i) round();
      EXPECT_EQ(heap_calls, before) << n;
      EXPECT_EQ(context->heap()->calls(), blocks) << n;
      for (size_t s = 0; s < results.size(); ++s)
        for (size_t i = 0; i < results[s].size(); ++i)
          EXPECT_TRUE(!kept[s][i].defined() || bitwise_equal(results[s][i], kept[s][i]));
    }
}
#endif

// Keeps its code, whatever becomes of the rest.
TEST(BoundKernels, OutliveTheirCompiler) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  work::Kernel bound;
  {
    cpu::Compiler compiler;
    bound = compiler
                .compile(parse_nest("nest 1 {\n %v0 = load f32 [contiguous]\n"
                                    " %v1 = neg(%v0) : f32 in f32\n store %v1\n}\n"),
                         some_isa)
                ->bind({{5}, {{1}}});
  }
  std::vector<float> x{1, 2, 3, 4, 5}, y(5);
  std::byte* args[] = {reinterpret_cast<std::byte*>(x.data()),
                       reinterpret_cast<std::byte*>(y.data())};
  WorkerPool workers(1);
  work::KernelScope scope{workers, nullptr};
  bound.run(bound.parameters.get(), args, scope);
  EXPECT_EQ(y, (std::vector<float>{-1, -2, -3, -4, -5}));
}

}  // namespace
}  // namespace gradus::fusion::test
