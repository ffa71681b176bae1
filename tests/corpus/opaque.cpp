// The disguise in which an opaque function stands for some of a program's nodes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/passes/passes.h"
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

Subject derive(const ir::Case& c, ir::Graph graph, const Subject& plain) {
  ir::DifferentiateOptions options;
  options.order = static_cast<int>(plain.graph.stages.size()) - 1;
  if (c.gradcheck) options.wrt = c.gradcheck->wrt;
  if (c.differentiate) {
    options.wrt = c.differentiate->wrt;
    options.total = c.differentiate->total;
  }
  Subject s;
  s.graph = ir::differentiate(graph, options);
  s.code = Code::compile(s.graph);
  s.inputs = plain.inputs;
  return s;
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

void expect_same(const Subject& plain, const Subject& hidden, size_t same_bits) {
  ASSERT_EQ(interface_of(plain), interface_of(hidden));
  Results a = run_all(plain), b = run_all(hidden);
  for (size_t k = 0; k < a.size(); ++k)
    for (size_t r = 0; r < a[k].size(); ++r) {
      const Tensor& either = a[k][r].defined() ? a[k][r] : b[k][r];
      if (!either.defined()) continue;
      double limit = k < same_bits ? 0 : tolerance_of(either.dtype());
      double worst = apart(a[k][r], b[k][r]);
      EXPECT_LE(worst, limit) << plain.code->results(k)[r].name << " of stage " << k << ": "
                              << describe(a[k][r]) << ", with a function " << describe(b[k][r]);
    }
}

}  // namespace

void opaque(const ir::Fixture& fixture) {
  size_t ran = 0;
  std::string why = "it has no case that derives";
  for (const ir::Case& c : fixture.cases) {
    if (c.error) continue;
    SCOPED_TRACE(fmt::format("case {}, line {}", c.name, c.where.line));
    Subject plain = make_subject(fixture, c);
    if (plain.graph.stages.size() < 2) continue;
    const ir::Graph& written = *fixture.module.graphs[c.graph];
    if (written.stages.size() > 1 && !is_derived(plain)) {
      why = "the later stages are not derivatives of stage 0";
      continue;
    }
    Hidden hidden = hide_nodes(written);
    if (hidden.nodes == 0) {
      why = "no nodes can be hidden: none differentiable, or sizes that their operands do not name";
      continue;
    }
    ++ran;
    expect_same(plain, derive(c, std::move(hidden.graph), plain), hidden.same_bits);
  }
  if (ran == 0) GTEST_SKIP() << why;
}

}  // namespace gradus::corpus
