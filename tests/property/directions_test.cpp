// Forward derivatives and batches of cotangents of every operator, against the backward passes.
// SPEC D8
#include <cmath>

#include <gtest/gtest.h>

#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

// For input i of the stage that comes next.
Tensor drawn(const State& state, size_t i) {
  const ir::Type& type = state.input_type(i);
  return random_tensor(type.dtype, sizes_of(type, state), state.input_name(i), 11,
                       *Context::default_context());
}

// Runs the stages with the sample's operands and, by name, random tangents and cotangents.
struct Ran {
  std::map<std::string, Tensor> inputs, results;
};
Ran run(const ir::Graph& program, const Sample& s) {
  State state(Code::compile(program));
  Ran ran;
  for (size_t k = 0; !state.finished(); ++k) {
    std::vector<Tensor> inputs = k == 0 ? s.inputs(DType::f64, 9) : std::vector<Tensor>();
    for (size_t i = inputs.size(); i < state.code()->inputs(k); ++i)
      inputs.push_back(drawn(state, i));
    for (size_t i = 0; i < inputs.size(); ++i)
      ran.inputs[state.code()->input_name(k, i)] = inputs[i];
    auto results = state.run(inputs);
    for (size_t i = 0; i < results.size(); ++i)
      ran.results[state.code()->results(k)[i].name] = results[i];
  }
  return ran;
}

double dot(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return 0;
  auto x = a.to_doubles(), y = b.to_doubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

void expect_near(double a, double b, const std::string& what) {
  EXPECT_LE(std::fabs(a - b), 1e-9 * std::max({1.0, std::fabs(a), std::fabs(b)}))
      << a << " and " << b << " of " << what;
}

// <ct, J t> = <J^T ct, t>.
TEST(Directions, JvpIsTheTransposeOfVjp) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!has_slopes(s, *program)) continue;
    Ran forward = run(ir::jvp(*program), s), backward = run(ir::differentiate(*program, {}), s);
    double by_forward = 0, by_backward = 0;
    for (const auto& [name, ct] : backward.inputs)
      if (name.starts_with("ct1_")) by_forward += dot(ct, forward.results["t_" + name.substr(4)]);
    for (const auto& [name, t] : forward.inputs)
      if (name.starts_with("t_")) by_backward += dot(t, backward.results["d1_" + name.substr(2)]);
    expect_near(by_forward, by_backward, s.text(DType::f64));
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

// Each row of the Jacobian is what the backward pass gives for that cotangent, whichever way it
// was found.
TEST(Directions, JacobianHasTheRowsOfVjp) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    // A Jacobian has a row for each element: their number has to be known.
    if (!has_slopes(s, *program) || data_decides_a_size(*program)) continue;
    Ran whole = run(ir::jacobian(*program), s), backward = run(ir::differentiate(*program, {}), s);
    for (const auto& [gradient, g] : backward.results) {
      if (!gradient.starts_with("d1_")) continue;
      std::string x = gradient.substr(3);
      std::vector<double> sum(g.defined() ? static_cast<size_t>(g.numel()) : 0);
      for (const auto& [name, ct] : backward.inputs) {
        if (!name.starts_with("ct1_")) continue;
        const Tensor& j = whole.results[fmt::format("jacobian_{}_{}", name.substr(4), x)];
        if (!j.defined()) continue;
        auto cts = ct.to_doubles(), js = j.to_doubles();
        ASSERT_EQ(js.size(), cts.size() * sum.size()) << s.text(DType::f64);
        for (size_t r = 0; r < cts.size(); ++r)
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += cts[r] * js[r * sum.size() + i];
      }
      for (size_t i = 0; i < sum.size(); ++i)
        expect_near(sum[i], g.item(static_cast<int64_t>(i)), s.text(DType::f64));
    }
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

