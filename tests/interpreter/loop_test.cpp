// Loops while they run: errors and limits name the step, the steady state allocates nothing, and
// code does not grow with the length.
#include <gtest/gtest.h>

#include "gradus/engine.h"
#include "gradus/inputs.h"
#include "tests/interpreter/support.h"

namespace gradus::test {
namespace {

const std::string cell = R"(
graph cell {
  stage 0 (%h: f64[H], %x: f64[H], %w: f64[H, H]) {
    %a = mv(%w, %h)
    %s = add(%a, %x)
    %n = tanh(%s)
    %y = sum(%n)
    return %n, %y
  }
}
)";

std::string recurrent(int64_t steps) {
  return cell + fmt::format(R"(
graph recurrent {{
  stage 0 (%h0: f64[3], %xs: f64[{}, 3], %w: f64[3, 3]) {{
    %h, %ys = scan(%h0, %xs, %w) {{body = "cell", carries = 1, sequences = 1}}
    %l = sum(%ys)
    return %l
  }}
}}
)",
                            steps);
}

std::vector<Tensor> inputs(int64_t steps) {
  std::vector<double> xs;
  for (int64_t i = 0; i < 3 * steps; ++i) xs.push_back(std::sin(1.3 * static_cast<double>(i)));
  return {f64({0.1, 0.2, -0.3}), Tensor::from(DType::f64, Sizes{steps, 3}, xs),
          f64({3, 3}, {0.5, -0.2, 0.1, 0.3, 0.4, -0.6, 0.7, 0.1, 0.2})};
}

TEST(Loops, CodeDoesNotGrowWithTheLength) {
  size_t instructions[2];
  int64_t buffers[2];
  const int64_t lengths[] = {10, 10000};
  for (int i = 0; i < 2; ++i) {
    auto code = compile(recurrent(lengths[i]), 2);
    instructions[i] = 0;
    for (size_t s = 0; s < code->stages(); ++s)
      instructions[i] += code->stage(s).instructions.size();
    State state(code);
    buffers[i] = static_cast<int64_t>(state.prepare({})[0].buffer);
  }
  EXPECT_EQ(instructions[0], instructions[1]);
  // The stack of ys alone, in places of 64 bytes.
  EXPECT_LE(std::abs(buffers[1] - buffers[0] - (lengths[1] - lengths[0]) * 8), 64);
}

// A matrix that every step multiplies by lies column by column for all of them.
TEST(Loops, LargeConstantsKeepTheBitsOfTheStepsWrittenOut) {
  for (const std::string dtype : {"f64", "f32"}) {
    std::string text = cell + R"(
graph recurrent {
  stage 0 (%h0: f64[72], %xs: f64[9, 72], %w: f64[72, 72]) {
    %h, %ys = scan(%h0, %xs, %w) {body = "cell", carries = 1, sequences = 1}
    return %h, %ys
  }
}
)";
    for (size_t at; dtype == "f32" && (at = text.find("f64")) != std::string::npos;)
      text.replace(at, 3, dtype);
    ir::Graph g = ir::differentiate(ir::parse(text).program(), {.order = 1});
    ir::Graph written_out = g;
    ir::unroll(written_out);
    State loop(Code::compile(g)), steps(Code::compile(written_out));
    const DType type = dtype == "f32" ? DType::f32 : DType::f64;
    auto values = [&](Sizes shape, double step) {
      size_t count = 1;
      for (int64_t n : shape) count *= static_cast<size_t>(n);
      std::vector<double> v(count);
      for (size_t i = 0; i < v.size(); ++i)
        v[i] = 0.2 * std::sin(step * static_cast<double>(i + 1));
      return Tensor::from(type, shape, v);
    };
    for (const std::vector<Tensor>& given :
         {std::vector{values({72}, 0.7), values({9, 72}, 1.3), values({72, 72}, 0.37)},
          std::vector{values({72}, 1.1), values({9}, 0.3)}}) {
      const auto found = run(loop, given), expected = run(steps, given);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i].to_doubles(), expected[i].to_doubles()) << dtype << ' ' << i;
    }
  }
}

// Each step adds to two matrices, which are more than the first cache holds: the loop does it for
// several steps at once. What it adds comes from a carry, a sequence, a constant and the step.
const std::string sums_of_outer_products = R"(
graph step {
  stage 0 (%h: TYPE[N], %p: TYPE[M, N], %q: TYPE[M, N], %x: TYPE[M], %k: TYPE[N]) {
    %n = sin(%h)
    %y = square(%x)
    %c = unsqueeze(%y) {dim = 1}
    %d = unsqueeze(%h) {dim = 0}
    %e = unsqueeze(%k) {dim = 0}
    %z = unsqueeze(%x) {dim = 1}
    %u = mul(%c, %d)
    %p1 = add(%p, %u)
    %v = mul(%z, %e)
    %q1 = sub(%v, %q)
    return %n, %p1, %q1, y = %y
  }
}
graph g {
  stage 0 (%h: TYPE[N], %p: TYPE[M, N], %xs: TYPE[STEPS, M], %k: TYPE[N]) {
    %n, %r, %q, %ys = scan(%h, %p, %p, %xs, %k) {
      body = "step", carries = 3, sequences = 1, reverse = REVERSE
    }
    return %n, %r, %q, %ys
  }
}
)";

