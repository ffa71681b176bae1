// The two potentials, as programs that are run: Lennard and Jones's, and the network's.
#pragma once

#include <memory>

#include "examples/force_field/clusters.h"
#include "examples/training.h"

#ifndef FORCE_FIELD_FOLDER
#define FORCE_FIELD_FOLDER EXAMPLE_FOLDER
#endif

inline gradus::ir::Module program(const char* name) {
  return gradus::ir::parse_file(std::string(FORCE_FIELD_FOLDER "/") + name).module;
}

// A potential may be copied; copies share one state and are for one thread.
inline clusters::Potential lennard_jones() {
  auto runner = std::make_shared<Runner>(program("lennard_jones.ir").program());
  return [runner](const clusters::Vector& r) -> clusters::Labels {
    auto results = runner->run(std::array{clusters::tensor(r)});
    return {results[0].to_doubles(), results[1].to_doubles()};
  };
}

class ForceField {
 public:
  static constexpr int64_t functions = 16, width = 24, batch = 16;

  // The part of each batch that one of several ranks works on, by the program that they share.
  struct Share {
    gradus::ir::Module program;
    std::shared_ptr<gradus::Context> context;
    int64_t rank = 0, ranks = 1;
  };

  // First weights; what the network sees is made to vary by about 1 over `set`, and its energy
  // begins at the set's mean.
  ForceField(const clusters::Set& set, Random& random)
      : ForceField(set, random,
                   {program("force_field.ir"), gradus::Context::default_context(), 0, 1}) {}
  ForceField(const clusters::Set& set, Random& random, Share share)
      : module_(program("force_field.ir")),
        share_(std::move(share)),
        training_(share_.program.program(), "w1", share_.context),
        weights_(first_weights(set, random)) {
    std::vector<double> centres(functions);
    for (size_t k = 0; k < functions; ++k) centres[k] = 3.0 + 0.4 * static_cast<double>(k);
    constants_ = {vector(centres), vector(std::vector<double>(2 * functions, 0.0)),
                  vector(std::vector<double>(2 * functions, 1.0))};
    standardise(set);
  }

  // A step on geometries drawn from `set`, through energies and forces. Returns the loss.
  double train_step(const clusters::Set& set, Random& random, double rate) {
    clusters::Set drawn;
    for (int64_t n = 0; n < batch; ++n) {
      const size_t k = random.below(set.size());
      if (n % share_.ranks != share_.rank) continue;
      auto piece = [k](const clusters::Vector& from, clusters::Vector& to) {
        const auto first = from.begin() + static_cast<ptrdiff_t>(k * clusters::coordinates);
        to.insert(to.end(), first, first + clusters::coordinates);
      };
      piece(set.r, drawn.r);
      piece(set.labels.force, drawn.labels.force);
      drawn.labels.energy.push_back(set.labels.energy[k]);
    }
    const double loss = training_.run(inputs(drawn.r, drawn.labels));
    weights_.step(training_.gradients(), rate);
    return loss;
  }

  // The network as it is when the potential is called; the force field has to be there still.
  clusters::Potential potential() const {
    auto runner = std::make_shared<Runner>(module_.program());
    return [runner, this](const clusters::Vector& r) -> clusters::Labels {
      auto results = runner->run(inputs(r, unknown(r)));
      return {results[1].to_doubles(), results[2].to_doubles()};
    };
  }

 private:
  static gradus::Tensor vector(const std::vector<double>& values) {
    return gradus::Tensor::from(gradus::DType::f64,
                                gradus::Sizes{static_cast<int64_t>(values.size())}, values);
  }
  static clusters::Labels unknown(const clusters::Vector& r) {
    return {clusters::Vector(r.size() / clusters::coordinates), clusters::Vector(r.size())};
  }

  std::vector<gradus::Tensor> inputs(const clusters::Vector& r,
                                     const clusters::Labels& reference) const {
    std::vector<gradus::Tensor> values{clusters::tensor(r), vector(reference.energy),
                                       clusters::tensor(reference.force)};
    return with(with(std::move(values), constants_), weights_.parameters());
  }

  static std::vector<gradus::Tensor> first_weights(const clusters::Set& set, Random& random) {
    double mean = 0;
    for (double e : set.labels.energy) mean += e / static_cast<double>(set.size());
    auto out = layers({2 * functions, width, width, 1}, random);
    out.back() = vector({mean / static_cast<double>(clusters::atoms)});
    return out;
  }

  void standardise(const clusters::Set& set) {
    Runner runner(module_.program());
    const auto features = runner.run(inputs(set.r, unknown(set.r)))[3].to_doubles();
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

  gradus::ir::Module module_;
  Share share_;
  TrainingStep training_;
  Adam weights_;
  std::vector<gradus::Tensor> constants_;  // centre, shift, scale
};