// A batch of cotangents gives what each gives alone, in the first and in the second derivative.
TEST(Directions, BatchedCotangentsAreManyCotangents) {
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!has_slopes(s, *program)) continue;
    for (int order : {1, 2}) {
      ir::Graph stages = ir::differentiate(*program, {.order = order});
      State many(Code::compile(ir::batch_cotangents(stages, 2))), one(Code::compile(stages));
      std::vector<Tensor> inputs = s.inputs(DType::f64, 9), results;
      for (int k = 0; k < order; ++k) {
        for (size_t i = inputs.size(); i < one.code()->inputs(static_cast<size_t>(k)); ++i)
          inputs.push_back(drawn(one, i));
        many.run(inputs);
        one.run(inputs);
        inputs.clear();
      }
      for (size_t i = 0; i < many.code()->inputs(static_cast<size_t>(order)); ++i)
        inputs.push_back(drawn(many, i));
      results = many.run(inputs);
      for (int64_t b = 0; b < 2; ++b) {
        std::vector<Tensor> row;
        auto part = [&](const Tensor& t) {
          Layout layout(t.dtype(), Sizes(t.shape().begin() + 1, t.shape().end()),
                        Sizes(t.strides().begin() + 1, t.strides().end()));
          return t.view(layout, t.offset() + b * t.strides()[0]);
        };
        for (const Tensor& t : inputs) row.push_back(part(t));
        auto expected = one.clone().run(row);
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(expected[i].defined(), results[i].defined());
          if (!expected[i].defined()) continue;
          auto a = part(results[i]).to_doubles(), e = expected[i].to_doubles();
          for (size_t k = 0; k < e.size(); ++k) expect_near(a[k], e[k], s.text(DType::f64));
        }
      }
    }
  }
}

// All columns at once, forward, are what each direction gives.
TEST(Directions, HessianHasTheColumnsOfHvp) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto sample = s.program(DType::f64);
    if (!has_slopes(s, *sample)) continue;
    auto program = ir::parse(squared(s, *sample), "sample").graphs[0];
    Ran whole = run(ir::hessian(*program), s), along = run(ir::hvp(*program), s);
    for (const auto& [name, product] : along.results) {
      if (!name.starts_with("hvp_") || !product.defined()) continue;
      auto sum = product.to_doubles();
      for (const auto& [tangent, t] : along.inputs) {
        if (!tangent.starts_with("t_")) continue;
        const Tensor& h =
            whole.results[fmt::format("hessian_{}_{}", tangent.substr(2), name.substr(4))];
        if (!h.defined()) continue;
        auto ts = t.to_doubles(), hs = h.to_doubles();
        ASSERT_EQ(hs.size(), ts.size() * sum.size());
        for (size_t i = 0; i < ts.size(); ++i)
          for (size_t k = 0; k < sum.size(); ++k) sum[k] -= ts[i] * hs[i * sum.size() + k];
      }
      for (double left : sum) expect_near(1 + left, 1, squared(s, *sample));
    }
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

// The forward pass of sums of second derivatives is the diagonal of what the gradient's forward
// pass gives.
TEST(Directions, LaplacianIsTheTraceOfTheHessian) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto sample = s.program(DType::f64);
    if (!has_slopes(s, *sample)) continue;
    auto program = ir::parse(squared(s, *sample), "sample").graphs[0];
    Ran whole = run(ir::hessian(*program), s), sums = run(ir::laplacian(*program), s);
    for (const auto& [name, laplacian] : sums.results) {
      if (!name.starts_with("laplacian_")) continue;
      const std::string x = name.substr(10);
      const Tensor& h = whole.results[fmt::format("hessian_{}_{}", x, x)];
      double trace = 0;
      const int64_t n = whole.inputs[x].numel();
      for (int64_t i = 0; h.defined() && i < n; ++i) trace += h.item(i * n + i);
      expect_near(laplacian.defined() ? laplacian.item() : 0, trace, squared(s, *sample));
    }
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

}  // namespace
}  // namespace gradus::property
