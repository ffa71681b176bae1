#include "tests/corpus/faults.h"

#include <algorithm>
#include <stdexcept>

#include "fusion/kernels.h"
#include "tests/corpus/fused.h"

namespace gradus::corpus {

namespace {

struct Injected : std::runtime_error {
  Injected() : std::runtime_error("injected") {}
};

// Where an instruction begins or ends, in a stage or in a step.
struct Moment {
  size_t stage = 0, instruction = 0;
  const ir::Graph* body = nullptr;  // null: of the stage
  int64_t step = 0;
  bool after = false;

  std::string text() const {
    std::string s = fmt::format("{} instruction {}", after ? "after" : "before", instruction);
    return body ? fmt::format("{} of step {} of '{}'", s, step, body->name) : s;
  }
};

// Calls `reach` at each moment of a run, with how many came before.
class Moments final : public InstructionObserver {
 public:
  explicit Moments(std::function<void(size_t, const Moment&)> reach) : reach_(std::move(reach)) {}
  void before(size_t stage, size_t i) override { tell({stage, i, nullptr, 0, false}); }
  void after(size_t stage, size_t i) override { tell({stage, i, nullptr, 0, true}); }
  void before_in_step(const StepPoint& at) override {
    tell({0, at.instruction, &at.body.graph(), at.step, false});
  }
  void after_in_step(const StepPoint& at) override {
    tell({0, at.instruction, &at.body.graph(), at.step, true});
  }

