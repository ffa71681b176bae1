// A training step of a model, ready to be run again and again.
#pragma once

#include <benchmark/benchmark.h>

#include "bench/models.h"
#include "fusion/kernels.h"
#include "gradus/inputs.h"
#include "gradus/text.h"

namespace gradus::bench {

class TrainStep {
 public:
  TrainStep(const Model& model, int workers, FusionMode mode) : model_(model) {
    ContextOptions options;
    options.workers = workers;
    context_ = std::make_shared<Context>(options);
    state_.emplace(Code::compile(ir::parse(model.text()).program()), context_,
                   StateOptions{.fusion = mode});
    state_->prepare({});
    for (const ModelInput& i : model.inputs) inputs_.push_back(drawn(i));
  }

  // The loss, then what the step gives for each parameter; new parameters are taken up.
  const std::vector<Tensor>& run() {
    state_->restart();
    if (model_.updates) std::swap(results_, before_);  // those are the parameters
    results_.resize(state_->code()->stage(0).returns.size());
    state_->run_into(inputs_, results_);
    if (model_.updates)
      for (size_t i = 0, p = 1; i < inputs_.size(); ++i)
        if (model_.inputs[i].parameter) inputs_[i] = results_[p++];
    return results_;
  }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  Context& context() { return *context_; }

 private:
  Tensor drawn(const ModelInput& i) {
    if (i.below) {
      std::vector<double> values;
      for (int64_t n = 0; n < numel(i.shape); ++n)
        values.push_back(static_cast<double>(n * 7 % i.below));
      return Tensor::from(DType::i64, i.shape, values);
    }
    std::vector<double> values =
        random_tensor(DType::f32, i.shape, i.name, 1, *context_).to_doubles();
    for (double& v : values) v *= i.scale;
    return Tensor::from(DType::f32, i.shape, values);
  }

  const Model model_;
  std::shared_ptr<Context> context_;
  std::optional<State> state_;
  std::vector<Tensor> inputs_, results_, before_;
};

// A benchmark for each model, on one worker and on two: `step` is given the number in models() of
// the one that it is for.
template <class Step>
bool register_models(Step step) {
  for (size_t n = 0; n < models().size(); ++n)
    benchmark::RegisterBenchmark(models()[n].name.c_str(),
                                 [step, n](benchmark::State& bench) { step(bench, n); })
        ->Arg(1)
        ->Arg(2)
        ->UseManualTime()
        ->Iterations(20);
  return true;
}

}  // namespace gradus::bench
