// Random programs, derived three times: every stage against differences of the one before, and
// every way of running it against every other.
#include "tests/corpus/fused.h"
#include "tests/passes/random_program.h"

namespace gradus {
namespace {

using namespace test;

constexpr uint64_t programs = 200;
constexpr int order = 3;

using Results = std::vector<std::vector<Tensor>>;

void expect_same(const Results& a, const Results& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); ++s) {
    ASSERT_EQ(a[s].size(), b[s].size());
    for (size_t i = 0; i < a[s].size(); ++i) {
      ASSERT_EQ(a[s][i].defined(), b[s][i].defined())
          << what << ", stage " << s << ", result " << i;
      bool same = !a[s][i].defined() || bitwise_equal(a[s][i], b[s][i]);
      EXPECT_TRUE(same) << what << ", stage " << s << ", result " << i;
    }
  }
}

double dot(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return 0;
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// The inputs of the stages before `before`, moved along a direction.
Results moved(const Results& inputs, const Results& direction, size_t before, double step) {
  Results m = inputs;
  for (size_t s = 0; s < before; ++s)
    for (size_t i = 0; i < m[s].size(); ++i) {
      std::vector<double> x = inputs[s][i].to_doubles(), d = direction[s][i].to_doubles();
      for (size_t e = 0; e < x.size(); ++e) x[e] += step * d[e];
      m[s][i] = Tensor::from(DType::f64, inputs[s][i].shape(), x);
    }
  return m;
}

Results run_stages(const std::shared_ptr<const Code>& code, const Results& inputs, size_t stages) {
  State state(code);
  Results results;
  for (size_t s = 0; s < stages; ++s) results.push_back(state.run(inputs[s]));
  return results;
}

// SPEC D1, D3, D5
TEST(RandomPrograms, StagesAreDerivativesOfTheStageBefore) {
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomProgram program(seed);
    ir::Graph g = derived(program.graph(), {.order = order});
    auto code = Code::compile(g);
    Results inputs = random_inputs(g, seed), direction = random_inputs(g, seed + 1000);
    Results results = run_stages(code, inputs, g.stages.size());
    for (size_t k = 1; k < g.stages.size(); ++k) {
      // d/dt of sum <ct, r(inputs + t direction)>, by differences and by stage k.
      auto phi = [&](double t) {
        Results r = run_stages(code, moved(inputs, direction, k, t), k);
        double sum = 0;
        for (size_t i = 0; i < r[k - 1].size(); ++i) sum += dot(inputs[k][i], r[k - 1][i]);
        return sum;
      };
      const double h = 1e-3;
      double numeric = (8 * (phi(h) - phi(-h)) - (phi(2 * h) - phi(-2 * h))) / (12 * h),
             analytic = 0;
      size_t next = 0;
      for (size_t s = 0; s < k; ++s)
        for (size_t i = 0; i < inputs[s].size(); ++i)
          analytic += dot(direction[s][i], results[k][next++]);
      EXPECT_NEAR(analytic, numeric, 2e-7 * (1 + std::abs(numeric))) << "stage " << k << "\n"
                                                                     << print(g);
    }
  }
}

// SPEC D1, D7, I1, I7
TEST(RandomPrograms, EveryWayToRunThemGivesTheSameBits) {
  auto one =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = nullptr, .log = {}});
  auto eight =
      std::make_shared<Context>(ContextOptions{.workers = 8, .allocator = nullptr, .log = {}});
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomProgram program(seed);
    ir::Graph g = derived(program.graph(), {.order = order});
    Results inputs = random_inputs(g, seed);
    Results want = run_all(g, inputs, one);
    expect_same(run_all(g, inputs, eight), want, "eight workers");
    expect_same(evaluate_plainly(g, inputs), want, "node by node");
    for (auto pass :
         {+[](ir::Graph& p) { ir::eliminate_common_subexpressions(p); },
          +[](ir::Graph& p) { ir::eliminate_dead_code(p); },
          +[](ir::Graph& p) { ir::fold_constants(p); },
          +[](ir::Graph& p) { ir::decompose(p, false); },
          +[](ir::Graph& p) { ir::decompose(p, true); }, +[](ir::Graph& p) { ir::compact(p); },
          +[](ir::Graph& p) { p = lowered(p); }}) {
      ir::Graph p = g;
      pass(p);
      ir::verify(p);
      expect_same(evaluate_plainly(p, inputs), want, "after a pass");
    }
    // Order by order is the same program; printed and parsed, too.
    ir::Graph stepwise = program.graph();
    for (int k = 1; k <= order; ++k) stepwise = derived(stepwise, {.order = k});
    EXPECT_EQ(print(stepwise), print(g));
    expect_same(run_all(graph_of(print(g)), inputs, one), want, "printed");
    // Clones at every stage, and a state that is used again.
    auto code = Code::compile(g);
    std::vector<State> states;
    states.emplace_back(code, one);
    for (size_t s = 0; s < g.stages.size(); ++s) {
      states.push_back(states.back().clone());
      states[states.size() - 2].run(inputs[s]);
      expect_same({states.back().run(inputs[s])}, {want[s]}, "clone");
    }
    State& used = states.back();
    used.restart();
    for (size_t s = 0; s < g.stages.size(); ++s)
      expect_same({used.run(inputs[s])}, {want[s]}, "restarted");
  }
}

