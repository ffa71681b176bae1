// A training step of examples/force_field beside the same in libtorch: energies, forces, and the
// weights' gradients through both, of 16 clusters of 13 atoms, on one thread and on two. What they
// compute is compared first.
#include <torch/torch.h>

#include "bench/side_by_side.h"
#include "interpreter/inputs.h"
#include "interpreter/state.h"
#include "ir/passes/passes.h"
#include "ir/text/parser.h"

namespace gradus::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr int64_t clusters = 16, atoms = 13, functions = 16, width = 24;
constexpr size_t first_weight = 6;

// In the program's order.
std::vector<Tensor> inputs() {
  std::vector<double> r;
  for (int64_t k = 0; k < clusters * atoms; ++k) {  // a grid of 3 x 3 x 2 places, a little off it
    const int64_t a = k % atoms;
    for (int64_t place : {a % 3, a / 3 % 3, a / 9})
      r.push_back(3.9 * static_cast<double>(place) + 0.2 * std::sin(3.7 * double(r.size())));
  }
  std::vector<double> centre;
  for (int64_t k = 0; k < functions; ++k) centre.push_back(3 + 0.4 * static_cast<double>(k));
  auto drawn = [](const char* name, Sizes shape) {
    return random_tensor(DType::f64, shape, name, 1, *Context::default_context());
  };
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

// The loss, then the weights' gradients.
class Ours {
 public:
  Ours(std::vector<Tensor> in, int workers) : in_(std::move(in)) {
    const std::string path = GRADUS_SOURCE_DIR "/examples/force_field/force_field.ir";
    const ir::Module module = ir::parse_file(path).module;
    ContextOptions options;
    options.workers = workers;
    state_.emplace(
        Code::compile(ir::differentiate(
            module.program(),
            {.order = 1, .wrt = std::vector<std::string>{"w1", "b1", "w2", "b2", "w3", "b3"}})),
        std::make_shared<Context>(options), StateOptions{.fusion = fusion::FusionMode::first});
  }
  std::vector<Tensor> run() {
    state_->restart();
    std::vector<Tensor> out{state_->run(in_)[0]};
    for (Tensor& g : state_->run(std::vector<Tensor>{one_, {}, {}, {}})) out.push_back(g);
    return out;
  }

 private:
  std::vector<Tensor> in_;
  std::optional<State> state_;
  const Tensor one_ = Tensor::scalar(DType::f64, 1);
};

Tensors theirs(const Tensors& in) {
  namespace F = torch::nn::functional;
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
  Tensors out{loss};
  const Tensors weights(in.begin() + first_weight, in.end());
  for (at::Tensor& t : torch::autograd::grad({loss}, weights)) out.push_back(t);
  return out;
}

at::Tensor to_torch(const Tensor& t) {
  const Tensor c = t.contiguous();
  return at::from_blob(const_cast<std::byte*>(c.data()),
                       at::IntArrayRef(c.shape().data(), c.shape().size()), at::kDouble)
      .clone();
}

void step(benchmark::State& bench) {
  const int workers = static_cast<int>(bench.range(0));
  at::set_num_threads(workers);
  const std::vector<Tensor> in = inputs();
  Tensors torch_in;
  for (size_t i = 0; i < in.size(); ++i)
    torch_in.push_back(to_torch(in[i]).requires_grad_(i >= first_weight));
  Ours ours(in, workers);
  double apart = 0;
  const std::vector<Tensor> mine = ours.run();
  const Tensors other = theirs(torch_in);
  for (size_t i = 0; i < mine.size(); ++i)
    apart = std::max(
        apart, ((to_torch(mine[i]) - other[i]).abs().max() / other[i].abs().max().clamp_min(1e-6))
                   .item<double>());
  if (!(apart < 1e-9)) return bench.SkipWithError(fmt::format("apart by {}", apart).c_str());
  side_by_side(
      bench, Clock::wall, [&] { benchmark::DoNotOptimize(ours.run()); },
      [&] { benchmark::DoNotOptimize(theirs(torch_in)); });
  bench.counters["difference"] = apart;
}

BENCHMARK(step)->Name("force_field")->Arg(1)->Arg(2)->UseManualTime()->Iterations(50);

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
