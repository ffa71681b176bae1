// The same programs in disguise: whatever may not change a bit of the results.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <set>

#include "fusion/kernels.h"
#include "gradus/gradcheck.h"
#include "gradus/text.h"
#include "tests/corpus/eager.h"
#include "tests/corpus/exported.h"
#include "tests/corpus/faults.h"
#include "tests/corpus/fused.h"
#include "tests/corpus/hidden.h"
#include "tests/corpus/reference.h"

namespace gradus::corpus {

namespace {

void expect_error(const ir::Fixture& fixture, const ir::Case& c) {
  try {
    run_all(make_subject(fixture, c));
    ADD_FAILURE() << "no error, expected: " << *c.error;
  } catch (const Error& e) {
    EXPECT_NE(e.message().find(*c.error), std::string::npos) << e.message();
  }
}

void expect_derivatives(const ir::Fixture& fixture, const ir::Case& c) {
  GradcheckOptions options;
  options.order = c.gradcheck->order;
  options.wrt = c.gradcheck->wrt;
  options.seed = c.gradcheck->seed;
  options.tolerance = c.gradcheck->tolerance.value_or(options.tolerance);
  GradcheckReport report = gradcheck(*fixture.module.graphs[c.graph], sources_of(c), options);
  for (const GradcheckEntry& e : report.entries) {
    EXPECT_TRUE(e.passed) << "stage " << e.stage << ", d/d" << e.input << ": " << e.why;
    // A fixture's inputs are chosen so that everything can be judged.
    EXPECT_EQ(e.kinks + e.edges, 0) << "stage " << e.stage << ", d/d" << e.input << ": " << e.why;
  }
  EXPECT_EQ(report.resampled, 0) << "there are kinks at these inputs";
}

// What the cases say: results within their tolerances, errors by their text, derivatives by
// differences.
// SPEC P6
void expected(const ir::Fixture& fixture) {
  for (const ir::Case& c : fixture.cases) {
    SCOPED_TRACE(fmt::format("case {}, line {}", c.name, c.where.line));
    if (c.error) {
      expect_error(fixture, c);
      continue;
    }
    Subject s = make_subject(fixture, c);
    for (const std::string& failure : unexpected(c, s, run_all(s))) ADD_FAILURE() << failure;
    if (c.gradcheck) expect_derivatives(fixture, c);
  }
}

// Evaluated node by node, without passes, plans or registers.
void node_by_node(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture))
    EXPECT_EQ(difference(s, evaluate_node_by_node(s), run_all(s)), "");
}

// Undefined gradients and zeros are told apart by no symbolic stage that has an operator between.
bool same_but_for_absence(const Tensor& a, const Tensor& b) {
  auto zero = [](const Tensor& t) {
    if (!t.defined()) return true;
    for (double v : t.to_doubles())
      if (v != 0) return false;
    return true;
  };
  if (a.defined() && b.defined()) return bitwise_equal(a, b);
  return zero(a) && zero(b);
}

// By some units in the last place.
void expect_near(const Tensor& x, const Tensor& y, const std::string& what) {
  auto a = x.to_doubles(), b = y.to_doubles();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-13 * std::max(1.0, std::fabs(a[i]))) << what;
}

void expect_by_engine(const Subject& s) {
  Results plain = run_all(s), engine = evaluate_eagerly(s);
  ASSERT_EQ(plain.size(), engine.size());
  for (size_t k = 0; k < plain.size(); ++k)
    for (size_t r = 0; r < plain[k].size(); ++r) {
      const Tensor &a = plain[k][r], &b = engine[k][r];
      const std::string what = fmt::format("{} of stage {}", s.code->results(k)[r].name, k);
      if (k >= stages_of_same_bits(s) && a.defined() && b.defined())
        expect_near(a, b, what);
      else
        EXPECT_TRUE(same_but_for_absence(a, b))
            << what << ": " << describe(a) << ", by the engine " << describe(b);
    }
}

