// States: stages in order, clones, errors, poison, cancellation.
#include <thread>

#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

const char* const chain = R"(
graph chain {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %b = tanh(%a)
    %y = sum(%b)
    return %y
  }
}
)";

// SPEC I1
TEST(State, ManyOfOneCodeFromManyThreads) {
  auto code = compile(chain, 1);
  State reference(code);
  run(reference, {f64({1, 2}), f64({0.5, -0.25})});
  auto want = run(reference, {scalar(1.5)});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        State state(code);
        // Other sizes in between make other plans of the same code.
        if ((round + t) % 3 == 0) {
          State other(code);
          run(other, {f64({1, 2, 3}), f64({4, 5, 6})});
        }
        run(state, {f64({1, 2}), f64({0.5, -0.25})});
        auto got = run(state, {scalar(1.5)});
        wrong += !bitwise_equal(got[0], want[0]) || !bitwise_equal(got[1], want[1]);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// SPEC I2
TEST(Code, EveryUsedValueHasOneRegister) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[2], %unused: f64[2]) {
    %a = mul(%x, %x)
    %v, %i = max_dim(%a) {dim = 0}
    return y = %v, z = %a
  }
}
)");
  EXPECT_EQ(code->registers(), 3u);  // x, a, v; neither the unused input nor the unused indices
  const StageCode& stage = code->stage(0);
  EXPECT_EQ(stage.inputs[1], no_register);
  EXPECT_EQ(stage.results.back(), no_register);
  EXPECT_EQ(stage.operands.size(), stage.frees.size());
  // x stands twice in one operand list and is released once.
  EXPECT_EQ(stage.frees[0] + stage.frees[1], 1);
}

// SPEC I3
TEST(State, RunsEmptyStages) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[2]) {
    return
  }
  stage 1 () {
    return
  }
  stage 2 (%w: f64[2]) {
    %y = mul(%x, %w)
    return %y
  }
  stage 3 () {
    return again = %x
  }
}
)");
  State state(code);
  EXPECT_TRUE(run(state, {f64({1, 2})}).empty());
  EXPECT_EQ(state.held_registers(), 1u);
  EXPECT_TRUE(run(state, {}).empty());
  EXPECT_EQ(run(state, {f64({3, 4})})[0].to_doubles(), (std::vector<double>{3, 8}));
  EXPECT_EQ(run(state, {})[0].to_doubles(), (std::vector<double>{1, 2}));
  EXPECT_TRUE(state.finished());
  EXPECT_EQ(state.held_registers(), 0u);
}

// SPEC I3
TEST(State, RefusesToRunInsideItsOwnRun) {
  State state(compile(chain));
  struct Reenter : InstructionObserver {
    State* state;
    std::string message;
    void before(size_t, size_t) override {
      message = error_of([&] { run(*state, {f64({1}), f64({1})}); });
    }
    void after(size_t, size_t) override {}
  } observer;
  observer.state = &state;
  auto out = run(state, {f64({1, 2}), f64({0, 0})}, {.observer = &observer});
  EXPECT_NE(observer.message.find("running already"), std::string::npos) << observer.message;
  EXPECT_EQ(out[0].item(), 0);
}

// SPEC I5
TEST(State, NeverHoldsAnUnusedInput) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[1000], %unused: f64[1000]) {
    %y = sum(%x)
    return %y
  }
  stage 1 () {
    return
  }
}
)");
  Tensor x = Tensor::zeros(DType::f64, Sizes{1000}),
         unused = Tensor::zeros(DType::f64, Sizes{1000});
  State state(code);
  run(state, {x, unused});
  EXPECT_EQ(x.storage()->use_count(), 1u);
  EXPECT_EQ(unused.storage()->use_count(), 1u);
}