// SPEC F6
TEST(RandomPrograms, FusedKernelsGiveTheSameBits) {
  if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  size_t groups = 0;
  for (uint64_t seed = 0; seed < programs / 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomProgram program(seed);
    ir::Graph g = derived(program.graph(), {.order = 2});
    Results inputs = random_inputs(g, seed), got;
    auto code = Code::compile(g);
    State plain(code, Context::default_context(), {.fusion = FusionMode::off});
    State fused(code, corpus::fusing_context(2), {.fusion = FusionMode::first});
    for (size_t s = 0; s < g.stages.size(); ++s)
      expect_same({fused.run(inputs[s])}, {plain.run(inputs[s])}, "fused");
    groups += fused.groups().size();
  }
  EXPECT_GT(groups, programs / 4);
}

// Stages by `grad` in stage 0 instead: gradients of products with cotangents, nested.
// SPEC D6
TEST(RandomPrograms, NestedGradsAgreeWithStages) {
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomProgram program(seed);
    ir::Graph staged = derived(program.graph(), {.order = 2});
    Results inputs = random_inputs(staged, seed);
    Results want = run_all(staged, inputs);

    ir::Graph g = program.graph();
    std::vector<Tensor> all = inputs[0];
    auto node = [&](std::string_view name, std::vector<ir::Operand> operands, size_t results,
                    const LiteralList& attributes = {}) {
      const ir::Operator* op = ops::find(name);
      ir::Node n{op, op->read(attributes), {}, {}, {}};
      for (auto& o : operands) n.operands.push_back(o);
      auto types = ops::infer(g, n, nullptr);
      EXPECT_EQ(types.size(), results);
      for (auto& t : types) n.results.push_back(g.add_value(t, {}, 0));
      g.stages[0].nodes.push_back(n);
      return g.stages[0].nodes.back().results;
    };
    // sum <ct, r> over the values, cotangents being new inputs.
    auto product = [&](std::vector<ir::ValueId> values, size_t stage) {
      ir::ValueId sum = ir::no_value;
      for (size_t i = 0; i < values.size(); ++i) {
        ir::ValueId ct = g.add_value(g[values[i]].type, fmt::format("c{}_{}", stage, i), 0);
        g.stages[0].inputs.push_back(ct);
        all.push_back(inputs[stage][i]);
        ir::ValueId p = node("sum", {node("mul", {values[i], ct}, 1)[0]}, 1)[0];
        sum = sum == ir::no_value ? p : node("add", {sum, p}, 1)[0];
      }
      return sum;
    };
    std::vector<ir::ValueId> outs, wrt = g.stages[0].inputs;
    for (const ir::Result& r : g.stages[0].results) outs.push_back(r.value);
    auto gradients = [&](ir::ValueId of) {
      std::vector<ir::Operand> operands{of};
      for (ir::ValueId x : wrt) operands.push_back(x);
      auto list = node("grad", operands, wrt.size());
      return std::vector<ir::ValueId>(list.begin(), list.end());
    };
    std::vector<ir::ValueId> first = gradients(product(outs, 1));
    for (size_t i = outs.size(); i-- > 0;)
      wrt.push_back(g.stages[0].inputs[g.stages[0].inputs.size() - 1 - i]);
    std::vector<ir::ValueId> second = gradients(product(first, 2));
    g.stages[0].results.clear();
    for (ir::ValueId v : first) g.stages[0].results.push_back({fmt::format("a{}", index_of(v)), v});
    for (ir::ValueId v : second)
      g.stages[0].results.push_back({fmt::format("a{}", index_of(v)), v});
    ir::verify(g);
    lowered(g);
    Results got = run_all(g, {all});
    for (size_t i = 0; i < got[0].size(); ++i) {
      const Tensor& w = i < first.size() ? want[1][i] : want[2][i - first.size()];
      std::vector<double> a = got[0][i].to_doubles(), b(a.size());
      if (w.defined()) b = w.to_doubles();
      for (size_t e = 0; e < a.size(); ++e) EXPECT_NEAR(a[e], b[e], 1e-10 * (1 + std::abs(b[e])));
    }
  }
}

// SPEC D4
TEST(RandomPrograms, PartsAreTheSameAsTheWhole) {
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomProgram program(seed);
    ir::Graph whole = derived(program.graph(), {.order = 1});
    Results inputs = random_inputs(whole, seed), want = run_all(whole, inputs);
    for (size_t i = 0; i < inputs[0].size(); ++i) {
      ir::Graph part = derived(program.graph(), {.order = 1, .wrt = {{fmt::format("x{}", i)}}});
      EXPECT_LE(count(part, 1), count(whole, 1));
      Results got = run_all(part, inputs);
      expect_same({got[1]}, {{want[1][i]}}, "wrt");
    }
  }
}

}  // namespace
}  // namespace gradus
