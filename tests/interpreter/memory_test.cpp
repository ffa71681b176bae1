// Memory: registers are released right after their last use, and the buffer is what the schedule
// needs.
#include "interpreter/slots.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

// Bytes alive after every instruction, beside what the caller holds.
struct Watch : InstructionObserver {
  const HeapAllocator* heap;
  const State* state;
  std::vector<size_t> bytes;
  void before(size_t, size_t) override {}
  void after(size_t, size_t) override { bytes.push_back(heap->live_bytes()); }
};

// SPEC I4
TEST(Memory, AChainNeedsTwoValuesAtATime) {
  const int64_t n = 1 << 20, bytes = n * 8;
  std::string text = "graph g {\n  stage 0 (%x: f64[N]) {\n    %v0 = sin(%x)\n";
  for (int i = 1; i < 40; ++i) text += fmt::format("    %v{} = sin(%v{})\n", i, i - 1);
  text += "    return y = %v39\n  }\n}\n";
  Counted counted;
  State state(compile(text), counted.context);
  Tensor x = Tensor::zeros(DType::f64, Sizes{n});
  run(state, {x});
  // Two slots for the running values, one fresh tensor for the result.
  EXPECT_LE(counted.heap->peak_bytes(), static_cast<size_t>(3 * bytes + 4096));
  EXPECT_GE(counted.heap->peak_bytes(), static_cast<size_t>(2 * bytes));
}

// SPEC I4
TEST(Memory, HeldValuesGoAtTheirLastUse) {
  // Stage 1 uses h0 .. h9 in turn; each dies there, and the results replace nothing.
  std::string text = "graph g {\n  stage 0 (%x: f64[N]) {\n";
  for (int i = 0; i < 10; ++i) text += fmt::format("    %h{} = mul(%x, {}.0)\n", i, i + 1);
  text += "    return\n  }\n  stage 1 () {\n    %s0 = sum(%h0)\n";
  for (int i = 1; i < 10; ++i)
    text += fmt::format("    %t{0} = sum(%h{0})\n    %s{0} = add(%s{1}, %t{0})\n", i, i - 1);
  text += "    return y = %s9\n  }\n}\n";
  const int64_t n = 1 << 16;
  Counted counted;
  State state(compile(text), counted.context);
  run(state, {Tensor::zeros(DType::f64, Sizes{n})});
  EXPECT_EQ(state.held_registers(), 10u);
  EXPECT_EQ(state.held_bytes(), static_cast<size_t>(10 * n * 8));
  Watch watch;
  watch.heap = counted.heap.get();
  run(state, {}, {.observer = &watch});
  size_t sums = 0;
  for (size_t i = 1; i < watch.bytes.size(); ++i) {
    EXPECT_LE(watch.bytes[i], watch.bytes[i - 1] + 64);  // the result is a few bytes
    sums += watch.bytes[i - 1] - watch.bytes[i] >= static_cast<size_t>(n * 8);
  }
  EXPECT_GE(sums, 8u);  // after each sum one of them is gone
  EXPECT_EQ(state.held_registers(), 0u);
}

// SPEC I4
TEST(Memory, AViewIsAUseOfItsBase) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[4, 3]) {
    %a = exp(%x)
    %t = transpose(%a) {dim0 = 0, dim1 = 1}
    %b = sin(%x)
    %c = cos(%b)
    %d = transpose(%c) {dim0 = 0, dim1 = 1}
    %e = add(%t, %d)
    return y = %e, view = %t
  }
}
)");
  State state(code);
  Tensor x = Tensor::from(DType::f64, Sizes{4, 3},
                          std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  auto out = run(state, {x});
  EXPECT_DOUBLE_EQ(out[0].item(1), std::exp(4.0) + std::cos(std::sin(4.0)));
  EXPECT_DOUBLE_EQ(out[1].item(1), std::exp(4.0));
}

TEST(Slots, AreReusedJoinedAndNeverOverlap) {
  interpreter::SlotAllocator slots;
  std::mt19937 random(7);
  std::map<int64_t, int64_t> live;
  for (int round = 0; round < 20000; ++round) {
    if (live.empty() || random() % 2) {
      int64_t bytes = static_cast<int64_t>(random() % 5000);
      int64_t at = slots.allocate(bytes);
      int64_t size = std::max(slots.rounded(bytes), slots.alignment);
      EXPECT_EQ(at % slots.alignment, 0);
      auto next = live.lower_bound(at);
      if (next != live.end()) {
        ASSERT_LE(at + size, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, at);
      }
      live.emplace(at, size);
    } else {
      auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
      slots.release(it->first, it->second);
      live.erase(it);
    }
  }
  while (!live.empty()) {
    slots.release(live.begin()->first, live.begin()->second);
    live.erase(live.begin());
  }
  EXPECT_EQ(slots.allocate(slots.end()), 0);  // all holes have become one
}

// A steady state: the same sizes again make no plan, and the buffer is there.
TEST(Memory, RestartedStatesReuseTheirBuffer) {
  Counted counted;
  State state(compile(R"(
graph g {
  stage 0 (%x: f64[8]) {
    %a = sin(%x)
    %b = cos(%a)
    %y = sum(%b)
    return %y
  }
}
)"),
              counted.context);
  Tensor x = Tensor::zeros(DType::f64, Sizes{8});
  run(state, {x});
  size_t calls = counted.heap->calls();
  for (int i = 0; i < 10; ++i) {
    state.restart();
    run(state, {x});
  }
  EXPECT_EQ(counted.heap->calls() - calls, 10u);  // the result, each time
}

// The same with kernels: none asks for memory while it runs.
TEST(Memory, RestartedFusedStatesReuseTheirBuffer) {
  Counted counted;
  fusion::set_kernel_options(*counted.context, {.always = true});
  State state(compile(R"(
graph g {
  stage 0 (%x: f64[40, 3], %w: f64[3]) {
    %a = sin(%x)
    %b = mul(%a, %w)
    %s = sum(%b)
    %c = mul(%b, %s)
    %d = tanh(%c)
    %y = sum(%d)
    return %y
  }
}
)"),
              counted.context, {.fusion = fusion::FusionMode::first});
  std::vector<Tensor> in{Tensor::zeros(DType::f64, Sizes{40, 3}),
                         Tensor::zeros(DType::f64, Sizes{3})};
  run(state, in);
  size_t calls = counted.heap->calls();
  for (int i = 0; i < 10; ++i) {
    state.restart();
    run(state, in);
  }
  EXPECT_EQ(counted.heap->calls() - calls, 10u);  // the result, each time
}

}  // namespace
}  // namespace gradus