// What depends on sizes alone, by some units in the last place.
void expect_close(const Subject& s, const Results& named, const Results& known) {
  for (size_t k = 0; k < named.size(); ++k)
    for (size_t r = 0; r < named[k].size(); ++r) {
      ASSERT_EQ(named[k][r].defined(), known[k][r].defined());
      if (named[k][r].defined())
        expect_near(named[k][r], known[k][r],
                    fmt::format("{} of stage {}", s.code->results(k)[r].name, k));
    }
}

// Run as variables, the stages by the engine: the same bits.
void eager(const ir::Fixture& fixture) {
  size_t ran = 0;
  std::string_view why = "every case expects an error";
  for (const Subject& s : subjects(fixture)) {
    why = "the later stages are not derivatives of stage 0";
    if (!is_derived(s)) continue;
    ++ran;
    if (!sizes_decide(s)) {
      expect_by_engine(s);
      continue;
    }
    Subject known = with_known_sizes(s);
    expect_by_engine(known);
    expect_close(s, run_all(s), run_all(known));
  }
  if (ran == 0) GTEST_SKIP() << why;
}

// With the steps of its loops in their place: the same bits. Derived from the program of the steps:
// the same bits as far as sums are the same.
void unrolled(const ir::Fixture& fixture) {
  size_t ran = 0;
  for (const Subject& s : subjects(fixture)) {
    if (stages_of_same_bits(s) == SIZE_MAX) continue;
    const Subject known = is_derived(s) ? with_known_sizes(s) : s;
    const Results plain = run_all(known);
    ir::Graph graph = known.graph;
    ir::unroll(graph);
    ir::verify(graph);
    State state(Code::compile(graph));
    EXPECT_EQ(difference(known, plain, run_all(state, known)), "");
    ++ran;
    if (!is_derived(known)) continue;
    ir::Graph forward = known.graph;
    forward.stages.resize(1);
    ir::compact(forward);
    ir::unroll(forward);
    const Subject again = derived(known, forward);
    const Results derivatives = run_all(again);
    for (size_t k = 0; k < plain.size(); ++k)
      for (size_t r = 0; r < plain[k].size(); ++r) {
        const Tensor &a = plain[k][r], &b = derivatives[k][r];
        const std::string what = fmt::format("{} of stage {}", known.code->results(k)[r].name, k);
        if (k < stages_of_same_bits(s))
          EXPECT_TRUE(same_but_for_absence(a, b)) << what;
        else if (a.defined() && b.defined())
          expect_near(a, b, what);
      }
  }
  if (ran == 0) GTEST_SKIP() << "there are no loops";
}

// Every step of the pipeline leaves a valid program that gives the same bits.
void after_each_pass(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    ir::verify(s.graph);
    ir::lower(s.graph, [&](std::string_view step, const ir::Graph& graph) {
      SCOPED_TRACE(step);
      ir::verify(graph);
      State state(Code::compile(graph));
      EXPECT_EQ(difference(s, plain, run_all(state, s)), "");
    });
  }
}

// Printed and read again: the same text, the same bits.
// SPEC P3
void printed(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    std::string text = ir::print(s.graph);
    ir::Module again = ir::parse(text, "printed");
    EXPECT_EQ(ir::print(again.program()), text);
    State state(Code::compile(again.program()));
    EXPECT_EQ(difference(s, run_all(s), run_all(state, s)), "");
  }
}

// After every stage a clone finishes the program; the original must not notice, nor later clones.
// SPEC I7
void cloned(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    State state(s.code);
    Results so_far;
    while (!state.finished()) {
      State clone = state.clone();
      for (int round = 0; round < 2; ++round) {
        State another = clone.clone();
        Results results = so_far;
        for (auto& r : run_all(another, s)) results.push_back(std::move(r));
        EXPECT_EQ(difference(s, plain, results), "");
      }
      so_far.push_back(state.run(s.inputs[state.next_stage()]));
    }
    EXPECT_EQ(difference(s, plain, so_far), "");
  }
}

enum class Lie { columns, gaps, expanded };

