// What the larger examples train with: random numbers, programs and their training step, Adam.
#pragma once

#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/tensor.h"
#include "gradus/text.h"

inline gradus::Tensor matrix(int64_t rows, int64_t columns, std::span<const double> values) {
  return gradus::Tensor::from(gradus::DType::f64, gradus::Sizes{rows, columns}, values);
}

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  double uniform() { return (static_cast<double>(engine_()) + 0.5) / 4294967296.0; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() {  // Box and Muller's
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  size_t below(size_t n) { return static_cast<size_t>(uniform() * static_cast<double>(n)); }

  gradus::Tensor normals(gradus::Sizes shape, double scale) {
    std::vector<double> values(static_cast<size_t>(gradus::numel(shape)));
    for (double& v : values) v = scale * normal();
    return gradus::Tensor::from(gradus::DType::f64, shape, values);
  }

 private:
  std::mt19937 engine_;
};

// Adam, as Kingma and Ba (2015) give it, over f64 tensors that it owns.
class Adam {
 public:
  explicit Adam(std::vector<gradus::Tensor> parameters, double beta1 = 0.9, double beta2 = 0.999)
      : parameters_(std::move(parameters)), beta1_(beta1), beta2_(beta2) {
    for (gradus::Tensor& p : parameters_) {
      p = p.copy();
      moments_.emplace_back(static_cast<size_t>(p.numel()));
    }
  }
  const std::vector<gradus::Tensor>& parameters() const { return parameters_; }

  // One gradient for each parameter; an undefined one leaves its parameter alone. The parameters
  // are new tensors then: a state may still hold the old ones.
  void step(std::span<const gradus::Tensor> gradients, double rate) {
    ++steps_;
    const double bias1 = 1 - std::pow(beta1_, steps_), bias2 = 1 - std::pow(beta2_, steps_);
    for (size_t k = 0; k < parameters_.size(); ++k) {
      if (!gradients[k]) continue;
      const gradus::Tensor gradient = gradients[k].contiguous();
      const double* g = gradient.data_as<double>();
      gradus::Tensor next = parameters_[k].copy();
      double* p = next.mutable_data_as<double>();
      for (Moments& m : moments_[k]) {
        m.first = beta1_ * m.first + (1 - beta1_) * *g;
        m.second = beta2_ * m.second + (1 - beta2_) * *g * *g;
        *p++ -= rate * (m.first / bias1) / (std::sqrt(m.second / bias2) + 1e-8);
        ++g;
      }
      parameters_[k] = next;
    }
  }

 private:
  struct Moments {
    double first = 0, second = 0;
  };
  std::vector<gradus::Tensor> parameters_;
  std::vector<std::vector<Moments>> moments_;
  double beta1_, beta2_;
  int steps_ = 0;
};

// The graph of that name. Throws Error where there is none.
inline std::shared_ptr<const gradus::ir::Graph> graph(const gradus::ir::Module& module,
                                                      const std::string& name) {
  for (const auto& g : module.graphs)
    if (g->name == name) return g;
  throw gradus::Error("the file has no graph '{}'", name);
}

// Runs one program again and again, with kernels compiled before the first time.
class Runner {
 public:
  explicit Runner(
      const gradus::ir::Graph& program,
      const std::shared_ptr<gradus::Context>& context = gradus::Context::default_context())
      : state_(gradus::Code::compile(program), context, {.fusion = gradus::FusionMode::first}) {}

  // Stage 0.
  std::vector<gradus::Tensor> run(std::span<const gradus::Tensor> inputs) {
    state_.restart();
    return state_.run(inputs);
  }
  // The stage after those that have run.
  std::vector<gradus::Tensor> next(std::span<const gradus::Tensor> cotangents) {
    return state_.run(cotangents);
  }

 private:
  gradus::State state_;
};

// A program's loss, its first result, and the loss's gradients with respect to weights, which are
// the inputs from the one named `first_weight` on: stages 0 and 1.
class TrainingStep {
 public:
  TrainingStep(const gradus::ir::Graph& program, const std::string& first_weight,
               const std::shared_ptr<gradus::Context>& context = gradus::Context::default_context())
      : TrainingStep(program, weights_of(program, first_weight), context) {}

  double run(std::span<const gradus::Tensor> inputs) {
    results_ = runner_.run(inputs);
    std::vector<gradus::Tensor> cotangents(results_.size());
    cotangents[0] = gradus::Tensor::scalar(gradus::DType::f64, 1);  // the others are absent
    gradients_ = runner_.next(cotangents);
    return results_[0].item();
  }
  const std::vector<gradus::Tensor>& results() const { return results_; }
  const std::vector<gradus::Tensor>& gradients() const { return gradients_; }

 private:
  TrainingStep(const gradus::ir::Graph& program, std::vector<std::string> weights,
               const std::shared_ptr<gradus::Context>& context)
      : runner_(gradus::ir::differentiate(program, {.order = 1, .wrt = std::move(weights)}),
                context) {}
  static std::vector<std::string> weights_of(const gradus::ir::Graph& program,
                                             const std::string& first) {
    std::vector<std::string> out;
    for (gradus::ir::ValueId input : program.stages[0].inputs) {
      const std::string& name = program[input].name;
      if (!out.empty() || name == first) out.push_back(name);
    }
    return out;
  }

  Runner runner_;
  std::vector<gradus::Tensor> results_, gradients_;
};

// Weights of fully connected layers, W[out, in] and b[out] in turns.
inline std::vector<gradus::Tensor> layers(std::initializer_list<int64_t> widths, Random& random) {
  std::vector<gradus::Tensor> out;
  const int64_t* in = widths.begin();
  for (const int64_t* to = in + 1; to != widths.end(); in = to++) {
    out.push_back(random.normals({*to, *in}, 1 / std::sqrt(static_cast<double>(*in))));
    out.push_back(gradus::Tensor::zeros(gradus::DType::f64, gradus::Sizes{*to}));
  }
  return out;
}

// `values`, then `weights`: a program's inputs.
inline std::vector<gradus::Tensor> with(std::vector<gradus::Tensor> values,
                                        const std::vector<gradus::Tensor>& weights) {
  values.insert(values.end(), weights.begin(), weights.end());
  return values;
}