// SPEC I6
TEST(State, SaysWhatInputsItExpected) {
  auto code = compile(chain, 1);
  State state(code);
  auto message = [&](std::vector<Tensor> inputs) { return error_of([&] { run(state, inputs); }); };
  EXPECT_EQ(message({f64({1})}), "stage 0 takes 2 inputs (x: f64[N], w: f64[N]), and 1 is given");
  EXPECT_EQ(message({f64({1}), Tensor::scalar(DType::f64, 1)}),
            "stage 0: input 'w' must be f64[N] (rank 1), it is f64[]");
  EXPECT_EQ(message({f64({1}), f64({1, 2})}),
            "stage 0: input 'w' must be f64[N]: dimension 0 must be N = 1, it is 2 (it is f64[2])");
  EXPECT_EQ(message({f64({1}), f64({1}).to(DType::f32)}),
            "stage 0: input 'w' must be f64[N], it is f32[1]; convert it to f64");
  EXPECT_NE(message({f64({1}), Tensor()}).find("is undefined"), std::string::npos);
  // A refused run leaves the state as it was.
  EXPECT_FALSE(state.poisoned());
  EXPECT_EQ(state.next_stage(), 0u);
  run(state, {f64({1}), f64({2})});
  run(state, {scalar(1)});
  EXPECT_NE(message({}).find("all stages of 'chain' have run (2 in all)"), std::string::npos);
}

// SPEC I7
TEST(State, ClonesAreIndependent) {
  auto code = compile(chain, 2);
  State state(code);
  run(state, {f64({1, 2}), f64({0.5, -0.25})});
  State kept = state.clone();
  auto first = run(state, {scalar(1)});
  run(state, {f64({1, 0}), f64({0, 1})});
  auto second = run(kept, {scalar(2)});
  for (size_t i = 0; i < 2; ++i)
    for (int64_t k = 0; k < 2; ++k) EXPECT_EQ(2 * first[i].item(k), second[i].item(k));
  // Writing to one's result is not seen by the other.
  State again = kept.clone();
  EXPECT_EQ(again.next_stage(), 2u);
  first[0].mutable_data_as<double>()[0] = 1e9;
  auto third = run(kept, {f64({1, 0}), f64({0, 1})});
  auto fourth = run(again, {f64({1, 0}), f64({0, 1})});
  for (size_t i = 0; i < third.size(); ++i) EXPECT_TRUE(bitwise_equal(third[i], fourth[i]));
}

// SPEC I8
TEST(State, TellsInputTypes) {
  State state(compile(chain, 1));
  EXPECT_EQ(to_string(state.input_type(1)), "f64[N]");
  EXPECT_EQ(state.input_name(1), "w");
  run(state, {f64({1}), f64({1})});
  EXPECT_EQ(to_string(state.input_type(0)), "f64[]");
  EXPECT_EQ(state.input_name(0), "ct1_y");
  EXPECT_NE(error_of([&] { state.input_type(1); }).find("stage 1 takes 1 inputs"),
            std::string::npos);
}

// Fails at the n-th instruction it sees.
struct FailAt : InstructionObserver {
  explicit FailAt(int n) : left(n) {}
  int left;
  void before(size_t, size_t) override {
    if (left-- == 0) throw std::runtime_error("injected");
  }
  void after(size_t, size_t) override {}
};

// SPEC I14
TEST(State, AThrowingInstructionPoisonsAndReleases) {
  Counted counted;
  auto code = compile(chain, 2);
  Tensor x = f64({1, 2}), w = f64({0.5, 3}), ct = scalar(1);
  State reference(code, counted.context);
  run(reference, {x, w});
  auto want = run(reference, {ct});
  reference.restart();
  want = {want[0].copy(), want[1].copy()};
  for (int n = 0;; ++n) {
    State state(code, counted.context);
    run(state, {x, w});
    State before = state.clone();
    size_t held = counted.heap->live_bytes();
    FailAt fail(n);
    bool failed = false;
    try {
      run(state, {ct}, {.observer = &fail});
    } catch (const std::runtime_error&) {
      failed = true;
    }
    if (!failed) {
      EXPECT_GT(n, 2);
      break;
    }
    EXPECT_TRUE(state.poisoned());
    EXPECT_EQ(state.held_registers(), 0u);
    EXPECT_LE(counted.heap->live_bytes(), held);
    std::string message = error_of([&] { run(state, {ct}); });
    EXPECT_NE(message.find("an earlier run failed: injected"), std::string::npos) << message;
    auto got = run(before, {ct});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(bitwise_equal(got[i], want[i]));
    state.restart();
    EXPECT_FALSE(state.poisoned());
    EXPECT_NO_THROW(run(state, {x, w}));
  }
}

