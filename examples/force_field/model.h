// The two potentials, as programs that are run: Lennard and Jones's, and the network's.
#pragma once

#include <memory>
#include <optional>

#include "examples/force_field/clusters.h"
#include "interpreter/state.h"
#include "ir/passes/passes.h"
#include "ir/text/parser.h"

// The first two results of a program's stage 0: energies and forces.
inline clusters::Labels labels(const std::vector<gradus::Tensor>& results) {
  return {results[0].to_doubles(), results[1].to_doubles()};
}

inline gradus::ir::Module program(const char* name) {
  return gradus::ir::parse_file(std::string(EXAMPLE_FOLDER "/") + name).module;
}

// A potential may be copied; copies share one state and are for one thread.
inline clusters::Potential lennard_jones() {
  auto code = gradus::Code::compile(program("lennard_jones.ir").program());
  auto state = std::make_shared<gradus::State>(
      code, gradus::Context::default_context(),
      gradus::StateOptions{.fusion = gradus::fusion::FusionMode::first});
  return [state](const clusters::Vector& r) {
    state->restart();
    return labels(state->run(std::array{clusters::tensor(r)}));
  };
}

class ForceField {
 public:
  static constexpr int64_t functions = 16, width = 24, batch = 16;

  // First weights; what the network sees is made to vary by about 1 over `set`, and its energy
  // begins at the set's mean.
  ForceField(const clusters::Set& set, Random& random)
      : force_code_(gradus::Code::compile(program("force_field.ir").program())),
        train_(
            gradus::Code::compile(gradus::ir::differentiate(
                program("force_field.ir").program(),
                {.order = 1, .wrt = std::vector<std::string>{"w1", "b1", "w2", "b2", "w3", "b3"}})),
            gradus::Context::default_context(), first()),
        weights_(first_weights(set, random)) {
    std::vector<double> centres(functions);
    for (size_t k = 0; k < functions; ++k) centres[k] = 3.0 + 0.4 * static_cast<double>(k);
    constants_ = {vector(centres), vector(std::vector<double>(2 * functions, 0.0)),
                  vector(std::vector<double>(2 * functions, 1.0))};
    standardise(set);
  }

  // A step on geometries drawn from `set`: stage 0 gives the loss, stage 1 the weights' gradients,
  // through energies and forces. Returns the loss.
  double train_step(const clusters::Set& set, Random& random, double rate) {
    clusters::Set drawn;
    for (int64_t n = 0; n < batch; ++n) {
      const size_t k = random.below(set.size());
      auto piece = [k](const clusters::Vector& from, clusters::Vector& to) {
        const auto first = from.begin() + static_cast<ptrdiff_t>(k * clusters::coordinates);
        to.insert(to.end(), first, first + clusters::coordinates);
      };
      piece(set.r, drawn.r);
      piece(set.labels.force, drawn.labels.force);
      drawn.labels.energy.push_back(set.labels.energy[k]);
    }
    train_.restart();
    const double loss = train_.run(inputs(drawn.r, drawn.labels))[3].item();
    // Cotangents of energy, force, features and loss: only the last is there.
    const auto gradients = train_.run(
        std::vector<gradus::Tensor>{{}, {}, {}, gradus::Tensor::scalar(gradus::DType::f64, 1)});
    weights_.step(gradients, rate);
    return loss;
  }

  // The network as it is now, without the training stage.
  clusters::Potential potential() const {
    auto state =
        std::make_shared<gradus::State>(force_code_, gradus::Context::default_context(), first());
    return [state, this](const clusters::Vector& r) {
      state->restart();
      return labels(state->run(inputs(r, unknown(r))));
    };
  }

 private:
  static gradus::StateOptions first() { return {.fusion = gradus::fusion::FusionMode::first}; }
  static gradus::Tensor vector(const std::vector<double>& values) {
    return gradus::Tensor::from(gradus::DType::f64,
                                gradus::Sizes{static_cast<int64_t>(values.size())}, values);
  }
  static clusters::Labels unknown(const clusters::Vector& r) {
    return {clusters::Vector(r.size() / clusters::coordinates), clusters::Vector(r.size())};
  }

  std::vector<gradus::Tensor> inputs(const clusters::Vector& r,
                                     const clusters::Labels& reference) const {
    std::vector<gradus::Tensor> out{clusters::tensor(r), vector(reference.energy),
                                    clusters::tensor(reference.force)};
    out.insert(out.end(), constants_.begin(), constants_.end());
    out.insert(out.end(), weights_.parameters().begin(), weights_.parameters().end());
    return out;
  }

  static std::vector<gradus::Tensor> first_weights(const clusters::Set& set, Random& random) {
    double mean = 0;
    for (double e : set.labels.energy) mean += e / static_cast<double>(set.size());
    auto zeros = [](int64_t n) {
      return gradus::Tensor::zeros(gradus::DType::f64, gradus::Sizes{n});
    };
    auto normals = [&](int64_t out, int64_t in) {
      return random.normals({out, in}, 1 / std::sqrt(static_cast<double>(in)));
    };
    return {normals(width, 2 * functions),
            zeros(width),
            normals(width, width),
            zeros(width),
            normals(1, width),
            vector({mean / static_cast<double>(clusters::atoms)})};
  }

  void standardise(const clusters::Set& set) {
    gradus::State state(force_code_);
    const auto features = state.run(inputs(set.r, unknown(set.r)))[2].to_doubles();
    const size_t count = 2 * functions;
    const double rows = static_cast<double>(features.size() / count);
    std::vector<double> mean(count), square(count), scale(count);
    for (size_t k = 0; k < features.size(); ++k) mean[k % count] += features[k] / rows;
    for (size_t k = 0; k < features.size(); ++k) {
      const double off = features[k] - mean[k % count];
      square[k % count] += off * off / rows;
    }
    for (size_t k = 0; k < count; ++k) scale[k] = 1 / (std::sqrt(square[k]) + 0.01);
    constants_[1] = vector(mean);
    constants_[2] = vector(scale);
  }

  std::shared_ptr<const gradus::Code> force_code_;
  gradus::State train_;
  Adam weights_;
  std::vector<gradus::Tensor> constants_;  // centre, shift, scale
};
