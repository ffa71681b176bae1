// Argon clusters: where their atoms are, and how they move under a potential.
// Lengths in angstrom, energies in meV, times in ps, masses in u, temperatures in kelvin.
#pragma once

#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "examples/training.h"

namespace clusters {

using Vector = std::vector<double>;  // coordinates, cluster by cluster, atom by atom

constexpr int64_t atoms = 13;
constexpr size_t coordinates = 3 * atoms;
constexpr double boltzmann = 0.0861733;             // meV/K
constexpr double acceleration = 9.648533 / 39.948;  // angstrom/ps^2 for 1 meV/angstrom on argon

struct Labels {
  Vector energy, force;  // one energy a cluster, three forces an atom
};
// What gives them for any number of clusters.
using Potential = std::function<Labels(const Vector& r)>;

inline gradus::Tensor tensor(std::span<const double> r) {
  const auto n = static_cast<int64_t>(r.size() / coordinates);
  return gradus::Tensor::from(gradus::DType::f64, gradus::Sizes{n, atoms, 3}, r);
}

// One atom in the middle, twelve around it.
inline Vector icosahedron() {
  const double golden = (1 + std::sqrt(5.0)) / 2, radius = 3.68;
  const double scale = radius / std::sqrt(1 + golden * golden);
  Vector r(3, 0.0);
  for (size_t axis = 0; axis < 3; ++axis)
    for (double a : {-scale, scale})
      for (double b : {-scale * golden, scale * golden}) {
        double point[3] = {};
        point[(axis + 1) % 3] = a;
        point[(axis + 2) % 3] = b;
        r.insert(r.end(), point, point + 3);
      }
  return r;
}

// Velocities of a temperature, without any motion of the whole.
inline Vector velocities(size_t size, double temperature, Random& random) {
  Vector v(size);
  const double speed = std::sqrt(boltzmann * temperature * acceleration);
  for (double& x : v) x = speed * random.normal();
  for (size_t first = 0; first < size; first += coordinates)
    for (size_t axis = 0; axis < 3; ++axis) {
      double mean = 0;
      for (size_t a = axis; a < coordinates; a += 3) mean += v[first + a] / atoms;
      for (size_t a = axis; a < coordinates; a += 3) v[first + a] -= mean;
    }
  return v;
}

// Clusters that move by themselves: velocity Verlet. A friction makes it Langevin's equation at
// `temperature`, by the splitting that Leimkuhler and Matthews (2013) call BAOAB.
class Dynamics {
 public:
  Dynamics(Potential potential, Vector r, Vector v)
      : potential_(std::move(potential)),
        r_(std::move(r)),
        v_(std::move(v)),
        now_(potential_(r_)) {}

  void step(double dt) {
    kick(dt / 2);
    drift(dt);
    now_ = potential_(r_);
    kick(dt / 2);
  }
  void step(double dt, double friction, double temperature, Random& random) {
    const double keep = std::exp(-friction * dt);
    const double noise = std::sqrt((1 - keep * keep) * boltzmann * temperature * acceleration);
    kick(dt / 2);
    drift(dt / 2);
    for (double& v : v_) v = keep * v + noise * random.normal();
    drift(dt / 2);
    now_ = potential_(r_);
    kick(dt / 2);
  }
  const Vector& positions() const { return r_; }
  const Labels& labels() const { return now_; }
  double kinetic() const {
    double sum = 0;
    for (double v : v_) sum += 0.5 * v * v / acceleration;
    return sum;
  }

 private:
  void kick(double dt) {
    for (size_t k = 0; k < v_.size(); ++k) v_[k] += dt * acceleration * now_.force[k];
  }
  void drift(double dt) {
    for (size_t k = 0; k < r_.size(); ++k) r_[k] += dt * v_[k];
  }

  Potential potential_;
  Vector r_, v_;
  Labels now_;
};

// Geometries with their labels, in the order of their trajectories.
struct Set {
  Vector r;
  Labels labels;
  size_t size() const { return labels.energy.size(); }
};

// Copies of the cluster at 20 to 40 kelvin, each a trajectory of its own, and `snapshots` of each,
// 0.5 ps apart, after 2 ps to forget the beginning.
inline Set sample(const Potential& potential, size_t trajectories, int snapshots, Random& random) {
  std::vector<Set> each(trajectories);
  for (size_t t = 0; t < trajectories; ++t) {
    const double warmth = static_cast<double>(t % 5) / 4, temperature = 20 + 20 * warmth;
    Vector r = icosahedron();
    Dynamics now(potential, r, velocities(r.size(), temperature, random));
    for (int step = -200; step < 50 * snapshots; ++step) {
      now.step(0.01, 1, temperature, random);
      if (step < 0 || step % 50 != 49) continue;
      Set& s = each[t];
      s.r.insert(s.r.end(), now.positions().begin(), now.positions().end());
      s.labels.energy.push_back(now.labels().energy[0]);
      s.labels.force.insert(s.labels.force.end(), now.labels().force.begin(),
                            now.labels().force.end());
    }
  }
  Set all;
  for (const Set& s : each) {
    all.r.insert(all.r.end(), s.r.begin(), s.r.end());
    all.labels.energy.insert(all.labels.energy.end(), s.labels.energy.begin(),
                             s.labels.energy.end());
    all.labels.force.insert(all.labels.force.end(), s.labels.force.begin(), s.labels.force.end());
  }
  return all;
}

}  // namespace clusters
