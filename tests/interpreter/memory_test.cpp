// Memory: registers are released right after their last use, and the buffer is what the schedule
// needs.
#include "interpreter/plan/slots.h"
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

// What lives at the same time lies apart, whichever way it is settled.
TEST(Slots, OfAPlanLieApart) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    interpreter::SlotPlan slots;
    interpreter::SlotAllocator online;
    struct Lived {
      int64_t address, bytes, at;  // at: of the allocator, as they come
      int from, to;
    };
    std::vector<Lived> all;
    std::vector<size_t> live;
    int64_t now = 0, most = 0;
    const int calls = 4 + static_cast<int>(random() % 200);
    for (int call = 0; call < calls; ++call) {
      if (live.empty() || random() % 2) {
        // Of a few sizes, large ones among them.
        const int64_t bytes = (int64_t{1} << random() % 20) - static_cast<int64_t>(random() % 2);
        all.push_back({slots.allocate(bytes), bytes, online.allocate(bytes), call, calls});
        live.push_back(all.size() - 1);
        now += std::max<int64_t>(64, (bytes + 63) / 64 * 64);
        most = std::max(most, now);
      } else {
        const size_t n = random() % live.size();
        Lived& l = all[live[n]];
        slots.release(l.address);
        online.release(l.at, l.bytes);
        l.to = call;
        now -= std::max<int64_t>(64, (l.bytes + 63) / 64 * 64);
        live.erase(live.begin() + static_cast<long>(n));
      }
    }
    slots.settle();
    EXPECT_EQ(slots.peak(), most);
    EXPECT_GE(slots.end(), most);
    EXPECT_LE(slots.end(), online.end());
    for (const Lived& a : all) {
      const int64_t at = slots.offset(a.address);
      EXPECT_EQ(at % 64, 0);
      EXPECT_LE(at + a.bytes, slots.end());
      EXPECT_EQ(slots.offset(a.address + a.bytes / 2), at + a.bytes / 2);
      for (const Lived& b : all) {
        if (&a == &b || a.to <= b.from || b.to <= a.from) continue;
        const int64_t other = slots.offset(b.address);
        ASSERT_TRUE(at + a.bytes <= other || other + b.bytes <= at) << "round " << round;
      }
    }
  }
}

// A hole that the next value does not fit into is what comes of settling in order.
TEST(Slots, OfAPlanLeaveNoHoles) {
  const int64_t unit = 1 << 20;
  interpreter::SlotPlan slots;
  const int64_t a = slots.allocate(unit), b = slots.allocate(unit);
  slots.release(a);
  const int64_t c = slots.allocate(2 * unit);  // not into a's place
  slots.release(b);
  const int64_t d = slots.allocate(unit);
  slots.release(c);
  slots.release(d);
  slots.settle();
  EXPECT_EQ(slots.peak(), 3 * unit);
  EXPECT_EQ(slots.end(), 3 * unit);
}

// A kernel's result has the place of what it reads last, and no bit of the others changes.
TEST(Memory, AKernelsResultLiesWhereAnOperandDies) {
  const auto code = compile(R"(
graph g {
  stage 0 (%x: f64[N], %i: i64[N]) {
    %a = cumsum(%x) {dim = 0}
    %b = cumsum(%a) {dim = 0}
    %c = mul(%a, %b)
    %d = sub(%c, %x)
    %e = cumsum(%d) {dim = 0}
    %r = flip(%e) {dims = [0]}
    %f = mul(%e, %r)
    %g = add(%f, %d)
    %y = cumsum(%g) {dim = 0}
    return %y, %b
  }
}
)");
  auto context = std::make_shared<Context>();
  set_kernel_options(*context, {.always = true});
  State fused(code, context, {.fusion = FusionMode::first});
  State plain(code, Context::default_context(), {.fusion = FusionMode::off});
  const int64_t n = 1 << 14;
  const auto memory = fused.prepare({{"N", n}});
  if (fused.groups().empty()) GTEST_SKIP() << "no kernels here";
  Tensor x = Tensor::zeros(DType::f64, Sizes{n});
  for (int64_t i = 0; i < n; ++i)
    x.mutable_data_as<double>()[i] = 0.25 * static_cast<double>(i % 7);
  const std::vector<Tensor> in{x, Tensor::zeros(DType::i64, Sizes{n})};
  const auto results = run(fused, in), expected = run(plain, in);
  for (size_t r = 0; r < expected.size(); ++r)
    EXPECT_TRUE(bitwise_equal(results[r], expected[r])) << r;
  // Of d, e and its reverse, each kernel's result lies in one.
  EXPECT_LE(memory[0].buffer, static_cast<size_t>(3 * n * 8));
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
  set_kernel_options(*counted.context, {.always = true});
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
              counted.context, {.fusion = FusionMode::first});
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
