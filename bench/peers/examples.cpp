// Training steps of the examples (examples/) beside libtorch's: example_step.h says how.
#include "bench/peers/example_step.h"
#include "examples/char_lstm/unrolled.h"
#include "gradus/passes.h"
#include "gradus/text.h"

namespace gradus::bench {
namespace {

namespace F = torch::nn::functional;

constexpr int64_t clusters = 16, atoms = 13, functions = 16, width = 24;

// In the program's order.
std::vector<Tensor> force_field_inputs() {
  std::vector<double> r;
  for (int64_t k = 0; k < clusters * atoms; ++k) {  // a grid of 3 x 3 x 2 places, a little off it
    const int64_t a = k % atoms;
    for (int64_t place : {a % 3, a / 3 % 3, a / 9})
      r.push_back(3.9 * static_cast<double>(place) + 0.2 * std::sin(3.7 * double(r.size())));
  }
  std::vector<double> centre;
  for (int64_t k = 0; k < functions; ++k) centre.push_back(3 + 0.4 * static_cast<double>(k));
  return {Tensor::from(DType::f64, Sizes{clusters, atoms, 3}, r),
          drawn("energy_ref", {clusters}),
          drawn("force_ref", {clusters, atoms, 3}),
          Tensor::from(DType::f64, Sizes{functions}, centre),
          drawn("shift", {2 * functions}),
          drawn("scale", {2 * functions}),
          drawn("w1", {width, 2 * functions}),
          drawn("b1", {width}),
          drawn("w2", {width, width}),
          drawn("b2", {width}),
          drawn("w3", {1, width}),
          drawn("b3", {1})};
}

Tensors force_field(const Tensors& in) {
  const at::Tensor r = in[0].detach().requires_grad_(true);
  const at::Tensor d = r.unsqueeze(1) - r.unsqueeze(2);
  const at::Tensor self = torch::eye(atoms, torch::kFloat64);
  const at::Tensor distance = (d.square().sum({3}) + self).sqrt();
  const at::Tensor window =
      ((distance.clamp_max(10.0) * 0.3141592653589793).cos() + 1) * 0.5 * (1 - self);
  const at::Tensor far = distance.unsqueeze(3);
  const at::Tensor g = ((far - in[3]).square() * -4.0).exp() * window.unsqueeze(3);
  const at::Tensor angular = g.transpose(2, 3).matmul(d / far).square().sum({3});
  const at::Tensor x = (torch::cat({g.sum({2}), angular}, 2) - in[4]) * in[5];
  const at::Tensor h = F::linear(F::linear(x, in[6], in[7]).tanh(), in[8], in[9]).tanh();
  const at::Tensor energy = F::linear(h, in[10], in[11]).sum({1, 2});
  const at::Tensor force = -torch::autograd::grad({energy.sum()}, {r}, {}, true, true)[0];
  const at::Tensor loss =
      (force - in[2]).square().mean() + ((energy - in[1]) / double(atoms)).square().mean();
  return with_slopes(loss, in, 6);
}

at::Tensor mlp(const at::Tensor& x, const Tensors& in, size_t w,
               const std::function<at::Tensor(const at::Tensor&)>& bend) {
  at::Tensor h = bend(F::linear(x, in[w], in[w + 1]));
  h = bend(F::linear(h, in[w + 2], in[w + 3]));
  return F::linear(h, in[w + 4], in[w + 5]);
}

at::Tensor slope(const at::Tensor& y, const at::Tensor& x) {
  return torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
}

Tensors pinn(const Tensors& in) {
  const auto bend = [](const at::Tensor& x) { return x.tanh(); };
  const at::Tensor x = in[0].detach().requires_grad_(true);
  const at::Tensor t = in[1].detach().requires_grad_(true);
  const at::Tensor u = mlp(torch::cat({x, t}, 1), in, 5, bend);
  const auto d = torch::autograd::grad({u.sum()}, {x, t}, {}, true, true);
  const at::Tensor residual = d[1] + u * d[0] - slope(d[0], x) * 0.05;
  const at::Tensor v = mlp(torch::cat({in[2], in[3]}, 1), in, 5, bend);
  return with_slopes(residual.square().mean() + (v - in[4]).square().mean() * 10, in, 5);
}

Tensors wgan_gp(const Tensors& in) {
  const auto critic = [&](const at::Tensor& x) {
    return mlp(x, in, 9, [](const at::Tensor& a) { return at::leaky_relu(a, 0.2); });
  };
  at::Tensor fake;
  {
    torch::NoGradGuard guard;
    fake = mlp(in[1], in, 3, [](const at::Tensor& a) { return a.relu(); });
  }
  const at::Tensor apart = critic(in[0]).mean() - critic(fake).mean();
  const at::Tensor between = at::lerp(fake, in[0], in[2]).requires_grad_(true);
  const at::Tensor length = (slope(critic(between), between).square().sum({1}) + 1e-12).sqrt();
  return with_slopes((length - 1).square().mean() - apart, in, 9);
}

Tensors char_lstm(const Tensors& in) {
  const int64_t steps = in[0].size(0) - 1;
  at::Tensor h = torch::zeros({in[0].size(1), in[3].size(1)}, at::kDouble), c = h;
  Tensors scores;
  for (int64_t t = 0; t < steps; ++t) {
    const at::Tensor x = at::embedding(in[1], in[0][t]);
    const auto q = (F::linear(x, in[2], in[4]) + F::linear(h, in[3])).chunk(4, 1);
    c = q[1].sigmoid() * c + q[0].sigmoid() * q[2].tanh();
    h = q[3].sigmoid() * c.tanh();
    scores.push_back(F::linear(h, in[5], in[6]));
  }
  return with_slopes(at::cross_entropy_loss(torch::cat(scores), in[0].slice(0, 1).reshape({-1})),
                     in, 1);
}

// A Hessian-vector product: our program of one stage beside a double backward.
Tensors laplace(const Tensors& in) {
  const at::Tensor w = in[0].detach().requires_grad_(true);
  Tensors part = w.split_with_sizes({10, 10, 100, 10, 10, 1});
  part[0] = part[0].reshape({10, 1});
  part[2] = part[2].reshape({10, 10});
  part[4] = part[4].reshape({1, 10});
  const at::Tensor f = mlp(in[1], part, 0, [](const at::Tensor& x) { return x.tanh(); });
  const at::Tensor loss = (in[2] - f).square().sum() * 50 + w.square().sum() * 0.05555555555555555;
  return {loss, torch::autograd::grad({slope(loss, w).dot(in[3])}, {w})[0]};
}

std::vector<Tensor> joined(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Tensor> layers(int64_t in, int64_t hidden, int64_t out) {
  return {drawn("w1", {hidden, in}), drawn("b1", {hidden}),      drawn("w2", {hidden, hidden}),
          drawn("b2", {hidden}),     drawn("w3", {out, hidden}), drawn("b3", {out})};
}

ExampleStep pinn_step() {
  return {example("pinn/burgers.ir").program(),
          joined({drawn("x", {200, 1}), drawn("t", {200, 1}), drawn("xb", {90, 1}),
                  drawn("tb", {90, 1}), drawn("ub", {90, 1})},
                 layers(2, 24, 1)),
          5, pinn};
}

ExampleStep wgan_gp_step() {
  return {example("wgan_gp/wgan_gp.ir").program(),
          joined(joined({drawn("real", {128, 2}), drawn("z", {128, 4}), drawn("mix", {128, 1})},
                        layers(4, 64, 2)),
                 layers(2, 64, 1)),
          9, wgan_gp};
}

ExampleStep char_lstm_step() {
  std::vector<double> text;
  for (int k = 0; k < 49 * 16; ++k) text.push_back(k * 7 % 31);
  const ir::Graph next = example("char_lstm/char_lstm.ir").program();
  return {ir::parse(unrolled(48) + ir::print(next)).program(),
          {Tensor::from(DType::i64, Sizes{49, 16}, text), drawn("table", {31, 16}),
           drawn("wx", {192, 16}), drawn("wh", {192, 48}), drawn("b", {192}), drawn("wo", {31, 48}),
           drawn("bo", {31})},
          1,
          char_lstm};
}

ExampleStep laplace_step() {
  return {ir::hvp(example("laplace/laplace.ir").program(), {.wrt = {{"w"}}}),
          {drawn("w", {141}), drawn("x", {60, 1}), drawn("y", {60, 1}), drawn("v", {141})},
          4,
          laplace};
}

void run(benchmark::State& bench, ExampleStep (*step)()) { compare(bench, step()); }

ExampleStep force_field_step() {
  return {example("force_field/force_field.ir").program(), force_field_inputs(), 6, force_field};
}

#define GRADUS_EXAMPLE(name) \
  BENCHMARK_CAPTURE(run, name, name##_step)->Arg(1)->Arg(2)->UseManualTime()->Iterations(50)
GRADUS_EXAMPLE(force_field);
GRADUS_EXAMPLE(pinn);
GRADUS_EXAMPLE(wgan_gp);
GRADUS_EXAMPLE(laplace);
GRADUS_EXAMPLE(char_lstm);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