// SPEC I14, I16
TEST(State, KernelErrorsCarryTheProgramsLine) {
  State state(compile(R"(
graph g {
  stage 0 (%x: f64[3], %i: i64[2]) {
    %y = index_select(%x, %i) {dim = 0}
    return %y
  }
}
)"));
  Tensor bad = Tensor::from(DType::i64, Sizes{2}, std::vector<double>{0, 7});
  std::string message = error_of([&] { run(state, {f64({1, 2, 3}), bad}); });
  EXPECT_EQ(message.substr(0, 18), "test.ir:4:10: erro") << message;
  EXPECT_TRUE(state.poisoned());
}

// SPEC I16
TEST(Code, InstructionsKnowTheirLines) {
  auto code = compile(chain, 1);
  const StageCode& stage = code->stage(0);
  ASSERT_EQ(stage.instructions.size(), 3u);
  EXPECT_EQ(stage.instructions[1].where.line, 5u);
  // Stage 1's instructions come from the lines that they differentiate.
  for (const Instruction& i : code->stage(1).instructions) EXPECT_TRUE(i.where.known());
  std::string text = disassemble(*code);
  EXPECT_NE(text.find("tanh("), std::string::npos);
  EXPECT_NE(text.find("@5:10"), std::string::npos) << text;
}

// SPEC I18
TEST(State, DeadlineAndCancellationEndARun) {
  auto code = compile(chain);
  CancelToken token;
  token.cancel();
  State state(code);
  std::string message = error_of([&] { run(state, {f64({1}), f64({1})}, {.cancel = &token}); });
  EXPECT_NE(message.find("cancelled in stage 0, before instruction 0 of 3"), std::string::npos)
      << message;
  EXPECT_TRUE(state.poisoned());
  EXPECT_EQ(state.held_registers(), 0u);
  State late(code);
  auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  message = error_of([&] { run(late, {f64({1}), f64({1})}, {.deadline = past}); });
  EXPECT_NE(message.find("passed its deadline in stage 0"), std::string::npos) << message;
  State fine(code);
  auto future = std::chrono::steady_clock::now() + std::chrono::hours(1);
  CancelToken quiet;
  EXPECT_NO_THROW(run(fine, {f64({1}), f64({1})}, {.deadline = future, .cancel = &quiet}));
  // Cancelled half way.
  struct CancelAfter : InstructionObserver {
    CancelToken* token;
    void before(size_t, size_t) override {}
    void after(size_t, size_t i) override {
      if (i == 1) token->cancel();
    }
  } observer;
  observer.token = &quiet;
  State half(code);
  message = error_of([&] {
    run(half, {f64({1}), f64({1})}, {.cancel = &quiet, .observer = &observer});
  });
  EXPECT_NE(message.find("before instruction 2"), std::string::npos) << message;
}

// SPEC I19
TEST(State, NoticesHeldValuesThatWereWritten) {
  auto code = compile(chain, 1);
  Tensor x = f64({1, 2}), w = f64({3, 4});
  State state(code);
  run(state, {x, w});
  w.mutable_data_as<double>()[0] = 9;
  std::string message = error_of([&] { run(state, {scalar(1)}); });
  EXPECT_NE(message.find("'%w' of stage 0 was changed in place"), std::string::npos) << message;
  EXPECT_FALSE(state.poisoned());

  // Through a view as well.
  State viewed(code);
  run(viewed, {x, w});
  Tensor view = x.view(Layout(DType::f64, Sizes{1}), 1);
  view.mutable_data_as<double>()[0] = 7;
  EXPECT_NE(error_of([&] { run(viewed, {scalar(1)}); }).find("'%x' of stage 0"), std::string::npos);

  // Copied inputs cannot be written behind the state's back.
  State copied(code);
  run(copied, {x, w}, {.copy_inputs = true});
  State reference(code);
  run(reference, {x.copy(), w.copy()});
  x.mutable_data_as<double>()[0] = -3;
  auto got = run(copied, {scalar(1)}), want = run(reference, {scalar(1)});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bitwise_equal(got[i], want[i]));
}

