// Memory budgets: what is held between stages fits, and no bit changes.
#include "gradus/passes.h"
#include "ir/passes/min_cut.h"
#include "ir/passes/recompute_cost.h"
#include "tests/corpus/fused.h"
#include "tests/passes/random_program.h"

namespace gradus {
namespace {

using namespace test;
using ir::MemoryBudget;

// Against all cuts there are.
TEST(FlowNetwork, CutsAreMinimalAndSmallest) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    ir::FlowNetwork network;
    auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t nodes = 2 + below(7);
    for (uint32_t n = 0; n < nodes; ++n) network.add_node();
    struct Edge {
      uint32_t from, to;
      int64_t capacity;
    };
    std::vector<Edge> edges;
    for (uint32_t e = below(20); e > 0; --e)
      edges.push_back({below(nodes), below(nodes), below(9)});
    for (const Edge& e : edges) network.add_edge(e.from, e.to, e.capacity);
    const std::vector<bool> side = network.sink_side(0, 1);
    uint32_t found = 0, least = 0;
    int64_t least_cost = INT64_MAX;
    for (uint32_t n = 0; n < nodes; ++n) found |= static_cast<uint32_t>(side[n]) << n;
    auto cost = [&](uint32_t cut) {
      int64_t sum = 0;
      for (const Edge& e : edges)
        if (!(cut >> e.from & 1) && (cut >> e.to & 1)) sum += e.capacity;
      return sum;
    };
    for (uint32_t cut = 0; cut < 1u << nodes; ++cut) {
      if ((cut & 1) || !(cut & 2)) continue;  // the source, the sink
      const int64_t c = cost(cut);
      if (c < least_cost || (c == least_cost && std::popcount(cut) < std::popcount(least))) {
        least_cost = c;
        least = cut;
      }
    }
    ASSERT_EQ(cost(found), least_cost);
    ASSERT_EQ(found, least);
  }
}

// A chain as budgets cut it: each value costs what it takes to make it or to hold it, and every
// `spacing`-th is needed.
size_t work_for_chain(uint32_t length, uint32_t spacing) {
  ir::FlowNetwork network;
  const uint32_t source = network.add_node(), sink = network.add_node();
  uint32_t before = source;
  for (uint32_t i = 0; i < length; ++i) {
    const uint32_t node = network.add_node(), value = network.add_node();
    network.add_edge(source, node, 3 + i % 5);
    if (i > 0) network.add_edge(before, node, ir::FlowNetwork::unlimited);
    network.add_edge(node, value, 40 + i * 7 % 11);
    if (i % spacing == spacing - 1) network.add_edge(value, sink, ir::FlowNetwork::unlimited);
    before = value;
  }
  network.sink_side(source, sink);
  return network.work();
}

TEST(FlowNetwork, WorkIsLinearInTheLengthOfChains) {
  for (const uint32_t spacing : {1u, 4u, 50u, 1000u}) {
    const size_t one = work_for_chain(4000, spacing), four = work_for_chain(16000, spacing);
    EXPECT_LT(one, 4000 * 100) << spacing;
    EXPECT_LT(four, one * 6) << spacing;
  }
}

ir::Graph within(ir::Graph lowered, const MemoryBudget& budget) {
  ir::rematerialize(lowered, budget);
  ir::verify(lowered);
  return lowered;
}

std::string ops_of(const ir::Graph& graph, size_t stage) {
  std::string s;
  for (const ir::Node& n : graph.stages[stage].nodes)
    s += (s.empty() ? "" : " ") + std::string(n.op->name);
  return s;
}

// A stage that reads three values, one of which is returned.
constexpr const char* three = R"(
graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %a = mul(%x, %w)
    %e = exp(%a)
    %r = matmul(%e, %w)
    %n = neg(%e)
    return y = %r, %n
  }
  stage 1 (%v: f64[N]) {
    %p = add(%v, %a)
    %q = mul(%p, %e)
    %z = mul(%q, %n)
    return z = %z
  }
}
)";

