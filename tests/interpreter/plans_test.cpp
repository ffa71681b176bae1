// Plans: many sizes, many threads, layouts of every kind, what lies where.
#include <thread>

#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

const char* const program = R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[M]) {
    %a = unsqueeze(%x) {dim = 1}
    %b = mul(%a, %w)
    %t = tanh(%b)
    %y = sum(%t) {dim = 0}
    return %y
  }
}
)";

Tensor ramp(int64_t n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 0.25 * static_cast<double>(i) - 1;
  return Tensor::from(DType::f64, Sizes{n}, v);
}

// More sizes than are kept, each met twice.
// SPEC I1, I6
TEST(Plans, ManySizesComeAndGo) {
  auto code = compile(program, 1);
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 0; n < 150; ++n) {
      State state(code);
      auto y = run(state, {ramp(n), ramp(n / 2)});
      ASSERT_EQ(y[0].numel(), n / 2);
      EXPECT_EQ(*state.dimension("N"), n);
      auto d = run(state, {ramp(n / 2)});
      ASSERT_EQ(d[0].numel(), n);
      for (int64_t i = 0; i < n / 2; ++i) {
        double want = 0;
        for (int64_t k = 0; k < n; ++k)
          want +=
              std::tanh((0.25 * static_cast<double>(k) - 1) * (0.25 * static_cast<double>(i) - 1));
        ASSERT_NEAR(y[0].item(i), want, 1e-12 * (1 + std::abs(want)) * 10);
      }
    }
}

// SPEC I1
TEST(Plans, StatesOfManySizesOnManyThreads) {
  auto code = compile(program, 2);
  auto context =
      std::make_shared<Context>(ContextOptions{.workers = 2, .allocator = nullptr, .log = {}});
  auto everything = [&](int64_t n) {
    State state(code, context);
    std::vector<Tensor> out = run(state, {ramp(n), ramp(3)});
    State kept = state.clone();
    for (const Tensor& t : run(state, {ramp(3)})) out.push_back(t);
    for (const Tensor& t : run(kept, {Tensor()})) out.push_back(t);
    for (const Tensor& t : run(state, {ramp(n), Tensor()})) out.push_back(t);
    return out;
  };
  std::vector<std::vector<Tensor>> want;
  for (int64_t n = 0; n < 80; ++n) want.push_back(everything(n));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t k = 0; k < 160; ++k) {
        int64_t n = (k * (2 * t + 1) + 17 * t) % 80;
        auto got = everything(n);
        for (size_t i = 0; i < got.size(); ++i) {
          bool same = got[i].defined() == want[static_cast<size_t>(n)][i].defined();
          if (same && got[i].defined())
            same = bitwise_equal(got[i], want[static_cast<size_t>(n)][i]);
          wrong += !same;
        }
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// One state, two threads: one of them runs, the other is told.
// SPEC I3
TEST(Plans, OneStateIsForOneThread) {
  auto code = compile(program);
  State state(code);
  std::atomic<int> ran{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) try {
          run(state, {ramp(5), ramp(3)});
          ++ran;
        } catch (const Error& e) {
          std::string_view message = e.what();
          EXPECT_TRUE(message.find("running already") != message.npos ||
                      message.find("all stages of") != message.npos)
              << message;
          ++refused;
        }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(refused, 799);
}

// Inputs of odd strides, expanded, overlapping: the same values, the same bits.
// SPEC I15
TEST(Plans, InputsMayLieAnyhow) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[4, 3], %w: f64[3, 4]) {
    %t = transpose(%x) {dim0 = 0, dim1 = 1}
    %a = mul(%t, %w)
    %b = matmul(%x, %w)
    %r = reshape(%x) {shape = [2, 6]}
    %s = slice(%x) {dim = 0, start = 1, end = 3}
    %u = sum(%x) {dim = 1}
    return %a, %b, %r, %s, %u, %x
  }
}
)",
                      1);
  std::vector<double> base(64);
  for (size_t i = 0; i < base.size(); ++i) base[i] = std::sin(static_cast<double>(i));
  Tensor memory = Tensor::from(DType::f64, Sizes{64}, base);
  for (Sizes strides : {Sizes{3, 1}, Sizes{1, 4}, Sizes{12, 2}, Sizes{0, 1}, Sizes{1, 0},
                        Sizes{0, 0}, Sizes{1, 1}, Sizes{2, 1}}) {
    for (int64_t offset : {0, 5}) {
      Tensor x = memory.view(Layout(DType::f64, Sizes{4, 3}, strides), offset);
      Tensor w = memory.view(Layout(DType::f64, Sizes{3, 4}, Sizes{strides[1], strides[0]}), 3);
      State odd(code), plain(code);
      auto a = run(odd, {x, w}), b = run(plain, {x.copy(), w.copy()});
      std::vector<Tensor> cts;
      for (const Tensor& t : b) {
        std::vector<double> v = t.to_doubles();
        std::reverse(v.begin(), v.end());
        cts.push_back(Tensor::from(DType::f64, t.shape(), v));
      }
      for (const Tensor& t : run(odd, cts)) a.push_back(t);
      for (const Tensor& t : run(plain, cts)) b.push_back(t);
      for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i])) << i;
    }
  }
}

