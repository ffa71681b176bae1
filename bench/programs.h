// Programs that the benchmarks run, as text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::bench {

// A straight line of `nodes` pointwise operators, `ops` in turn, on f32[size]: binary ones take the
// running value and %w.
inline std::string chain_text(int64_t nodes, std::span<const char* const> ops, int64_t size) {
  std::string s = fmt::format("graph chain {{\n  stage 0 (%x: f32[{0}], %w: f32[{0}]) {{\n", size);
  std::string last = "x";
  for (int64_t n = 0; n < nodes; ++n) {
    std::string op = ops[static_cast<size_t>(n) % ops.size()];
    bool unary = op == "tanh" || op == "sin";
    s += fmt::format("    %v{} = {}(%{}{})\n", n, op, last, unary ? "" : ", %w");
    last = fmt::format("v{}", n);
  }
  return s + fmt::format("    return y = %{}\n  }}\n}}\n", last);
}

// tanh(a b + c) sigmoid(a) - c / 2 over n elements of f32: the chain that bandwidth is measured by.
inline std::string gated_chain_text(int64_t n) {
  return fmt::format(R"(graph chain {{
  stage 0 (%a: f32[{0}], %b: f32[{0}], %c: f32[{0}]) {{
    %p = mul(%a, %b)
    %s = add(%p, %c)
    %t = tanh(%s)
    %g = sigmoid(%a)
    %m = mul(%t, %g)
    %h = mul(%c, 0.5)
    %y = sub(%m, %h)
    return %y
  }}
}})",
                     n);
}

inline std::vector<Tensor> chain_inputs(int64_t size) {
  std::vector<double> x, w;
  for (int64_t i = 0; i < size; ++i) {
    x.push_back(0.5 + 0.001 * static_cast<double>(i));
    w.push_back(0.99 - 0.0005 * static_cast<double>(i));
  }
  return {Tensor::from(DType::f32, Sizes{size}, x), Tensor::from(DType::f32, Sizes{size}, w)};
}

inline constexpr const char* add_mul_tanh[] = {"add", "mul", "tanh"};
inline constexpr const char* add_mul[] = {"add", "mul"};
inline constexpr const char* only_tanh[] = {"tanh"};

}  // namespace gradus::bench
