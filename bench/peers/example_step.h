// Training steps of the examples beside the same in libtorch's eager operators, on one thread and
// on two. What they compute is compared first.
#pragma once

#include <torch/torch.h>

#include "bench/side_by_side.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::bench {

using Tensors = std::vector<at::Tensor>;

// Of a program's stage-0 inputs those from `first` on are weights; the first result is the loss.
// Where there are no weights, the program has one stage, and all its results are compared.
struct ExampleStep {
  ir::Graph program;
  std::vector<Tensor> inputs;  // in the program's order
  size_t first;
  std::function<Tensors(const Tensors&)> theirs;  // the loss, then the weights' gradients
};

inline ir::Module example(const std::string& path) {
  return ir::parse_file(GRADUS_SOURCE_DIR "/examples/" + path).module;
}

inline Tensor drawn(const char* name, Sizes shape) {
  return random_tensor(DType::f64, shape, name, 1, *Context::default_context());
}

inline Tensors with_slopes(const at::Tensor& loss, const Tensors& in, size_t first) {
  Tensors out{loss};
  const Tensors weights(in.begin() + static_cast<int64_t>(first), in.end());
  for (at::Tensor& t : torch::autograd::grad({loss}, weights, {}, {}, false, true))
    out.push_back(t);
  return out;
}

// Stages 0 and 1.
class Stages {
 public:
  Stages(const ExampleStep& step, int workers) : in_(step.inputs) {
    std::vector<std::string> weights;
    const auto& inputs = step.program.stages[0].inputs;
    for (size_t i = step.first; i < inputs.size(); ++i)
      weights.push_back(step.program[inputs[i]].name);
    ContextOptions options;
    options.workers = workers;
    const int order = weights.empty() ? 0 : 1;
    state_.emplace(Code::compile(ir::differentiate(step.program, {.order = order, .wrt = weights})),
                   std::make_shared<Context>(options), StateOptions{.fusion = FusionMode::first});
  }
  std::vector<Tensor> run() {
    state_->restart();
    std::vector<Tensor> results = state_->run(in_);
    if (state_->finished()) return results;
    std::vector<Tensor> out{results[0]};
    std::vector<Tensor> cotangents(results.size());
    cotangents[0] = one_;
    for (Tensor& g : state_->run(cotangents)) out.push_back(g);
    return out;
  }

 private:
  std::vector<Tensor> in_;
  std::optional<State> state_;
  const Tensor one_ = Tensor::scalar(DType::f64, 1);
};

inline at::Tensor to_torch(const Tensor& t) {
  const Tensor c = t.contiguous();
  return at::from_blob(const_cast<std::byte*>(c.data()),
                       at::IntArrayRef(c.shape().data(), c.shape().size()),
                       t.dtype() == DType::i64 ? at::kLong : at::kDouble)
      .clone();
}

inline void compare(benchmark::State& bench, const ExampleStep& step) {
  const int workers = static_cast<int>(bench.range(0));
  at::set_num_threads(workers);
  Tensors in;
  for (size_t i = 0; i < step.inputs.size(); ++i)
    in.push_back(to_torch(step.inputs[i]).requires_grad_(i >= step.first));
  Stages ours(step, workers);
  double apart = 0;
  const std::vector<Tensor> mine = ours.run();
  const Tensors other = step.theirs(in);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (!mine[i].defined() || !other[i].defined()) continue;  // a zero that one of them knows of
    const double off = (to_torch(mine[i]) - other[i]).abs().max().item<double>();
    apart = std::max(apart, off / std::max(other[i].abs().max().item<double>(), 1e-6));
  }
  if (!(apart < 1e-9)) return bench.SkipWithError(fmt::format("apart by {}", apart).c_str());
  side_by_side(
      bench, Clock::wall, [&] { benchmark::DoNotOptimize(ours.run()); },
      [&] { benchmark::DoNotOptimize(step.theirs(in)); });
  bench.counters["difference"] = apart;
}

}  // namespace gradus::bench
