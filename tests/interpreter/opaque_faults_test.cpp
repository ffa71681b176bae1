// What goes wrong in opaque functions, and what it leaves behind.
#include "gradus/engine.h"
#include "tests/interpreter/opaque_support.h"

namespace gradus::test {
namespace {

class OpaqueFaults : public OpaqueTest {};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const char* const three_throwers = R"(graph g {
  stage 0 (%x: f64[N]) {
    %a = cpp_op(%x) {name = "t.thrower"}
    %b = cpp_op(%a) {name = "t.thrower"}
    %c = cpp_op(%b) {name = "t.thrower"}
    return %c
  }
})";

TEST_F(OpaqueFaults, AMisspeltNameIsShownTheNearest) {
  try {
    compile(calling("t.sqare"));
    ADD_FAILURE() << "no Error was thrown";
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.what(),
                         "named 't.sqare' is registered; did you mean 't.square'? Otherwise "
                         "register it"))
        << e.what();
  }
}

// SPEC I14
TEST_F(OpaqueFaults, AFunctionThatThrowsPoisonsTheStateAlone) {
  auto code = compile(three_throwers, 1);
  size_t nodes = autograd::living_nodes();
  for (Fault kind : {Fault::error, Fault::runtime_error, Fault::number})
    for (int at : {0, 1, 2}) {
      Counted memory;
      {
        fault = kind;
        State state(code, memory.context);
        State clone = state.clone();
        until_throw = at;
        EXPECT_ANY_THROW(run(state, {f64({2})}));
        EXPECT_TRUE(state.poisoned());
        EXPECT_EQ(state.held_registers(), 0u);
        EXPECT_EQ(autograd::living_nodes(), nodes);
        until_throw = 1 << 30;
        std::string error = error_of([&] { run(state, {f64({2})}); });
        EXPECT_TRUE(contains(error, "cpp_op 't.thrower'")) << error;
        EXPECT_TRUE(contains(error, fmt::format("test.ir:{}:10", 3 + at))) << error;
        EXPECT_TRUE(contains(error, kind == Fault::error           ? "it had enough"
                                    : kind == Fault::runtime_error ? "out of luck"
                                                                   : "not a std::exception"))
            << error;
        EXPECT_DOUBLE_EQ(run(clone, {f64({2})})[0].item(), 256);
        EXPECT_DOUBLE_EQ(run(clone, {f64({1})})[0].item(), 1024);
      }
      EXPECT_EQ(memory.heap->live_bytes(), 0u);
    }
  EXPECT_EQ(autograd::living_nodes(), nodes);
}

// SPEC I13 I14
TEST_F(OpaqueFaults, ABackwardThatThrowsLeavesTheHandleWhole) {
  size_t nodes = autograd::living_nodes();
  {
    State state(compile(calling("t.backfires", "%a"), 2));
    run(state, {f64({0})});
    for (int stage : {1, 2}) {
      State failing = state.clone(), other = state.clone();
      if (stage == 2) run(failing, {f64({1})});
      until_backfire = 0;
      EXPECT_THROW(
          run(failing, std::vector<Tensor>(failing.code()->inputs(failing.next_stage()), f64({1}))),
          std::exception);
      until_backfire = -1;
      EXPECT_EQ(failing.held_registers(), 0u);
      std::string error = error_of([&] { run(failing, {f64({1})}); });
      EXPECT_TRUE(contains(error, "eval of 't.backfires'")) << error;
      EXPECT_TRUE(contains(error, "it backfired")) << error;
      EXPECT_TRUE(contains(error, "test.ir:4:10")) << error;
      EXPECT_DOUBLE_EQ(run(other, {f64({1})})[0].item(), 2);  // of exp(x)^2 at 0
      EXPECT_DOUBLE_EQ(run(other, {f64({1})})[0].item(), 4);
    }
  }
  EXPECT_EQ(autograd::living_nodes(), nodes);
}

TEST_F(OpaqueFaults, TheErrorOfAFunctionNamesItAndItsLine) {
  until_throw = 0;
  State state(compile(calling("t.thrower", "%a")));
  std::string error = error_of([&] { run(state, {f64({2})}); });
  EXPECT_TRUE(contains(error, "test.ir:4:10: error: cpp_op 't.thrower': it had enough")) << error;
}

TEST_F(OpaqueFaults, ResultsAreHeldAgainstTheirTypes) {
  auto error = [](const char* function) {
    State state(compile(calling(function, "%a")));
    std::string e = error_of([&] { run(state, {f64({2, 3})}); });
    EXPECT_TRUE(state.poisoned());
    return e;
  };
  EXPECT_TRUE(
      contains(error("t.two_for_one"), "'t.two_for_one': it gave 2 results, it must give 1"));
  EXPECT_TRUE(contains(error("t.undefined"), "result 0 is undefined, it must be f64[N]"));
  EXPECT_TRUE(contains(error("t.scalar_for_all"),
                       "'t.scalar_for_all': result 0 is f64[], it must be f64[N] (f64[2])"));
  EXPECT_TRUE(contains(error("t.f32_for_f64"), "result 0 is f32[2], it must be f64[N] (f64[2])"));
}

// SPEC I19
TEST_F(OpaqueFaults, AWrittenOperandIsNoticed) {
  State state(compile(calling("t.writes", "%a")));
  std::string error = error_of([&] { run(state, {f64({2})}); });
  EXPECT_TRUE(contains(error, "'%a' was changed in place by an opaque function")) << error;
  EXPECT_TRUE(state.poisoned());
}

// SPEC I19
TEST_F(OpaqueFaults, AnInputThatOnlyAFunctionReadsLaterIsWatched) {
  auto code = compile(R"(graph g {
  stage 0 (%x: f64[N]) {
    return
  }
  stage 1 () {
    %y = cpp_op(%x) {name = "t.square"}
    return %y
  }
})");
  Tensor x = f64({2});
  State state(code), copying(code);
  run(state, {x});
  run(copying, {x}, {.copy_inputs = true});
  *x.mutable_data_as<double>() = 5;
  std::string error = error_of([&] { run(state, {}); });
  EXPECT_TRUE(contains(error, "'%x' of stage 0 was changed in place")) << error;
  EXPECT_FALSE(state.poisoned());
  EXPECT_DOUBLE_EQ(run(copying, {})[0].item(), 4);
}

// SPEC I3
TEST_F(OpaqueFaults, AFunctionCannotRunItsOwnState) {
  static State* running = nullptr;
  static const bool once = [] {
    define("t.reenters", 1, elementwise(1), [](std::span<const Variable> x) {
      run(*running, {x[0].data()});
      return Variables{x[0]};
    });
    return true;
  }();
  ASSERT_TRUE(once);
  State state(compile(calling("t.reenters", "%a")));
  running = &state;
  std::string error = error_of([&] { run(state, {f64({2})}); });
  EXPECT_TRUE(contains(error, "running already")) << error;
  EXPECT_TRUE(contains(error, "t.reenters")) << error;
}

// SPEC I18
TEST_F(OpaqueFaults, ACancelledRunStopsBeforeAFunction) {
  CancelToken token;
  token.cancel();
  State state(compile(three_throwers));
  std::string error = error_of([&] { run(state, {f64({2})}, {.cancel = &token}); });
  EXPECT_TRUE(contains(error, "was cancelled in stage 0, before instruction 0 of 3")) << error;
}

}  // namespace
}  // namespace gradus::test
