// Runs that are bound to memory. The corpus runs all its programs so (tests/corpus/disguises.cpp).
#include <chrono>

#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

constexpr const char* waves = R"(
graph waves {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %t = tanh(%a)
    %y = sum(%t)
    return %y, %t
  }
}
)";

BoundRun prepared(const std::shared_ptr<const Code>& code, std::vector<Tensor> inputs,
                  std::vector<Tensor> results = {}) {
  State state(code, Context::default_context(), {.fusion = FusionMode::first});
  state.prepare({{"N", 4}});
  return BoundRun(std::move(state), std::move(inputs), std::move(results));
}

std::vector<Tensor> two_inputs() {
  std::vector<Tensor> inputs;
  for (double start : {0.25, -1.0})
    inputs.push_back(Tensor::from(DType::f64, Sizes{4},
                                  std::vector<double>{start, start + 1, start + 2, start + 3}));
  return inputs;
}

TEST(BoundRun, ReadsAndWritesWhereTensorsLie) {
  auto code = compile(waves);
  std::vector<Tensor> inputs = two_inputs();
  Tensor t = Tensor::zeros(DType::f64, Sizes{4});
  BoundRun run = prepared(code, inputs, {Tensor(), t});
  EXPECT_EQ(run.inputs()[0].data(), inputs[0].data());
  EXPECT_EQ(run.results()[1].data(), t.data());
  const std::byte* y = run.results()[0].data();
  for (int round = 0; round < 5; ++round) {
    inputs[0].mutable_data_as<double>()[round % 4] += 0.5;
    const uint64_t version = t.version();
    run.run();
    EXPECT_NE(t.version(), version);  // who reads it elsewhere notices
    State plain(code);
    const auto expected = test::run(plain, inputs);
    EXPECT_EQ(run.results()[0].data(), y);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(bitwise_equal(run.results()[i], expected[i])) << i;
  }
  BoundRun moved = std::move(run);
  inputs[1].mutable_data_as<double>()[0] = 7;
  moved.run();
  State plain(code);
  EXPECT_TRUE(bitwise_equal(moved.results()[1], test::run(plain, inputs)[1]));
}

// Nothing but the kernels: no heap call, and far less time than a run of a state takes.
TEST(BoundRun, TakesLittleMoreThanItsKernels) {
  auto code = compile(waves);
  std::vector<Tensor> inputs = two_inputs(), results(2);
  BoundRun bound = prepared(code, inputs);
  State state(code, Context::default_context(), {.fusion = FusionMode::first});
  state.prepare({{"N", 4}});
  state.run_into(inputs, results);
  auto fastest = [](auto f) {
    double best = 1e9;
    for (int tries = 0; tries < 20; ++tries) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 1000; ++i) f();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  const double by_state = fastest([&] {
    state.restart();
    state.run_into(inputs, results);
  });
  EXPECT_LT(fastest([&] { bound.run(); }), 0.7 * by_state);
}

TEST(BoundRun, GoesOnAfterAnError) {
  auto code = compile(R"(
graph picks {
  stage 0 (%x: f64[4], %i: i64[1]) {
    %y = index_select(%x, %i) {dim = 0}
    return %y
  }
}
)");
  const Tensor x = two_inputs()[0];
  Tensor i = Tensor::from(DType::i64, Sizes{1}, std::vector<double>{2});
  BoundRun run(State(code), {x, i});
  for (int round = 0; round < 3; ++round) {
    *i.mutable_data_as<int64_t>() = 9;
    EXPECT_THROW(run.run(), Error);
    EXPECT_THROW(run.run(), Error);
    *i.mutable_data_as<int64_t>() = round;
    run.run();
    EXPECT_EQ(run.results()[0].to_doubles()[0], x.to_doubles()[static_cast<size_t>(round)]);
    run.run();
  }
}

// A result that is a view of all of a value is made in its buffer; one of a part is copied there.
TEST(BoundRun, WritesViewsOfWholeValues) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[4]) {
    %e = exp(%x)
    %c = contiguous(%e)
    %s = slice(%e) {dim = 0, start = 1, end = 3}
    %t = tanh(%x)
    %d = contiguous(%t)
    return %c, %s, %t, %d
  }
}
)");
  Tensor x = two_inputs()[0];
  BoundRun run = BoundRun(State(code), {x});
  for (int round = 0; round < 3; ++round) {
    x.mutable_data_as<double>()[1] = round;
    run.run();
    State plain(code);
    const auto expected = test::run(plain, {x});
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(bitwise_equal(run.results()[i], expected[i])) << round << " " << i;
  }
}

// Results that are no memory of their own: a view, an input, a value of the program, one twice.
TEST(BoundRun, WritesResultsThatLieElsewhere) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[2, 3]) {
    %e = exp(%x)
    %v = transpose(%e) {dim0 = 0, dim1 = 1}
    %c = full() {shape = [3], value = 2.5, dtype = f64}
    return %v, %x, %c, %e, again = %e
  }
}
)");
  Tensor x = Tensor::from(DType::f64, Sizes{2, 3}, std::vector<double>{0, 1, 2, 3, 4, 5});
  BoundRun run(State(code), {x});
  for (const Tensor& t : run.results()) EXPECT_NE(t.data(), x.data());
  for (int round = 0; round < 3; ++round) {
    x.mutable_data_as<double>()[1] = round;
    run.run();
    State plain(code);
    const auto expected = test::run(plain, {x});
    for (size_t i = 0; i < 5; ++i)
      EXPECT_TRUE(bitwise_equal(run.results()[i], expected[i])) << round << " " << i;
  }
}

TEST(BoundRun, RefusesOtherPrograms) {
  const std::vector<Tensor> inputs = two_inputs();
  auto expect_refused = [](State state, std::vector<Tensor> in, std::vector<Tensor> results,
                           std::string_view why) {
    const std::string error =
        error_of([&] { BoundRun(std::move(state), std::move(in), std::move(results)); });
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  expect_refused(State(compile(waves, 1)), inputs, {},
                 "a bound run takes a program of one stage; 'waves' has 2");
  auto code = compile(waves);
  State ran(code);
  ran.run(inputs);
  expect_refused(std::move(ran), inputs, {}, "a state that has not run");
  expect_refused(State(code), {inputs[0]}, {}, "takes 2 inputs");
  expect_refused(State(code), inputs, {Tensor()}, "gives 2 results, 1 entries");
  expect_refused(State(code), inputs, {Tensor(), inputs[0]}, "lies in the memory of input");
}

}  // namespace
}  // namespace gradus