std::string replaced(std::string text, std::initializer_list<std::array<std::string, 2>> words) {
  for (const auto& [from, to] : words)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

// Kernels that there were.
uint64_t expect_bits_of_steps(const ir::Graph& graph, const Sizes& shape, int64_t steps,
                              int64_t workers, FusionMode mode) {
  ir::Graph written_out = graph;
  ir::unroll(written_out);
  auto context = std::make_shared<Context>(
      ContextOptions{.workers = static_cast<int>(workers), .allocator = {}, .log = {}});
  const auto code = Code::compile(graph);
  State each(Code::compile(written_out));
  const DType type = graph.values[0].type.dtype;
  auto drawn = [&](Sizes of, const char* name) {
    return uniform_tensor(type, of, -1, 1, name, 0, *context);
  };
  const std::vector<Tensor> given{drawn({shape[1]}, "h"), drawn(shape, "p"),
                                  drawn({steps, shape[0]}, "xs"), drawn({shape[1]}, "k")};
  const auto expected = each.run(given);
  for (int round = 0; round < 4; ++round) {
    State state(code, context, {.fusion = mode});
    const auto found = state.run(given);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i].to_doubles(), expected[i].to_doubles()) << steps << " steps, result " << i;
    wait_for_kernels(*context);
  }
  return kernel_statistics(*context).kernels;
}

// Both sums have a kernel for a step, and one for several.
TEST(Loops, SumsOfManyStepsHaveTheBitsOfOneAfterTheOther) {
  for (const std::string type : {"f32", "f64"})
    for (const std::string reverse : {"false", "true"})
      for (const int64_t steps : {2, 9, 16, 43}) {
        const std::string text =
            replaced(sums_of_outer_products,
                     {{"TYPE", type}, {"STEPS", std::to_string(steps)}, {"REVERSE", reverse}});
        const ir::Graph graph = ir::parse(text).program();
        for (const int64_t workers : {1, 3})
          for (const FusionMode mode : {FusionMode::first, FusionMode::behind})
            EXPECT_EQ(expect_bits_of_steps(graph, {203, 90}, steps, workers, mode), 4);
      }
}

TEST(Loops, APreparedStateAllocatesNothing) {
  auto heap = std::make_shared<HeapAllocator>();
  auto context =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = heap, .log = {}});
  auto code = compile(recurrent(50), 1);
  State state(code, context);
  state.prepare({});
  const auto given = inputs(50);
  auto round = [&] {
    Tensor loss = Tensor::empty(DType::f64, {}, *context);
    std::vector<Tensor> results{loss};
    state.run_into(given, results);
    std::vector<Tensor> gradients{Tensor::empty(DType::f64, Sizes{3}, *context),
                                  Tensor::empty(DType::f64, Sizes{50, 3}, *context),
                                  Tensor::empty(DType::f64, Sizes{3, 3}, *context)};
    const auto before = heap->live_blocks();
    state.run_into(std::vector<Tensor>{scalar(1)}, gradients);
    EXPECT_EQ(heap->live_blocks(), before);
    state.restart();
  };
  round();
  round();
}

const std::string picks = R"(
graph pick {
  stage 0 (%i: i64[1], %table: f64[4]) {
    %y = index_select(%table, %i) {dim = 0}
    return %y
  }
}
graph g {
  stage 0 (%is: i64[T, 1], %table: f64[4]) {
    %y = scan(%is, %table) {body = "pick", sequences = 1}
    return %y
  }
}
)";

TEST(Loops, ErrorsNameTheStep) {
  auto code = compile(picks);
  State state(code);
  const Tensor table = f64({1, 2, 3, 4});
  auto indices = [](std::vector<double> values) {
    return Tensor::from(DType::i64, Sizes{static_cast<int64_t>(values.size()), 1}, values);
  };
  const std::string message = error_of([&] { run(state, {indices({0, 3, 7, 1}), table}); });
  EXPECT_NE(message.find("test.ir:4:"), std::string::npos) << message;
  EXPECT_NE(message.find("step 2 of 'pick'"), std::string::npos) << message;
  EXPECT_TRUE(state.poisoned());
  state.restart();
  EXPECT_EQ(run(state, {indices({0, 3}), table})[0].to_doubles(), (std::vector<double>{1, 4}));
}