// SPEC I15
TEST(Plans, EmptyTensorsEverywhere) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[N, M], %w: f64[M, K]) {
    %p = matmul(%x, %w)
    %e = exp(%p)
    %s = sum(%e) {dim = 0}
    %t = transpose(%x) {dim0 = 0, dim1 = 1}
    %q = mul(%t, 2.0)
    %y = sum(%q)
    return %s, %t, %y, %e
  }
}
)",
                      2);
  for (int64_t n : {0, 2})
    for (int64_t m : {0, 3})
      for (int64_t k : {0, 4}) {
        auto ones = [](Sizes shape) {
          return Tensor::from(DType::f64, shape,
                              std::vector<double>(static_cast<size_t>(numel(shape)), 1.0));
        };
        State state(code);
        auto r = run(state, {ones({n, m}), ones({m, k})});
        EXPECT_EQ(r[0].numel(), k);
        for (double v : r[0].to_doubles())
          EXPECT_DOUBLE_EQ(v, static_cast<double>(n) * std::exp(static_cast<double>(m)));
        EXPECT_EQ(r[2].item(), static_cast<double>(2 * n * m));
        auto d = run(state, {ones({k}), ones({m, n}), ones({}), ones({n, k})});
        EXPECT_EQ(d[0].numel(), n * m);
        auto dd = run(state, {ones({n, m}), ones({m, k})});
        EXPECT_EQ(dd.size(), 6u);
      }
}