// The same values lying otherwise: the first index running fastest, every second element of a
// larger storage, or with stride 0 along dimensions in which nothing changes.
Tensor laid_out(const Tensor& t, Lie lie) {
  if (!t.defined() || t.rank() == 0) return t;
  size_t rank = t.shape().size();
  Sizes shape(t.shape()), strides(rank, 0);
  int64_t step = lie == Lie::gaps ? 2 : 1, offset = lie == Lie::gaps ? 3 : 0;
  if (lie == Lie::columns) {
    for (size_t d = 0; d < rank; ++d) {
      strides[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
  } else {
    for (size_t d = rank; d-- > 0;) {
      if (lie == Lie::expanded && shape[d] > 0) {
        // Every slice along d against the first one.
        Sizes one = shape;
        one[d] = 1;
        auto slice = [&](int64_t i) {
          Layout l(t.dtype(), one, Sizes(t.strides()));
          return t.view(l, t.offset() + i * t.strides()[d]);
        };
        bool same = t.numel() > 0;
        for (int64_t i = 1; same && i < shape[d]; ++i) same = bitwise_equal(slice(0), slice(i));
        if (same) continue;  // stride 0
      }
      strides[d] = step;
      step *= std::max<int64_t>(shape[d], 1);
    }
  }
  Sizes storage{offset + step + 1};
  Tensor whole = Tensor::zeros(t.dtype(), storage);
  Tensor odd = whole.view(Layout(t.dtype(), shape, strides), offset);
  copy_elements(t.layout(), t.data(), odd.layout(), odd.mutable_data());
  EXPECT_TRUE(bitwise_equal(odd, t));
  return odd;
}

void strided(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    for (Lie lie : {Lie::columns, Lie::gaps, Lie::expanded}) {
      Subject odd = s;
      for (auto& stage : odd.inputs)
        for (Tensor& t : stage) t = laid_out(t, lie);
      EXPECT_EQ(difference(s, plain, run_all(odd)), "") << "layout " << static_cast<int>(lie);
    }
  }
}

// Any number of workers gives the same bits.
void any_workers(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    for (int workers : {1, 2, 8}) {
      ContextOptions options;
      options.workers = workers;
      State state(s.code, std::make_shared<Context>(options));
      EXPECT_EQ(difference(s, plain, run_all(state, s)), "") << workers << " workers";
    }
  }
}

// What later stages compute again instead of finding it held.
void within_budgets(const ir::Fixture& fixture) {
  size_t ran = 0;
  for (const Subject& s : subjects(fixture)) {
    if (s.code->stages() < 2) continue;
    const Results plain = run_all(s);
    ir::MemoryBudget budget;
    State sized(s.code);
    run_all(sized, s);
    for (const std::string& name : s.code->dimensions())
      if (auto size = sized.dimension(name)) budget.sizes.emplace(name, *size);
    for (int tries = 0; tries < 20; ++tries) {
      std::shared_ptr<const Code> code;
      try {
        code = Code::compile(s.graph, {.memory_budget = budget});
      } catch (const Error& e) {
        const std::string what = e.what();
        const size_t at = what.find("at least ");
        if (at == std::string::npos) break;  // data decides a size
        budget.bytes = std::stoll(what.substr(at + 9));
        continue;
      }
      ++ran;
      Subject again = s;
      again.code = code;
      EXPECT_EQ(difference(s, plain, run_all(again)), "") << budget.bytes << " bytes";
      EXPECT_EQ(difference(s, plain, run_fused(again, fusing_context(2))), "");
      break;
    }
  }
  if (ran == 0) GTEST_SKIP() << "nothing is held that can be counted";
}

// A state may be run again and again; results of earlier rounds stay what they were.
void restarted(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    Results plain = run_all(s);
    State state(s.code);
    std::vector<Results> rounds;
    for (int round = 0; round < 3; ++round) {
      rounds.push_back(run_all(state, s));
      state.restart();
    }
    for (const Results& r : rounds) EXPECT_EQ(difference(s, plain, r), "");
  }
}

// Every byte another.
void spoil(const Tensor& t) {
  Tensor result = t;
  std::byte* data = result.mutable_data();
  for (int64_t i = 0; i < t.numel() * static_cast<int64_t>(size_of(t.dtype())); ++i)
    data[i] = ~data[i];
}