Tensor noise(const Sizes& shape, std::string_view name) {
  return random_tensor(DType::f64, shape, name, 7, *Context::default_context());
}

// On one worker and on several: the same bits, whatever the steps' order.
TEST(Loops, StepsWithoutCarriesRunOnAllWorkers) {
  const std::string text = R"(
graph row {
  stage 0 (%x: f64[K], %k: f64[K], %w: f64[K, K]) {
    %p = mul(%x, %k)
    %v = mv(%w, %p)
    %e = sin(%v)
    %s = sum(%e)
    return %e, %s
  }
}
graph g {
  stage 0 (%xs: f64[T, K], %k: f64[K], %w: f64[K, K]) {
    %e, %s = scan(%xs, %k, %w) {body = "row", sequences = 1, reverse = true}
    %t = mul(%s, %s)
    %l = sum(%t)
    return %l, %e
  }
}
)";
  constexpr int64_t steps = 3001, width = 8;
  const std::vector<Tensor> given = {noise(Sizes{steps, width}, "1"), noise(Sizes{width}, "2"),
                                     noise(Sizes{width, width}, "3")};
  auto code = compile(text, 2);
  std::vector<std::vector<Tensor>> results;
  for (auto [workers, fusion] : {std::pair(1, FusionMode::off), std::pair(2, FusionMode::off),
                                 std::pair(5, FusionMode::off), std::pair(2, FusionMode::first)}) {
    auto context = std::make_shared<Context>(
        ContextOptions{.workers = workers, .allocator = nullptr, .log = {}});
    State state(code, context, {.fusion = fusion});
    std::vector<Tensor> all = run(state, given);
    for (const Tensor& t : run(state, {scalar(1.5), noise(Sizes{steps, width}, "4")}))
      all.push_back(t);
    results.push_back(std::move(all));
  }
  ASSERT_EQ(results[0].size(), 5u);
  for (size_t w = 1; w < results.size(); ++w)
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_EQ(results[w][i].to_doubles(), results[0][i].to_doubles()) << w << ", " << i;
}

TEST(Loops, TheFirstOfSeveralErrorsIsTold) {
  auto code = compile(picks);
  auto context =
      std::make_shared<Context>(ContextOptions{.workers = 4, .allocator = nullptr, .log = {}});
  constexpr int64_t steps = 20000;
  std::vector<double> indices(steps, 1);
  for (int64_t bad : {15000, 9000, 2501, 19999}) indices[static_cast<size_t>(bad)] = 4;
  State state(code, context);
  for (int round = 0; round < 20; ++round) {
    const std::string message = error_of([&] {
      run(state, {Tensor::from(DType::i64, Sizes{steps, 1}, indices), f64({1, 2, 3, 4})});
    });
    EXPECT_NE(message.find("step 2501 of 'pick'"), std::string::npos) << message;
    state.restart();
  }
}

TEST(Loops, AreCancelledBetweenSteps) {
  State state(compile(recurrent(20)));
  CancelToken token;
  Canceller canceller(token);
  RunOptions options;
  options.cancel = &token;
  options.observer = &canceller;
  const std::string message = error_of([&] { run(state, inputs(20), options); });
  EXPECT_NE(message.find("was cancelled in stage 0, before instruction 0"), std::string::npos)
      << message;
  state.restart();
  EXPECT_EQ(run(state, inputs(20)).size(), 1u);
}

// SPEC L3
TEST(Loops, ABranchThatIsNotChosenDoesNotRun) {
  auto code = compile(R"(
graph pick {
  stage 0 (%i: i64[1], %table: f64[4]) {
    %y = index_select(%table, %i) {dim = 0}
    return %y
  }
}
graph first {
  stage 0 (%i: i64[1], %table: f64[4]) {
    %y = slice(%table) {dim = 0, start = 0, end = 1}
    return %y
  }
}
graph g {
  stage 0 (%p: bool[], %i: i64[1], %table: f64[4]) {
    %y = if(%p, %i, %table) {then = "pick", else = "first"}
    return %y
  }
}
)");
  const Tensor table = f64({1, 2, 3, 4}),
               far = Tensor::from(DType::i64, Sizes{1}, std::vector<double>{9});
  const Tensor yes = Tensor::scalar(DType::boolean, 1), no = Tensor::scalar(DType::boolean, 0);
  State state(code);
  EXPECT_EQ(run(state, {no, far, table})[0].to_doubles(), std::vector<double>{1});
  state.restart();
  const std::string message = error_of([&] { run(state, {yes, far, table}); });
  EXPECT_NE(message.find("of 'pick'"), std::string::npos) << message;
}