// SPEC P7
TEST(State, ChecksEqualitiesThatTypesCannotProve) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[N], %y: f64[M], %z: f64[2*N + 1]) {
    %s = add(%x, %y)
    %u = sum(%s)
    return %u
  }
}
)");
  State state(code);
  Tensor z5 = f64({0, 0, 0, 0, 0});
  std::string message = error_of([&] { run(state, {f64({1, 2}), f64({1}), z5}); });
  EXPECT_NE(message.find("test.ir:4:10: error: sizes"), std::string::npos) << message;
  EXPECT_NE(message.find("N = 2"), std::string::npos) << message;
  EXPECT_NE(message.find("M = 1"), std::string::npos) << message;
  EXPECT_NE(error_of([&] {
              run(state, {f64({1, 2}), f64({1, 2}), f64({1})});
            }).find("must be 2*N + 1 = 5, it is 1"),
            std::string::npos);
  EXPECT_EQ(run(state, {f64({1, 2}), f64({3, 4}), z5})[0].item(), 10);
  EXPECT_EQ(state.dimension("N"), 2);
}

// SPEC P7
TEST(State, SolvesSizesFromExpressions) {
  auto code = compile(R"(
graph g {
  stage 0 (%z: f64[2*N + 1]) {
    %f = full() {shape = [N], value = 3.0, dtype = f64}
    return %f
  }
}
)");
  State state(code);
  EXPECT_EQ(run(state, {f64({0, 0, 0, 0, 0})})[0].to_doubles(), (std::vector<double>{3, 3}));
  State other(code);
  EXPECT_NE(error_of([&] {
              run(other, {f64({0, 0})});
            }).find("which is not 2*N + 1 for any N"),
            std::string::npos);
}

// SPEC D2
TEST(State, AbsentCotangents) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[2]) {
    %a = sin(%x)
    %b = exp(%x)
    return a = %a, b = %b, c = %x
  }
}
)",
                      1);
  State state(code);
  run(state, {f64({0.5, 1})});
  State none = state.clone(), one = state.clone(), zeros = state.clone();
  Tensor ct = f64({1, 2}), zero = f64({0, 0});
  auto want = run(state, {ct, zero, zero});
  auto got = run(one, {ct, Tensor(), Tensor()});
  EXPECT_TRUE(bitwise_equal(want[0], got[0]));
  // sin's rule multiplies an absent cotangent: zeros. Only a sum of absent ones stays absent.
  auto absent = run(none, {Tensor(), Tensor(), Tensor()});
  ASSERT_TRUE(absent[0].defined());
  EXPECT_EQ(absent[0].to_doubles(), (std::vector<double>{0, 0}));

  auto identity = compile(R"(
graph g {
  stage 0 (%x: f64[2], %y: f64[2]) {
    %z = add(%x, %y)
    return a = %x, b = %z
  }
}
)",
                          1);
  State through(identity);
  run(through, {ct, ct});
  State both = through.clone();
  auto handed_on = run(through, {Tensor(), Tensor()});
  EXPECT_FALSE(handed_on[0].defined());
  EXPECT_FALSE(handed_on[1].defined());
  auto partly = run(both, {ct, Tensor()});
  EXPECT_TRUE(bitwise_equal(partly[0], ct));
  EXPECT_FALSE(partly[1].defined());
}

}  // namespace
}  // namespace gradus