// The sign and the payload of a NaN are no engine's promise.
bool are_same_but_for_nan(const Tensor& a, const Tensor& b) {
  const auto x = a.to_doubles(), y = b.to_doubles();
  bool any = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) != std::isnan(y[i])) return false;
    if (!std::isnan(x[i]) && std::bit_cast<uint64_t>(x[i]) != std::bit_cast<uint64_t>(y[i]))
      return false;
    any = any || std::isnan(x[i]);
  }
  return any;
}

void expect_bound(const std::shared_ptr<const Code>& code, FusionMode mode,
                  std::vector<Tensor> inputs) {
  const auto context = mode == FusionMode::off ? Context::default_context() : fusing_context(1);
  State plain(code, context, {.fusion = FusionMode::off});
  BoundRun run(State(code, context, {.fusion = mode}), inputs);
  for (const char* when : {"at once", "again", "with other elements"}) {
    const bool others = when == std::string_view("with other elements");
    if (others)
      for (Tensor& t : inputs)
        if (t.defined() && t.dtype() == DType::f64 && t.numel() > 0)
          *t.mutable_data_as<double>() *= 0.5;
    std::vector<Tensor> expected;
    plain.restart();
    try {
      RunOptions options;  // a loop may not end then
      if (others) options.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      expected = plain.run(inputs, options);
    } catch (const Error& e) {
      if (e.message().find("deadline") != std::string::npos) return;
      EXPECT_TRUE(others) << e.what();
      EXPECT_THROW(run.run(), Error);
      continue;
    }
    bool fits = true;  // elements may decide sizes
    for (size_t i = 0; i < expected.size(); ++i)
      if (const Tensor& t = run.results()[i]; t.defined()) {
        fits = fits && std::ranges::equal(t.shape(), expected[i].shape());
        spoil(t);
      }
    if (!fits) {
      EXPECT_THROW(run.run(), Error);
      continue;
    }
    run.run();
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor &a = expected[i], &b = run.results()[i];
      ASSERT_EQ(a.defined(), b.defined()) << when << ", result " << i;
      if (a.defined()) {
        ASSERT_TRUE(bitwise_equal(a, b) || are_same_but_for_nan(a, b))
            << when << ", result " << code->results(0)[i].name;
      }
    }
  }
}

// All stages as one, bound to memory: each run writes all results, from what the inputs hold then.
void bound(const ir::Fixture& fixture) {
  for (const Subject& s : subjects(fixture)) {
    std::vector<std::string> absent;
    std::vector<Tensor> given;
    std::set<std::string_view> names;
    size_t results = 0;
    for (size_t k = 0; k < s.inputs.size(); ++k) {
      for (size_t i = 0; i < s.inputs[k].size(); ++i)
        if (s.inputs[k][i].defined())
          given.push_back(s.inputs[k][i]);
        else
          absent.push_back(s.graph[s.graph.stages[k].inputs[i]].name);
      results += s.graph.stages[k].results.size();
      for (const ir::Result& r : s.graph.stages[k].results) names.insert(r.name);
    }
    if (names.size() != results) continue;  // one stage cannot have a name twice
    const auto code = Code::compile(ir::join_stages(s.graph, 0, absent));
    for (FusionMode mode : {FusionMode::off, FusionMode::first}) {
      if (mode == FusionMode::first && !has_kernels()) continue;
      std::vector<Tensor> inputs;
      for (const Tensor& t : given) inputs.push_back(t.copy());
      expect_bound(code, mode, inputs);
    }
  }
}

}  // namespace

const std::vector<Disguise> disguises = {
    {"expected", expected},
    {"node_by_node", node_by_node},
    {"eager", eager},
    {"opaque", opaque},
    {"unrolled", unrolled},
    {"after_each_pass", after_each_pass},
    {"printed", printed},
    {"cloned", cloned},
    {"strided", strided},
    {"any_workers", any_workers},
    {"within_budgets", within_budgets, 4},
    {"restarted", restarted},
    {"bound", bound, 4},
    {"failing_anywhere", failing_anywhere},
    {"failing_in_groups", failing_in_groups, 4},
    {"cancelled_anywhere", cancelled_anywhere},
    {"fused", fused},
    {"fused_from_disk", fused_from_disk, 8},
    {"whole_stages", whole_stages, 2},
    {"exported", exported},
};

}  // namespace gradus::corpus
