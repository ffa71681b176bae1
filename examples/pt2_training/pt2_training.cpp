// A force field that was exported from PyTorch, trained through its forces without PyTorch: ten
// steps of Adam, whose losses are eager PyTorch's, then weights that its load_state_dict takes.
#include <algorithm>
#include <filesystem>

#include "examples/command_line.h"
#include "examples/training.h"
#include "gradus/files.h"
#include "gradus/import.h"
#include "gradus/pt2.h"

using namespace gradus;

namespace {

const std::filesystem::path folder = EXAMPLE_FOLDER;

// Energies, forces and the gradient of the forces' loss: the stages 0, 1 and 2 of a program.
class ForceTraining {
 public:
  ForceTraining(const ImportedProgram& model, const NamedTensors& data)
      : program_(ir::differentiate(model.module.program(), derivatives(model))),
        runner_(program_),
        trainable_(model.trainable),
        reference_(data.at("fref")) {
    std::vector<Tensor> parameters;
    for (ir::ValueId v : program_.stages[0].inputs) {
      const std::string& name = program_[v].name;
      auto weight = model.weights.find(name);
      inputs_.push_back(weight == model.weights.end() ? data.at(name) : weight->second);
      auto trained = std::ranges::find(trainable_, name);
      places_.push_back(trained - trainable_.begin());
    }
    for (const std::string& name : trainable_) parameters.push_back(model.weights.at(name));
    adam_.emplace(std::move(parameters));
  }

  // The loss before the step: the mean square of the forces' errors.
  double step(double rate) {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (static_cast<size_t>(places_[i]) < trainable_.size())
        inputs_[i] = adam_->parameters()[static_cast<size_t>(places_[i])];
    const Tensor energy = runner_.run(inputs_).at(0);
    const std::vector<double> ones(static_cast<size_t>(energy.numel()), 1.0);
    const Tensor slope =
        runner_.next(std::array{Tensor::from(DType::f64, energy.shape(), ones)}).at(0);
    // Forces are the slope's negative; the loss's cotangent of the slope is 2 (slope + forces) / n.
    std::vector<double> error = slope.to_doubles();
    const std::vector<double> wanted = reference_.to_doubles();
    double loss = 0;
    const double n = static_cast<double>(error.size());
    for (size_t i = 0; i < error.size(); ++i) {
      error[i] += wanted[i];
      loss += error[i] * error[i] / n;
      error[i] *= 2 / n;
    }
    adam_->step(gradients(Tensor::from(DType::f64, slope.shape(), error)), rate);
    return loss;
  }

  NamedTensors trained() const {
    NamedTensors named;
    for (size_t i = 0; i < trainable_.size(); ++i)
      named.emplace(trainable_[i], adam_->parameters()[i]);
    return named;
  }

 private:
  // Stage 1 gives dE/dpos first, then dE/dparameter, of which the loss needs nothing.
  static ir::DifferentiateOptions derivatives(const ImportedProgram& model) {
    std::vector<std::string> wrt{"pos"};
    wrt.insert(wrt.end(), model.trainable.begin(), model.trainable.end());
    return {.order = 2, .wrt = std::move(wrt), .cotangents = false};
  }

  std::vector<Tensor> gradients(const Tensor& of_slope) {
    std::vector<Tensor> cotangents(program_.stages[2].inputs.size());
    for (size_t i = 0; i < cotangents.size(); ++i)
      if (program_[program_.stages[2].inputs[i]].name == "ct2_d1_pos") cotangents[i] = of_slope;
    std::vector<Tensor> all = runner_.next(cotangents), wanted(trainable_.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string name = program_.stages[2].results[i].name.substr(3);  // d2_NAME
      auto place = std::ranges::find(trainable_, name);
      if (place != trainable_.end())
        wanted[static_cast<size_t>(place - trainable_.begin())] = all[i];
    }
    return wanted;
  }

  ir::Graph program_;
  Runner runner_;
  std::vector<std::string> trainable_;
  Tensor reference_;
  std::vector<Tensor> inputs_;
  std::vector<std::ptrdiff_t> places_;  // of an input among the trainable ones, or behind them
  std::optional<Adam> adam_;
};

bool run(const CommandLine& line) {
  const std::string archive = (folder / "schnet.pt2").string();
  const ImportedProgram model = import_program(archive);
  const NamedTensors data = read_npz((folder / "training.npz").string());
  std::printf("%zu parameters to train, %zu other weights\n", model.trainable.size(),
              model.weights.size() - model.trainable.size());
  ForceTraining training(model, data);
  const std::vector<double> expected = data.at("losses").to_doubles();  // of eager PyTorch 2.15
  double apart = 0;
  const int steps = line.steps.value_or(10);
  for (int step = 0; step <= steps; ++step) {
    const double loss = training.step(0.01);
    std::printf("step %2d  loss %.12f\n", step, loss);
    if (static_cast<size_t>(step) < expected.size())
      apart = std::max(apart, std::abs(loss / expected[static_cast<size_t>(step)] - 1));
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / "gradus_pt2_training.safetensors").string();
  write_safetensors(path, pt2::state_dict(archive, training.trained()));
  std::printf("wrote %s\n", path.c_str());
  return holds("losses from those of eager PyTorch, relative", apart, 0, 1e-8);
}

}  // namespace

int main(int argc, char** argv) { return run_example(argc, argv, run); }
