// The disguise in which an opaque function stands for some of a program's nodes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/passes.h"
#include "gradus/registry.h"
#include "tests/corpus/association.h"
#include "tests/corpus/eager.h"
#include "tests/corpus/hidden.h"

namespace gradus::corpus {

namespace {

// How far two results are apart: 0 for the same bits, where NaN is NaN. An absent one is zeros: of
// a function it is not known whether a gradient is structurally zero.
double apart(const Tensor& a, const Tensor& b) {
  if (a.defined() && b.defined()) {
    if (describe(a) != describe(b)) return INFINITY;
    if (bitwise_equal(a, b)) return 0;
  }
  std::vector<double> x = a.defined() ? a.to_doubles() : std::vector<double>(),
                      y = b.defined() ? b.to_doubles() : std::vector<double>();
  if (!a.defined()) x.resize(y.size());
  if (!b.defined()) y.resize(x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] == y[i]) {
      // Zeros of two signs differ in a bit; where one is absent they are all one.
      if (a.defined() && b.defined() && std::signbit(x[i]) != std::signbit(y[i]))
        worst = std::max(worst, std::numeric_limits<double>::min());
      continue;
    }
    double d = std::fabs(x[i] - y[i]) / std::max(1.0, std::fabs(x[i]));
    worst = std::max(worst, std::isnan(d) ? INFINITY : d);
  }
  return worst;
}

std::vector<std::string> interface_of(const Subject& s) {
  std::vector<std::string> names;
  for (size_t k = 0; k < s.code->stages(); ++k) {
    for (size_t i = 0; i < s.code->inputs(k); ++i) names.push_back(s.code->input_name(k, i));
    for (const ir::Result& r : s.code->results(k)) names.push_back(r.name);
  }
  return names;
}

// Rounding differs where sums associate otherwise: by a few units in the last place of f64, and by
// what the dtype allows of those that have fewer bits.
double tolerance_of(DType dtype) {
  return dtype == DType::f64 ? 1e-13 : ir::default_tolerance(dtype);
}

void expect_same(const Subject& plain, const Opaque& hidden) {
  SCOPED_TRACE(hidden.way);
  ASSERT_EQ(interface_of(plain), interface_of(hidden.subject));
  Results a = run_all(plain), b = run_all(hidden.subject);
  for (size_t k = 0; k < a.size(); ++k)
    for (size_t r = 0; r < a[k].size(); ++r) {
      const Tensor& either = a[k][r].defined() ? a[k][r] : b[k][r];
      if (!either.defined()) continue;
      double limit = k < hidden.same_bits ? 0 : tolerance_of(either.dtype());
      double worst = apart(a[k][r], b[k][r]);
      EXPECT_LE(worst, limit) << plain.code->results(k)[r].name << " of stage " << k << ": "
                              << describe(a[k][r]) << ", with a function " << describe(b[k][r]);
    }
}

bool data_decides_a_size(const Subject& subject) {
  return std::ranges::any_of(subject.graph.stages[0].nodes, [](const ir::Node& n) {
    return ops::count_in(*n.op, n.attributes).has_value();
  });
}

}  // namespace

std::vector<Opaque> with_functions(const Subject& subject) {
  std::vector<Opaque> list;
  ir::Graph stage = stage_to_hide(subject);
  auto add = [&](const char* way, const Hidden& h) {
    if (h.function.empty()) return;
    Opaque o{way, derived(subject, h.graph), 0};
    o.same_bits = std::min(stages_alike(o.subject.graph, h.function, subject.graph),
                           stages_of_same_bits(subject));
    list.push_back(std::move(o));
  };
  add("all of stage 0", hide_all(stage));
  if (stage.stages[0].nodes.size() < 2) return list;
  size_t stages = subject.graph.stages.size();
  add("a part that sums alike", hide_some(stage, [&](const Hidden& h) {
        return stages_alike(derived(subject, h.graph).graph, h.function, subject.graph) == stages;
      }));
  add("a part", hide_some(stage, [](const Hidden&) { return true; }));
  return list;
}

void opaque(const ir::Fixture& fixture) {
  size_t ran = 0;
  std::string why = "it has no case that derives";
  for (const ir::Case& c : fixture.cases) {
    if (c.error) continue;
    SCOPED_TRACE(fmt::format("case {}, line {}", c.name, c.where.line));
    Subject plain = make_subject(fixture, c);
    if (plain.graph.stages.size() < 2) continue;
    if (fixture.module.graphs[c.graph]->stages.size() > 1 && !is_derived(plain)) {
      why = "the later stages are not derivatives of stage 0";
      continue;
    }
    if (sizes_decide(plain)) plain = with_known_sizes(plain);
    std::vector<Opaque> list = with_functions(plain);
    if (list.empty()) why = "nothing can be hidden: sizes that operands do not name, or no path";
    for (const Opaque& o : list) {
      ++ran;
      expect_same(plain, o);
    }
    // `total` alone hands cotangents to the results of two stages at once, which are two evals.
    // Where data decides a size, only parts can be hidden: no operand names it.
    if (!list.empty() && !plain.options.total && !data_decides_a_size(plain)) {
      EXPECT_EQ(list.front().same_bits,
                std::min(plain.graph.stages.size(), stages_of_same_bits(plain)))
          << "not to the last bit";
    }
  }
  if (ran == 0) GTEST_SKIP() << why;
}

}  // namespace gradus::corpus