// The places of what is not zero in a step's slice, and their sum.
const std::string places = R"(
graph pick {
  stage 0 (%x: f64[4]) {
    %y = nonzero(%x)
    %z = cast(%y) {dtype = f64}
    %s = sum(%z)
    return %s
  }
}
graph g {
  stage 0 (%xs: f64[T, 4]) {
    %y = scan(%xs) {body = "pick", sequences = 1}
    return %y
  }
}
)";

TEST(Loops, DataDecidesSizesInEachStep) {
  State state(compile(places));
  const Tensor xs = f64({3, 4}, {1, 0, 0, 5, 0, 0, 0, 0, 0, 2, 3, 4});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(run(state, {xs})[0].to_doubles(), (std::vector<double>{3, 0, 6}));
    state.restart();
  }
}

// The plan of a loop is every state's; who hears of its body's plans is the state that runs.
TEST(Loops, TheirPlansAreToldToTheStateThatRuns) {
  const auto code = compile(places);
  size_t told = 0;
  auto listen = [&](std::string_view, size_t, const std::string&) { ++told; };
  auto rows = [](double second) { return f64({1, 4}, {1, second, 0, 0}); };
  {
    State state(code, Context::default_context(), {.dump_plans = listen});
    run(state, {rows(0)});
  }
  const size_t before = told;
  EXPECT_GT(before, 0u);
  State silent(code);
  EXPECT_EQ(run(silent, {rows(2)})[0].to_doubles(), std::vector<double>{1});  // another size
  EXPECT_EQ(told, before);
  State state(code, Context::default_context(), {.dump_plans = listen});
  run(state, {f64({1, 4}, {1, 1, 1, 0})});
  EXPECT_GT(told, before);
}

TEST(Loops, AStepGivesNoSizesThatDataDecides) {
  std::string text = places;
  text.replace(text.find("return %s"), 9, "return %z");
  const std::string message = error_of([&] { compile(text); });
  EXPECT_NE(message.find("graph 'pick' returns 'z', and data decide its size"), std::string::npos)
      << message;
}

// A body's carries are what nobody reads: they go, with what they alone need.
TEST(Loops, WhatNobodyReadsIsTakenOut) {
  ir::Graph g = ir::parse(cell + R"(
graph g {
  stage 0 (%h0: f64[3], %xs: f64[5, 3], %w: f64[3, 3]) {
    %h, %ys = scan(%h0, %xs, %w) {body = "cell", carries = 1, sequences = 1}
    return %h
  }
}
)")
                    .program();
  ir::eliminate_dead_code(g);
  ir::verify(g);
  EXPECT_EQ(g.stages[0].nodes[0].results.size(), 1u) << ir::print(g);
  EXPECT_EQ(ir::print(g).find("sum"), std::string::npos) << ir::print(g);
}

// The Hessian of a loop is a batch of loops.
// SPEC L1
TEST(Loops, HessiansAndBatches) {
  const ir::Graph g = ir::parse(recurrent(4)).program();
  const ir::Graph hessian = ir::hessian(g, {.wrt = std::vector<std::string>{"h0"}});
  State state(Code::compile(hessian));
  auto given = inputs(4);
  const auto found = run(state, given);
  const Tensor h = found.back();
  ASSERT_EQ(h.shape().size(), 2u);
  // Against the gradient's differences.
  auto gradient = [&](double shift, size_t at) {
    auto x = given;
    auto values = x[0].to_doubles();
    values[at] += shift;
    x[0] = Tensor::from(DType::f64, Sizes{3}, values);
    State s(compile(recurrent(4), 1));
    run(s, x);
    return run(s, {scalar(1)})[0].to_doubles();
  };
  const auto values = h.to_doubles();
  for (size_t i = 0; i < 3; ++i) {
    const auto up = gradient(1e-5, i), down = gradient(-1e-5, i);
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(values[3 * k + i], (up[k] - down[k]) / 2e-5, 1e-8);
  }
  // Each of a batch is what it is alone, with a size that is a name.
  const ir::Graph many = ir::batch(g, {"h0", "xs"}, ir::Dim::symbol("B"));
  State batched(Code::compile(many));
  auto two = [](const Tensor& a, double factor) {
    auto v = a.to_doubles();
    const size_t n = v.size();
    for (size_t i = 0; i < n; ++i) v.push_back(factor * v[i]);
    Sizes shape{2};
    shape.append(a.shape().begin(), a.shape().end());
    return Tensor::from(a.dtype(), shape, v);
  };
  const auto both =
      run(batched, {two(given[0], -1), two(given[1], 0.5), given[2]}).back().to_doubles();
  State one(Code::compile(g));
  EXPECT_NEAR(both[0], run(one, given)[0].to_doubles()[0], 1e-13);
}

}  // namespace
}  // namespace gradus::test