// SPEC I4
TEST(Rematerialize, TakesTheCheapestFirst) {
  const ir::Graph g = lowered(graph_of(three));
  auto at = [&](int64_t bytes) { return within(g, {bytes, {{"N", 8}}}); };
  EXPECT_EQ(ir::held_bytes(g, {0, {{"N", 8}}}), (std::vector<int64_t>{128, 0}));
  EXPECT_EQ(ops_of(at(128), 1), "add mul mul");  // it fits: nothing changes
  EXPECT_EQ(ops_of(at(127), 1), "mul add mul mul");
  EXPECT_EQ(ops_of(at(64), 1), "mul add mul mul");
  // Right before it is read.
  EXPECT_EQ(ops_of(at(63), 1), "mul add exp mul mul");
  EXPECT_EQ(ops_of(at(63), 0), ops_of(g, 0));
  EXPECT_EQ(ir::held_bytes(at(0), {0, {{"N", 8}}}), (std::vector<int64_t>{0, 0}));
  // A size of eight takes as much as one of one.
  EXPECT_EQ(ir::held_bytes(g, {0, {{"N", 1}}}), (std::vector<int64_t>{128, 0}));
}

// What nobody reads any more in the stage that made it goes from there.
TEST(Rematerialize, LeavesNothingBehind) {
  const ir::Graph g = lowered(graph_of(R"(
graph g {
  stage 0 (%x: f64[N]) {
    %e = exp(%x)
    %t = tanh(%x)
    %y = sum(%t)
    return %y
  }
  stage 1 (%v: f64[N]) {
    %z = mul(%v, %e)
    return z = %z
  }
}
)"));
  const ir::Graph small = within(g, {0, {{"N", 100}}});
  EXPECT_EQ(ops_of(small, 0), "tanh sum");
  EXPECT_EQ(ops_of(small, 1), "exp mul");
}

// Views cost nothing: their base is held, once.
TEST(Rematerialize, CountsAViewAsItsBase) {
  const ir::Graph g = lowered(graph_of(R"(
graph g {
  stage 0 (%x: f64[N, 4], %k: i64[2]) {
    %b = uniform(%k) {shape = [N, 4], dtype = f64}
    %s = slice(%b) {dim = 0, start = 0, end = 1}
    %t = transpose(%b) {dim0 = 0, dim1 = 1}
    %u = sin(%b)
    return
  }
  stage 1 (%v: f64[4, N]) {
    %m = mul(%v, %t)
    %n = sum(%s)
    %o = sum(%u)
    return m = %m, n = %n, o = %o
  }
}
)"));
  const MemoryBudget sizes{0, {{"N", 100}}};
  EXPECT_EQ(ir::held_bytes(g, sizes), (std::vector<int64_t>{6400, 0}));
  const ir::Graph small = within(g, {3200, {{"N", 100}}});
  EXPECT_EQ(ir::held_bytes(small, sizes), (std::vector<int64_t>{3200, 0}));
  EXPECT_EQ(count(small, 1, "transpose") + count(small, 1, "slice") + count(small, 1, "sin"), 3u);
  // What is random is never made twice.
  EXPECT_EQ(count(small, 1, "uniform"), 0u);
  EXPECT_NE(error_of([&] {
              within(g, {3199, {{"N", 100}}});
            }).find("after stage 0 at least 3200 bytes have to be held"),
            std::string::npos);
}

// Products only where nothing cheaper suffices: the two that are held can be made of one another.
TEST(Rematerialize, MakesProductsLast) {
  const ir::Graph g = lowered(graph_of(R"(
graph g {
  stage 0 (%x: f64[N, N], %w: f64[N, N]) {
    %p = matmul(%x, %w)
    %a = relu(%p)
    %b = tanh(%a)
    return
  }
  stage 1 (%v: f64[N, N]) {
    %q = mul(%v, %p)
    %r = mul(%q, %a)
    %s = mul(%r, %b)
    return s = %s
  }
}
)"));
  const int64_t one = 8 * 16 * 16;
  auto at = [&](int64_t bytes) { return ops_of(within(g, {bytes, {{"N", 16}}}), 1); };
  EXPECT_EQ(at(3 * one), "mul mul mul");
  EXPECT_EQ(at(2 * one), "mul relu mul mul");
  EXPECT_EQ(at(one), "mul relu mul tanh mul");
  EXPECT_EQ(at(one - 1), "matmul mul relu mul tanh mul");
}

TEST(Rematerialize, NeverRunsAgainWhatMayRefuse) {
  for (const char* line : {"%y = index_select(%x, %i) {dim = 0}", "%y = cumsum(%x) {dim = 0}",
                           "%y = floor_divide(%i, 3)"}) {
    const ir::Graph g = lowered(
        graph_of(fmt::format("graph g {{\n  stage 0 (%x: f64[N], %i: i64[N]) {{\n    {}\n    "
                             "return\n  }}\n  stage 1 () {{\n    %z = sum(%y)\n    return %z\n  "
                             "}}\n}}\n",
                             line)));
    EXPECT_NE(error_of([&] {
                within(g, {0, {{"N", 8}}});
              }).find("at least 64 bytes have to be held"),
              std::string::npos)
        << line;
  }
}

TEST(Rematerialize, SaysWhatItCannot) {
  EXPECT_NE(error_of([&] {
              within(lowered(graph_of(three)), {0, {}});
            }).find("needs the size of 'N'"),
            std::string::npos);
  const ir::Graph counts = lowered(graph_of(
      "graph g {\n stage 0 (%m: bool[N]) {\n %i = nonzero(%m)\n return\n }\n stage 1 () {\n %z = "
      "neg(%i)\n return %z\n }\n}\n"));
  const std::string error = error_of([&] { within(counts, {0, {{"N", 3}}}); });
  EXPECT_NE(error.find("test.ir:3:"), std::string::npos) << error;
  EXPECT_NE(error.find("data decides how large this is"), std::string::npos) << error;
}

using Results = std::vector<std::vector<Tensor>>;

Results run_code(const std::shared_ptr<const Code>& code, const Results& inputs,
                 const std::shared_ptr<Context>& context, FusionMode mode) {
  State state(code, context, {.fusion = mode});
  Results results;
  for (const auto& in : inputs) results.push_back(state.run(in));
  return results;
}

void expect_same(const Results& a, const Results& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); ++s)
    for (size_t i = 0; i < a[s].size(); ++i) {
      ASSERT_EQ(a[s][i].defined(), b[s][i].defined()) << "stage " << s << ", result " << i;
      EXPECT_TRUE(!a[s][i].defined() || bitwise_equal(a[s][i], b[s][i]))
          << "stage " << s << ", result " << i;
    }
}

// Programs of orders 1 to 3, with budgets down to what has to be.
// SPEC D1, I4
TEST(Rematerialize, RandomProgramsKeepTheirBitsWithinAnyBudget) {
  const auto one = std::make_shared<Context>(ContextOptions{.workers = 1});
  const bool fuse = corpus::has_kernels();
  size_t changed = 0, refused = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const RandomProgram program(seed);
    for (int order = 1; order <= 3; ++order) {
      SCOPED_TRACE(fmt::format("seed {}, order {}", seed, order));
      const ir::Graph g = derived(program.graph(), {.order = order});
      MemoryBudget budget{0, {{"N", 2}, {"M", 4}}};
      const ir::Graph plain = lowered(g);
      std::vector<int64_t> held = ir::held_bytes(plain, budget);
      const int64_t most = *std::ranges::max_element(held);
      Results inputs = random_inputs(g, seed);
      // An absent cotangent stays absent where its values are computed again.
      if (seed % 4 == 0) inputs.back().back() = Tensor();
      const Results want = run_code(Code::compile(g), inputs, one, FusionMode::off);
      for (const int64_t share : {0, 1, 2, 3}) {
        budget.bytes = most * share / 4;
        std::shared_ptr<const Code> code;
        for (int tries = 0; !code; ++tries) {
          ASSERT_LT(tries, 20);
          try {
            code = Code::compile(g, {.memory_budget = budget});
          } catch (const Error& e) {  // what it asks for is more, and helps in the end
            const std::string what = e.what();
            const size_t at = what.find("at least ");
            ASSERT_NE(at, std::string::npos) << what;
            const int64_t asked = std::stoll(what.substr(at + 9));
            ASSERT_GT(asked, budget.bytes) << what;
            ASSERT_LE(asked, most) << what;
            budget.bytes = asked;
            ++refused;
          }
        }
        ir::verify(code->graph());
        for (int64_t bytes : ir::held_bytes(code->graph(), budget)) EXPECT_LE(bytes, budget.bytes);
        changed += print(code->graph()) != print(plain);
        expect_same(run_code(code, inputs, one, FusionMode::off), want);
        if (fuse && share == 1)
          expect_same(run_code(code, inputs, corpus::fusing_context(2), FusionMode::first), want);
      }
    }
  }
  EXPECT_GT(changed, 100u);
  EXPECT_GT(refused, 10u);
}

