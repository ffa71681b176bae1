// Helpers for the tests of pointwise operators: values in a domain, derivatives against
// differences.
#pragma once

#include "tests/ops/shape_support.h"

namespace gradus::ops::test {

// Evenly random in [low, high).
inline Tensor uniform(std::span<const int64_t> shape, double low, double high, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> value(low, high);
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& v : values) v = value(generator);
  return Tensor::from(DType::f64, shape, values);
}

inline Tensor vector_of(std::vector<double> values, DType dtype = DType::f64) {
  return Tensor::from(dtype, Sizes{static_cast<int64_t>(values.size())}, values);
}

inline ir::Number number(double value) { return ir::Number::of(value); }
inline ir::Number integer(int64_t value) { return ir::Number::of(value); }

// With phi the sum of <ct, result> over stage k-1, every result of stage k, element by element
// random in its cotangent, against fourth-order differences of phi along a random direction.
inline void expect_smooth_derivatives(std::string_view op,
                                      const std::vector<EagerOperand>& operands,
                                      const LiteralList& attributes = {}, int order = 3) {
  Program program(op, operands, attributes, order);
  const ir::Graph& g = program.graph();
  std::vector<std::vector<Tensor>> at{program.inputs()};
  for (int s = 1; s <= order; ++s) {
    at.emplace_back();
    for (ir::ValueId v : g.stages[s].inputs) {
      Sizes shape;
      for (const Dim& d : g[v].type.dims) shape.push_back(d.value());
      at[s].push_back(uniform(shape, -1, 1, 100 * s + at[s].size()));
    }
  }
  for (int k = 1; k <= order; ++k) {
    std::map<std::string, Tensor> direction;
    for (int s = 0; s < k; ++s)
      for (size_t i = 0; i < at[s].size(); ++i)
        if (is_floating(at[s][i].dtype()))
          direction[g[g.stages[s].inputs[i]].name] =
              uniform(at[s][i].shape(), -1, 1, 7 + 10 * s + i);
    auto phi = [&](double step) {
      std::vector<std::vector<Tensor>> moved(at.begin(), at.begin() + k);
      for (int s = 0; s < k; ++s)
        for (size_t i = 0; i < moved[s].size(); ++i) {
          auto d = direction.find(g[g.stages[s].inputs[i]].name);
          if (d == direction.end()) continue;
          auto x = moved[s][i].to_doubles(), by = d->second.to_doubles();
          for (size_t e = 0; e < x.size(); ++e) x[e] += step * by[e];
          moved[s][i] = Tensor::from(DType::f64, moved[s][i].shape(), x);
        }
      auto results = program.run(moved)[k - 1];
      double sum = 0;
      for (size_t i = 0; i < results.size(); ++i)
        for (size_t c = 0; c < at[k].size(); ++c)
          if (results[i].defined() &&
              g[g.stages[k].inputs[c]].name ==
                  fmt::format("ct{}_{}", k, g.stages[k - 1].results[i].name))
            sum += inner(results[i], at[k][c]);
      return sum;
    };
    constexpr double h = 1e-3;
    double numeric = (8 * (phi(h) - phi(-h)) - (phi(2 * h) - phi(-2 * h))) / (12 * h);
    double analytic = 0;
    auto results = program.run({at.begin(), at.begin() + k + 1})[k];
    for (size_t i = 0; i < results.size(); ++i) {
      std::string name = g.stages[k].results[i].name.substr(fmt::format("d{}_", k).size());
      if (results[i].defined()) analytic += inner(results[i], direction.at(name));
    }
    EXPECT_NEAR(analytic, numeric, 5e-8 * std::max(1.0, std::abs(numeric)))
        << op << ", stage " << k;
  }
}

// y = op(x…) and its derivatives by one operand, element by element: all other cotangents are 0.
inline std::vector<std::vector<double>> slopes(std::string_view op,
                                               const std::vector<EagerOperand>& operands,
                                               const LiteralList& attributes = {}, int order = 1,
                                               size_t input = 0) {
  Program program(op, operands, attributes, order);
  const ir::Graph& g = program.graph();
  std::vector<std::vector<Tensor>> at{program.inputs()};
  for (int s = 1; s <= order; ++s) {
    at.emplace_back();
    for (ir::ValueId v : g.stages[s].inputs) {
      Sizes shape;
      for (const Dim& d : g[v].type.dims) shape.push_back(d.value());
      bool wanted = s == 1 || g[v].name == fmt::format("ct{}_d{}_x{}", s, s - 1, input);
      std::vector<double> values(static_cast<size_t>(numel(shape)), wanted ? 1.0 : 0.0);
      at[s].push_back(Tensor::from(DType::f64, shape, values));
    }
  }
  auto results = program.run(at);
  std::vector<std::vector<double>> out;
  for (int s = 0; s <= order; ++s) {
    size_t i = 0;
    while (s && g.stages[s].results[i].name != fmt::format("d{}_x{}", s, input)) ++i;
    out.push_back(results[s][i].defined() ? results[s][i].to_doubles() : std::vector<double>{});
  }
  return out;
}

// The same numbers; NaN equals NaN, and the sign of zero counts only where `signs` says so.
inline void expect_same(const std::vector<double>& got, const std::vector<double>& want,
                        bool signs = false) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << ": " << got[i];
    else
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    if (signs) {
      EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << "element " << i;
    }
  }
}

}  // namespace gradus::ops::test
