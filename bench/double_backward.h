// Forward, backward and the backward of that, of a chain of tanh on f32[1], in the ways there are.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bench/programs.h"
#include "gradus/apply.h"
#include "gradus/engine.h"
#include "gradus/opaque_function.h"
#include "gradus/passes.h"

namespace gradus::bench {

inline Tensor one_value(double value) {
  return Tensor::from(DType::f32, std::array<int64_t, 1>{1}, std::vector<double>{value});
}

inline autograd::Variable tanh_chain(autograd::Variable x, int64_t length) {
  for (int64_t i = 0; i < length; ++i) x = autograd::apply("tanh", {x})[0];
  return x;
}

// As eager variables.
class EagerChain {
 public:
  explicit EagerChain(int64_t length) : length_(length) {}
  autograd::Variable run() const {
    autograd::Variable y = tanh_chain(x_, length_);
    autograd::Variable g = autograd::grad(std::array{y}, std::array{x_}, std::array{cotangent_},
                                          {.create_graph = true})[0];
    return autograd::grad(std::array{g}, std::array{x_}, std::array{cotangent_})[0];
  }

 private:
  int64_t length_;
  autograd::Variable x_{one_value(0.5), true}, cotangent_{one_value(1)};
};

// By the stages of a program: forward, backward, and the backward of that. The first run plans its
// memory, and is not measured with the others.
class StagedChain {
 public:
  explicit StagedChain(const std::string& text)
      : state_(Code::compile(ir::differentiate(ir::parse(text).program(), {.order = 2}))) {
    run();
  }
  std::vector<Tensor> run() {
    state_.restart();
    std::vector<Tensor> results;
    for (size_t k = 0; k < 3; ++k)
      results = state_.run(std::vector<Tensor>(state_.code()->inputs(k), k ? cotangent_ : x_));
    return results;
  }

 private:
  State state_;
  Tensor x_ = one_value(0.5), cotangent_ = one_value(1);
};

inline StagedChain symbolic_chain(int64_t length) {
  return StagedChain(chain_text(length, only_tanh, 1));
}

// The chain is one opaque function, whose handle two evals give to the engine.
class OpaqueChain final : public autograd::CppFunction {
 public:
  explicit OpaqueChain(int64_t length) : length_(length) {}
  static std::string name_of(int64_t length) { return fmt::format("bench.tanh_chain_{}", length); }
  std::string name() const override { return name_of(length_); }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    return {operands[0]};
  }
  autograd::Variables call(std::span<const autograd::Variable> operands) const override {
    return {tanh_chain(operands[0], length_)};
  }

 private:
  int64_t length_;
};

inline StagedChain evaluated_chain(int64_t length) {
  const std::string name = OpaqueChain::name_of(length);
  if (!ops::find_function(name)) ops::register_function(std::make_shared<OpaqueChain>(length));
  return StagedChain(fmt::format(R"(graph chain {{
    stage 0 (%x: f32[1]) {{
      %y = cpp_op(%x) {{name = "{}"}}
      return %y
    }}
  }})",
                                 name));
}

}  // namespace gradus::bench