// What prepare says: held bytes fit, and the most that the stages take together falls.
TEST(Rematerialize, ThePeakFalls) {
  std::string text = "graph g {\n  stage 0 (%x: f32[N, N], %w: f32[N, N]) {\n    %h0 = tanh(%x)\n";
  constexpr int layers = 8;
  for (int i = 1; i <= layers; ++i)
    text += fmt::format(
        "    %p{0} = matmul(%h{1}, %w)\n    %a{0} = sigmoid(%p{0})\n    %b{0} = tanh(%p{0})\n"
        "    %h{0} = mul(%a{0}, %b{0})\n",
        i, i - 1);
  text += fmt::format("    %y = sum(%h{})\n    return %y\n  }}\n}}\n", layers);
  const ir::Graph g = derived(text, {.order = 1});
  const int64_t n = 128, one = n * n * 4;
  auto peak = [&](std::optional<MemoryBudget> budget) {
    State state(Code::compile(g, {.memory_budget = std::move(budget)}), Context::default_context(),
                {.fusion = FusionMode::off});
    const auto memory = state.prepare({{"N", n}});
    const size_t held = memory[0].held;
    return std::pair{static_cast<int64_t>(held),
                     static_cast<int64_t>(std::max(memory[0].buffer, memory[1].buffer) + held)};
  };
  const auto [held, most] = peak({});
  const auto [less, lower] = peak(MemoryBudget{(layers + 2) * one, {{"N", n}}});
  EXPECT_GE(held, 3 * layers * one);
  EXPECT_LE(less, (layers + 2) * one);
  EXPECT_LT(lower * 3, most * 2);
}

// Long programs take no longer than they are long.
TEST(Rematerialize, TakesLongPrograms) {
  std::string text = "graph g {\n  stage 0 (%x: f64[N]) {\n    %v0 = sin(%x)\n";
  constexpr int length = 20000;
  for (int i = 1; i <= length; ++i) text += fmt::format("    %v{} = sin(%v{})\n", i, i - 1);
  text += fmt::format("    return y = %v{}\n  }}\n}}\n", length);
  const ir::Graph g = ir::lower(derived(text, {.order = 1}));
  const MemoryBudget half{64 * length / 2, {{"N", 8}}};
  const ir::Graph small = within(g, half);
  EXPECT_LE(ir::held_bytes(small, half)[0], half.bytes);
  EXPECT_GE(ir::held_bytes(small, half)[0], half.bytes - half.bytes / 50);
}

}  // namespace
}  // namespace gradus