 private:
  void tell(const Moment& m) { reach_(count_++, m); }
  std::function<void(size_t, const Moment&)> reach_;
  size_t count_ = 0;
};

// All moments of a run of the state's next stage, which nest as calls do.
std::vector<Moment> moments_of(const Subject& s, const State& before) {
  std::vector<Moment> seen;
  std::vector<Moment> open;
  Moments all([&](size_t, const Moment& m) {
    seen.push_back(m);
    if (!m.after) return open.push_back(m);
    ASSERT_FALSE(open.empty());
    EXPECT_EQ(m.instruction, open.back().instruction);
    EXPECT_EQ(m.body, open.back().body);
    EXPECT_EQ(m.step, open.back().step);
    open.pop_back();
  });
  State state = before.clone();
  state.run(s.inputs[before.next_stage()], {.observer = &all});
  EXPECT_TRUE(open.empty());
  return seen;
}

// All moments of a straight line. Of a stage with loops, which has one for each instruction of each
// step, at most so many that are equally far from each other. Under a sanitizer, where a run takes
// some ten times as long, fewer, and of a straight line no more than a hundred.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t most_moments = 24, most_of_a_line = 100;
#else
constexpr size_t most_moments = 100, most_of_a_line = SIZE_MAX;
#endif

std::vector<size_t> chosen(const std::vector<Moment>& moments) {
  const bool loops = std::ranges::any_of(moments, [](const Moment& m) { return m.body; });
  const size_t count = moments.size(), most = loops ? most_moments : most_of_a_line;
  const size_t apart = std::max<size_t>(1, count / most + (count % most != 0));
  std::vector<size_t> numbers;
  for (size_t n = 0; n < count; n += apart) numbers.push_back(n);
  return numbers;
}

void expect_refused(const Subject& s, State& state, size_t stage) {
  EXPECT_TRUE(state.poisoned());
  EXPECT_EQ(state.held_registers(), 0u);
  EXPECT_EQ(state.held_bytes(), 0u);
  EXPECT_THROW(state.run(s.inputs[stage]), Error);
  EXPECT_TRUE(state.clone().poisoned());
  // It can begin again.
  state.restart();
  EXPECT_FALSE(state.poisoned());
  EXPECT_EQ(state.next_stage(), 0u);
}

void expect_results(const Subject& s, const State& before, const std::vector<Tensor>& expected) {
  State untouched = before.clone();
  const std::vector<Tensor> results = untouched.run(s.inputs[before.next_stage()]);
  for (size_t r = 0; r < results.size(); ++r) {
    ASSERT_EQ(results[r].defined(), expected[r].defined());
    EXPECT_TRUE(!results[r].defined() || bitwise_equal(results[r], expected[r]));
  }
}

// What a test does with the moments of a stage that the state runs next.
using AtMoments = std::function<void(const State& before, const std::vector<Moment>& moments,
                                     const std::vector<Tensor>& expected)>;

void for_each_stage(const Subject& s, FusionMode fusion, const HeapAllocator& memory,
                    const std::shared_ptr<Context>& context, const AtMoments& act) {
  const Results plain = run_unfused(s);
  State state(s.code, context, {.fusion = fusion});
  for (size_t stage = 0; stage < s.code->stages(); ++stage) {
    const State before = state.clone();
    const std::vector<Moment> moments = moments_of(s, before);
    const size_t live = memory.live_bytes();
    act(before, moments, plain[stage]);
    EXPECT_EQ(memory.live_bytes(), live);
    if (testing::Test::HasFailure()) return;
    state.run(s.inputs[stage]);
  }
}

void with_counted_memory(const Subject& s, FusionMode fusion, const AtMoments& act) {
  auto memory = std::make_shared<HeapAllocator>();
  ContextOptions options;
  options.workers = 1;
  options.allocator = memory;
  {
    auto context = std::make_shared<Context>(options);
    // Kernels are compiled once for all.
    context->replace_part<fusion::Kernels>(fusion::kernels_of(*fusing_context(1)));
    for_each_stage(s, fusion, *memory, context, act);
  }
  EXPECT_EQ(memory->live_bytes(), 0u);
  EXPECT_EQ(memory->live_blocks(), 0u);
}

void fail_everywhere(const Subject& s, FusionMode fusion) {
  with_counted_memory(s, fusion, [&](const State& before, const auto& moments, const auto& wanted) {
    for (const size_t n : chosen(moments)) {
      SCOPED_TRACE(fmt::format("stage {}, {}", before.next_stage(), moments[n].text()));
      Moments thrower([&](size_t at, const Moment&) {
        if (at == n) throw Injected();
      });
      State state = before.clone();
      EXPECT_THROW(state.run(s.inputs[before.next_stage()], {.observer = &thrower}), Injected);
      expect_refused(s, state, before.next_stage());
      expect_results(s, before, wanted);
      if (testing::Test::HasFailure()) return;
    }
  });
}

void cancel_everywhere(const Subject& s) {
  with_counted_memory(
      s, FusionMode::off, [&](const State& before, const auto& moments, const auto& wanted) {
        const size_t stage = before.next_stage();
        size_t last = moments.size();  // the last instruction to begin
        while (last > 0 && moments[last - 1].after) --last;
        for (const size_t n : chosen(moments)) {
          if (!moments[n].body) continue;
          SCOPED_TRACE(fmt::format("stage {}, {}", stage, moments[n].text()));
          CancelToken token;
          Moments canceller([&](size_t at, const Moment&) {
            if (at == n) token.cancel();
            EXPECT_TRUE(at <= n || moments[at].after) << moments[at].text();
          });
          State state = before.clone();
          std::string message;
          try {
            state.run(s.inputs[stage], {.cancel = &token, .observer = &canceller});
          } catch (const Error& e) {
            message = e.message();
          }
          EXPECT_TRUE(n + 1 >= last || !message.empty());
          if (!message.empty()) {
            EXPECT_NE(message.find("was cancelled in stage"), std::string::npos) << message;
            expect_refused(s, state, stage);
          }
          expect_results(s, before, wanted);
          if (testing::Test::HasFailure()) return;
        }
      });
}

bool has_loops(const Subject& s) {
  return std::ranges::any_of(s.graph.stages, [](const ir::Stage& stage) {
    return std::ranges::any_of(stage.nodes, [](const ir::Node& n) { return n.op->traits.loop; });
  });
}

}  // namespace

// SPEC I14
void failing_anywhere(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) fail_everywhere(s, FusionMode::off);
}

void failing_in_groups(const ir::Fixture& fixture) {
  if (!has_kernels()) GTEST_SKIP() << "no kernels here";
  for (const Subject& s : subjects(fixture)) fail_everywhere(s, FusionMode::first);
}

void cancelled_anywhere(const ir::Fixture& fixture) {
  size_t ran = 0;
  for (const Subject& s : subjects(fixture)) {
    if (!has_loops(s)) continue;
    ++ran;
    cancel_everywhere(s);
  }
  if (ran == 0) GTEST_SKIP() << "there are no loops";
}

}  // namespace gradus::corpus
