// The models of bench/models.h as libtorch's eager operators.
#pragma once

#include <cmath>
#include <functional>
#include <span>

#include <torch/torch.h>

#include "bench/models.h"
#include "gradus/tensor.h"

namespace gradus::bench {

using Tensors = std::vector<at::Tensor>;
namespace F = torch::nn::functional;

// Inputs in the model's order; gives the loss, then what the step gives for each parameter.
using Peer = std::function<Tensors(const Tensors&)>;

inline Tensors with_slopes(const at::Tensor& loss, const Tensors& parameters) {
  Tensors out{loss};
  for (at::Tensor& g : torch::autograd::grad({loss}, parameters, {}, false, false, true))
    out.push_back(std::move(g));
  return out;
}

inline Tensors first(const Tensors& in, int64_t n) { return Tensors(in.begin(), in.begin() + n); }

inline Tensors lstm_step(const Tensors& in) {
  at::Tensor h = in[5], c = in[6];
  for (const at::Tensor& x : in[4].unbind(0)) {
    auto q = (F::linear(x, in[0], in[2]) + F::linear(h, in[1], in[3])).chunk(4, 1);
    c = q[1].sigmoid() * c + q[0].sigmoid() * q[2].tanh();
    h = q[3].sigmoid() * c.tanh();
  }
  return with_slopes(h.square().mean(), first(in, 4));
}

inline Tensors wgan_gp_step(const Tensors& in) {
  auto critic = [&](const at::Tensor& x) {
    return F::linear(F::linear(F::linear(x, in[0], in[1]).tanh(), in[2], in[3]).tanh(), in[4],
                     in[5]);
  };
  at::Tensor plain = critic(in[7]).mean() - critic(in[6]).mean();
  at::Tensor between = (in[8] * in[6] + (1 - in[8]) * in[7]).requires_grad_(true);
  at::Tensor total = critic(between).sum();
  at::Tensor slope = torch::autograd::grad({total}, {between}, {}, true, true)[0];
  at::Tensor penalty = (slope.norm(2, {1}) - 1).square().mean();
  return with_slopes(plain + 10 * penalty, first(in, 6));
}

// The parameters change in place.
inline Tensors mlp_step(const Tensors& in) {
  at::Tensor h = F::linear(in[6], in[0], in[1]).relu();
  h = F::linear(h, in[2], in[3]).relu();
  Tensors out = with_slopes(F::cross_entropy(F::linear(h, in[4], in[5]), in[7]), first(in, 6));
  torch::NoGradGuard guard;
  for (size_t i = 0; i < 6; ++i) {
    at::Tensor parameter = in[i];
    out[i + 1] = parameter.add_(out[i + 1], -1e-4);
  }
  return out;
}

inline Tensors transformer_step(const Tensors& in) {
  const at::Tensor& x = in[12];
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2), heads = 4;
  at::Tensor n = at::layer_norm(x, {width}, in[0], in[1]);
  auto parts = F::linear(n, in[4], in[5])
                   .view({batch, length, 3, heads, width / heads})
                   .permute({2, 0, 3, 1, 4});
  at::Tensor scores = parts[0].matmul(parts[1].transpose(-1, -2)) *
                      (1 / std::sqrt(static_cast<double>(width / heads)));
  at::Tensor o =
      scores.softmax(-1).matmul(parts[2]).transpose(1, 2).reshape({batch, length, width});
  at::Tensor y = x + F::linear(o, in[6], in[7]);
  at::Tensor up = F::gelu(F::linear(at::layer_norm(y, {width}, in[2], in[3]), in[8], in[9]));
  return with_slopes((y + F::linear(up, in[10], in[11])).square().mean(), first(in, 12));
}

inline Tensors cifar_step(const Tensors& in) {
  at::Tensor h = at::max_pool2d(torch::conv2d(in[8], in[0], in[1], 1, 1).relu(), 2);
  h = at::max_pool2d(torch::conv2d(h, in[2], in[3], 1, 1).relu(), 2);
  h = F::linear(h.flatten(1), in[4], in[5]).relu();
  return with_slopes(F::cross_entropy(F::linear(h, in[6], in[7]), in[9]), first(in, 8));
}

inline const Peer peers[] = {lstm_step, wgan_gp_step,     lstm_step, wgan_gp_step,
                             mlp_step,  transformer_step, cifar_step};

inline Tensors torch_inputs(const Model& model, std::span<const Tensor> inputs) {
  Tensors in;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    auto dtype = model.inputs[i].below ? at::kLong : at::kFloat;
    in.push_back(at::from_blob(const_cast<std::byte*>(t.data()),
                               at::IntArrayRef(t.shape().data(), t.shape().size()), dtype)
                     .clone()
                     .requires_grad_(model.inputs[i].parameter));
  }
  return in;
}

}  // namespace gradus::bench