// Returned twice, a constant, a view of a constant, an input, a view of one; and all of them held.
// SPEC I4, I15
TEST(Plans, ResultsMayBeAnything) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[2, 2], %z: f64[0]) {
    %c = constant() {value = f64[2, 3] [[1, 2, 3], [4, 5, 6]]}
    %v = transpose(%c) {dim0 = 0, dim1 = 1}
    %e = expand(%v) {shape = [2, 3, 2]}
    %b = exp(%x)
    %w = reshape(%b) {shape = [4]}
    %u = slice(%w) {dim = 0, start = 2, end = 4}
    %m, %i = max_dim(%b) {dim = 0}
    return a = %c, b = %c, c = %v, d = %x, e = %x, f = %u, g = %e, z = %z
  }
  stage 1 () {
    %s = sum(%v) {dim = 1}
    %t = sum(%e)
    %k = mul(%u, 2.0)
    %vv = slice(%v) {dim = 0, start = 1, end = 2}
    return %s, %t, %k, %c, %v, u = %u, i = %i, vv = %vv, nothing = none
  }
  stage 2 () {
    return again = %v, twice = %v, u = %u, i = %i, vv = %vv
  }
}
)");
  using D = std::vector<double>;
  for (int round = 0; round < 2; ++round) {
    Counted counted;
    State state(code, counted.context);
    Tensor x = f64({2, 2}, {0, 0, 1, 2});
    auto r = run(state, {x, f64({})});
    EXPECT_EQ(r[0].to_doubles(), (D{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(r[2].to_doubles(), (D{1, 4, 2, 5, 3, 6}));
    EXPECT_TRUE(r[3].same_as(x));
    // The program's own values are out of reach.
    r[0].mutable_data_as<double>()[0] = 99;
    r[1].mutable_data_as<double>()[1] = 99;
    r.clear();
    auto s = run(state, {});
    EXPECT_EQ(s[0].to_doubles(), (D{5, 7, 9}));
    EXPECT_EQ(s[1].item(), 42);
    EXPECT_DOUBLE_EQ(s[2].item(0), 2 * std::exp(1.0));
    EXPECT_DOUBLE_EQ(s[2].item(1), 2 * std::exp(2.0));
    EXPECT_EQ(s[3].to_doubles(), (D{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(s[6].to_doubles(), (D{1, 1}));
    s.clear();
    auto t = run(state, {});
    EXPECT_EQ(t[0].to_doubles(), (D{1, 4, 2, 5, 3, 6}));
    EXPECT_DOUBLE_EQ(t[2].item(1), std::exp(2.0));
    EXPECT_EQ(t[4].to_doubles(), (D{2, 5}));
    EXPECT_EQ(state.held_registers(), 0u);
  }
}

// Unused results of an instruction leave with it; the base of a held view stays as long as the
// view. SPEC I4, I5
TEST(Plans, HoldsWhatLaterStagesReadAndNoMore) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[1024]) {
    %b = exp(%x)
    %u = slice(%b) {dim = 0, start = 0, end = 2}
    %m, %i = max_dim(%b) {dim = 0}
    %k, %j = max_dim(%x) {dim = 0}
    return %m, %j
  }
  stage 1 () {
    %y = sum(%u)
    return %y
  }
}
)");
  Counted counted;
  State state(code, counted.context);
  run(state, {Tensor::zeros(DType::f64, Sizes{1024})});
  EXPECT_EQ(state.held_registers(), 1u);
  EXPECT_EQ(state.held_bytes(), 1024u * 8);
  EXPECT_EQ(run(state, {})[0].item(), 2);
  EXPECT_EQ(state.held_registers(), 0u);
}

// Nothing that happens to have the size 1 is stretched.
// SPEC P7
TEST(Plans, ASizeOfOneNeverBroadcastsWhenRunning) {
  for (const char* line :
       {"%y = add(%x, %w)", "%y = where(%b, %x, %w)", "%y = expand(%x) {shape = [M]}",
        "%y = dot(%x, %w)", "%y = mul(%x, %c)"}) {
    std::string text = fmt::format(R"(
graph f {{
  stage 0 (%x: f64[N], %w: f64[M], %b: bool[N], %c: f64[4]) {{
    {}
    return %x
  }}
  stage 1 (%v: f64[K]) {{
    %z = mul(%v, %x)
    return %z
  }}
}}
)",
                                   line);
    State state(compile(text));
    Tensor yes = Tensor::from(DType::boolean, Sizes{1}, std::vector<double>{1});
    std::string message = error_of([&] {
      run(state, {f64({1}), f64({1, 2, 3, 4}), yes, f64({1, 2, 3, 4})});
    });
    EXPECT_NE(message.find("sizes "), std::string::npos) << message;
    EXPECT_NE(message.find("N = 1"), std::string::npos) << message;
    EXPECT_NE(message.find("4"), std::string::npos) << message;
    EXPECT_EQ(message.substr(0, 10), "test.ir:4:") << message;
    EXPECT_FALSE(state.poisoned());
    Tensor more = Tensor::from(DType::boolean, Sizes{4}, std::vector<double>(4, 1));
    run(state, {f64({1, 2, 3, 4}), f64({1, 2, 3, 4}), more, f64({1, 2, 3, 4})});
    message = error_of([&] { run(state, {f64({1})}); });
    EXPECT_NE(message.find("K = 1"), std::string::npos) << message;
    EXPECT_NE(message.find("N = 4"), std::string::npos) << message;
    EXPECT_EQ(run(state, {f64({1, 1, 1, 2})})[0].to_doubles(), (std::vector<double>{1, 2, 3, 8}));
  }
}

// SPEC I3
TEST(Plans, AHundredThousandStages) {
  ir::Graph g;
  g.name = "tower";
  g.stages.resize(100000);
  ir::ValueId x = g.add_value(ir::Type(DType::f64, {}), "x", 0);
  g.stages[0].inputs.push_back(x);
  g.stages.back().results.push_back({"y", x});
  State state(Code::compile(g));
  run(state, {scalar(3)});
  while (state.next_stage() + 1 < g.stages.size()) run(state, {});
  EXPECT_EQ(run(state, {})[0].item(), 3);
}

}  // namespace
}  // namespace gradus
