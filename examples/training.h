// What the larger examples train with: random numbers, first weights, and Adam.
#pragma once

#include <cmath>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "tensor/tensor.h"

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
