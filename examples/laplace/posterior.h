// The posterior of a network's weights: its loss, slopes and curvature, each a program that is run.
#pragma once

#include <optional>

#include "examples/training.h"
#include "gradus/passes.h"

constexpr int64_t weights = 141;

inline gradus::Tensor column(const std::vector<double>& v) {
  return matrix(static_cast<int64_t>(v.size()), 1, v);
}

class Posterior {
 public:
  Posterior(const gradus::ir::Module& module, gradus::Tensor x, gradus::Tensor y)
      : training_(
            gradus::ir::differentiate(*graph(module, "posterior"), {.order = 1, .wrt = {{"w"}}})),
        curvature_(gradus::ir::hvp(*graph(module, "posterior"), {.wrt = {{"w"}}})),
        solve_(*graph(module, "solve")),
        x_(std::move(x)),
        y_(std::move(y)) {}

  double loss(const gradus::Tensor& w) {
    return curvature_.run(std::array{w, x_, y_, zero_})[0].item();
  }
  // Also leaves the gradient.
  double train(const gradus::Tensor& w) {
    const double loss = training_.run(std::array{w, x_, y_})[0].item();
    gradient_ = training_.next(std::array{gradus::Tensor::scalar(gradus::DType::f64, 1)});
    return loss;
  }
  const std::vector<gradus::Tensor>& gradient() const { return gradient_; }
  gradus::Tensor hessian_times(const gradus::Tensor& w, const gradus::Tensor& v) {
    return curvature_.run(std::array{w, x_, y_, v})[1];
  }
  // One product for each weight.
  gradus::Tensor hessian(const gradus::Tensor& w) {
    std::vector<double> h;
    for (int64_t k = 0; k < weights; ++k) {
      std::vector<double> unit(weights);
      unit[static_cast<size_t>(k)] = 1;
      const std::vector<double> row =
          hessian_times(w, gradus::Tensor::from(gradus::DType::f64, gradus::Sizes{weights}, unit))
              .to_doubles();
      h.insert(h.end(), row.begin(), row.end());
    }
    return matrix(weights, weights, h);
  }
  // (h + damping)^-1 b, and half of it; nothing where h + damping is not positive definite.
  std::optional<std::vector<gradus::Tensor>> solve(const gradus::Tensor& h, double damping,
                                                   const gradus::Tensor& b) {
    try {
      return solve_.run(std::array{h, gradus::Tensor::scalar(gradus::DType::f64, damping), b});
    } catch (const gradus::Error&) {
      return {};
    }
  }

 private:
  Runner training_, curvature_, solve_;
  const gradus::Tensor x_, y_,
      zero_ = gradus::Tensor::zeros(gradus::DType::f64, gradus::Sizes{weights});
  std::vector<gradus::Tensor> gradient_;
};
