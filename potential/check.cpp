// A potential tried on atoms at random.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gradus/potential.h"

namespace gradus {

namespace {

using Point = std::array<double, 3>;

double dot(const Point& a, const Point& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Point cross(const Point& a, const Point& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// Atoms, their species and the cell they are in.
struct Sample {
  std::vector<Point> at;
  std::vector<double> species;
  Cell cell;

  Tensor positions() const {
    std::vector<double> all;
    for (const Point& p : at) all.insert(all.end(), p.begin(), p.end());
    return Tensor::from(DType::f64, Sizes{static_cast<int64_t>(at.size()), 3}, all);
  }
  PotentialInput input(double cutoff) const {
    const auto n = static_cast<int64_t>(at.size());
    return with_edges(positions(), Tensor::from(DType::i64, Sizes{n}, species), cell, cutoff);
  }
};

// A matrix of a rotation about an axis and by an angle that are nothing special.
Point rotated(const Point& p) {
  constexpr double angle = 0.7345;
  const Point axis = {2.0 / 7, 3.0 / 7, 6.0 / 7}, turned = cross(axis, p);
  const double c = std::cos(angle), s = std::sin(angle), along = dot(axis, p);
  Point q;
  for (size_t a = 0; a < 3; ++a) q[a] = c * p[a] + s * turned[a] + (1 - c) * along * axis[a];
  return q;
}

class Checker {
 public:
  Checker(Potential& potential, const PotentialCheckOptions& options)
      : potential_(potential),
        cutoff_(potential.facts().cutoff),
        spacing_(options.spacing > 0 ? options.spacing : 0.4 * cutoff_),
        random_(options.seed) {}

  std::vector<PotentialCheck> run(bool brief) {
    cluster_ = sample(3, 2, 2);
    plain_in_ = cluster_.input(cutoff_);
    plain_ = potential_.run(plain_in_);
    find_scales();
    sum_of_forces();
    rotation();
    permutation();
    own_edges();
    if (brief) return std::move(checks_);
    forces();
    translation();
    cutoff();
    two_copies();
    supercell();
    strain();
    return std::move(checks_);
  }

 private:
  // So many places of a lattice along each axis, each atom some way off its own.
  Sample sample(int nx, int ny, int nz) {
    std::uniform_real_distribution<double> off(-0.12 * spacing_, 0.12 * spacing_);
    const size_t kinds = std::max<size_t>(potential_.facts().species.size(), 1);
    Sample s;
    for (int x = 0; x < nx; ++x)
      for (int y = 0; y < ny; ++y)
        for (int z = 0; z < nz; ++z) {
          s.at.push_back({x * spacing_ + off(random_), y * spacing_ + off(random_),
                          z * spacing_ + off(random_)});
          s.species.push_back(static_cast<double>(random_() % kinds));
        }
    return s;
  }

  void find_scales() {
    force_ = energy_ = 0;
    for (double f : plain_.forces.to_doubles()) force_ = std::max(force_, std::fabs(f));
    for (double e : plain_.energies.to_doubles()) energy_ = std::max(energy_, std::fabs(e));
    force_ = std::max(force_, energy_ / cutoff_);
    if (!std::isfinite(force_) || !std::isfinite(energy_))
      throw Error(
          "atoms {:.3g} apart have energies or forces that are not finite; give a greater "
          "spacing",
          spacing_);
    if (force_ == 0)
      throw Error("atoms {:.3g} apart have no energies; give a smaller spacing", spacing_);
  }

  // `exact`: what differs by rounding alone.
  void add(std::string name, std::string what, double error, bool exact, bool needed = true) {
    const bool wide = potential_.is_f64();
    const double allowed = exact ? (wide ? 1e-9 : 1e-3) : (wide ? 1e-5 : 3e-2);
    if (std::isnan(error)) error = HUGE_VAL;
    checks_.push_back({std::move(name), std::move(what), error, allowed, needed});
  }

  static double largest_difference(const Tensor& a, const Tensor& b) {
    const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
    double most = x.size() == y.size() ? 0 : HUGE_VAL;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const double d = std::fabs(x[i] - y[i]);
      most = std::isnan(d) ? HUGE_VAL : std::max(most, d);
    }
    return most;
  }

  void sum_of_forces() {
    Point sum{};
    const std::vector<double> f = plain_.forces.to_doubles();
    for (size_t i = 0; i < f.size(); ++i) sum[i % 3] += f[i];
    add("sum", "in free space, the forces on all atoms add up to zero",
        std::sqrt(dot(sum, sum)) / force_, true);
  }

  void rotation() {
    Sample turned = cluster_;
    for (Point& p : turned.at) p = rotated(p);
    const PotentialOutput out = potential_.run(turned.input(cutoff_));
    std::vector<double> f = plain_.forces.to_doubles();
    for (size_t i = 0; i < f.size(); i += 3) {
      const Point p = rotated({f[i], f[i + 1], f[i + 2]});
      std::ranges::copy(p, f.begin() + static_cast<ptrdiff_t>(i));
    }
    const Tensor expected = Tensor::from(DType::f64, out.forces.shape(), f);
    add("rotation", "rotated atoms have the same energies, and the forces rotate with them",
        std::max(largest_difference(out.energies, plain_.energies) / energy_,
                 largest_difference(out.forces, expected) / force_),
        true);
  }

  void permutation() {
    std::vector<size_t> order(cluster_.at.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    Sample other = cluster_;
    for (size_t i = 0; i < order.size(); ++i) {
      other.at[i] = cluster_.at[order[i]];
      other.species[i] = cluster_.species[order[i]];
    }
    const PotentialOutput out = potential_.run(other.input(cutoff_));
    double error = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto to = static_cast<int64_t>(i), from = static_cast<int64_t>(order[i]);
      error =
          std::max(error, std::fabs(out.energies.item(to) - plain_.energies.item(from)) / energy_);
      for (int64_t a = 0; a < 3; ++a)
        error = std::max(
            error,
            std::fabs(out.forces.item(3 * to + a) - plain_.forces.item(3 * from + a)) / force_);
    }
    add("permutation", "atoms in another order have the same energies and forces", error, true);
  }

  double energy_of(const Sample& s) { return potential_.run(s.input(cutoff_)).energy; }

  void forces() {
    const double h = (potential_.is_f64() ? 1e-5 : 3e-3) * spacing_;
    double error = 0;
    for (size_t i = 0; i < cluster_.at.size(); ++i)
      for (size_t a = 0; a < 3; ++a) {
        Sample s = cluster_;
        s.at[i][a] += h;
        const double more = energy_of(s);
        s.at[i][a] -= 2 * h;
        const double slope = (more - energy_of(s)) / (2 * h);
        const double f = plain_.forces.item(static_cast<int64_t>(3 * i + a));
        error = std::max(error, std::fabs(slope + f) / force_);
      }
    add("forces", "forces are the negative derivative of the energy, by central differences", error,
        false);
  }

  void translation() {
    Sample moved = cluster_;
    for (Point& p : moved.at)
      for (size_t a = 0; a < 3; ++a) p[a] += spacing_ * (0.5 + static_cast<double>(a));
    const PotentialOutput out = potential_.run(moved.input(cutoff_));
    add("translation", "translated atoms have the same energies and forces",
        std::max(largest_difference(out.energies, plain_.energies) / energy_,
                 largest_difference(out.forces, plain_.forces) / force_),
        true);
  }

  // Edges a little longer than the cutoff, as simulators' lists have them, count for nothing.
  void cutoff() {
    const Sample row = sample(5, 2, 1);
    const PotentialOutput own = potential_.run(row.input(cutoff_)),
                          more = potential_.run(row.input(1.5 * cutoff_));
    add("cutoff", "edges longer than the cutoff change nothing",
        std::max(largest_difference(own.energies, more.energies) / energy_,
                 largest_difference(own.forces, more.forces) / force_),
        true);
    // Two atoms just within reach, and out of it.
    Sample pair;
    pair.species = {0, 0};
    auto at = [&](double distance) {
      pair.at = {{0, 0, 0}, {distance, 0, 0}};
      return potential_.run(pair.input(cutoff_));
    };
    const double within = potential_.is_f64() ? 1e-8 : 1e-4;
    const PotentialOutput in = at(cutoff_ * (1 - within)), out_of_reach = at(2 * cutoff_);
    add("smooth", "the energy and the force of two atoms have no jump at the cutoff",
        std::max(std::fabs(in.energy - out_of_reach.energy) / energy_,
                 largest_difference(in.forces, out_of_reach.forces) / force_),
        false);
  }

  void two_copies() {
    Sample both = cluster_;
    for (size_t i = 0; i < cluster_.at.size(); ++i) {
      both.at.push_back(cluster_.at[i]);
      both.at.back()[0] += 10 * cutoff_;
      both.species.push_back(cluster_.species[i]);
    }
    add("extensivity", "two distant copies have twice the energy",
        std::fabs(energy_of(both) - 2 * plain_.energy) / energy_, true);
  }

  // Atoms in a periodic box.
  Sample box() {
    Sample s = sample(2, 2, 2);
    for (size_t a = 0; a < 3; ++a)
      s.cell.rows[a][a] = 2 * spacing_ * (1 + 0.05 * static_cast<double>(a));
    s.cell.rows[1][0] = 0.2 * spacing_;
    s.cell.periodic = {true, true, true};
    return s;
  }

  void supercell() {
    const Sample one = box();
    Sample two = one;
    for (size_t i = 0; i < one.at.size(); ++i) {
      two.at.push_back(one.at[i]);
      for (size_t a = 0; a < 3; ++a) two.at.back()[a] += one.cell.rows[0][a];
      two.species.push_back(one.species[i]);
    }
    for (double& x : two.cell.rows[0]) x *= 2;
    const PotentialOutput a = potential_.run(one.input(cutoff_)),
                          b = potential_.run(two.input(cutoff_));
    add("periodic", "a periodic cell and two such cells side by side have the same energy per atom",
        std::fabs(2 * a.energy - b.energy) / (std::fabs(a.energy) + energy_), true);
  }

  void strain() {
    const Sample s = box();
    const PotentialInput in = s.input(cutoff_);
    const PotentialOutput out = potential_.run(in);
    const Voigt found = virial(in, out);
    constexpr std::array<std::pair<size_t, size_t>, 6> pairs{
        {{0, 0}, {1, 1}, {2, 2}, {1, 2}, {0, 2}, {0, 1}}};
    const double h = potential_.is_f64() ? 1e-5 : 1e-3;
    double error = 0, scale = energy_;
    for (double v : found) scale = std::max(scale, std::fabs(v));
    for (size_t k = 0; k < 6; ++k) {
      auto energy_at = [&](double by) {
        auto [a, b] = pairs[k];
        auto bent = [&](Point p) {
          const Point q = p;
          p[a] += 0.5 * by * q[b];
          p[b] += 0.5 * by * q[a];
          return p;
        };
        // The same edges, of the strained box.
        PotentialInput strained = in;
        std::vector<double> x = in.positions.to_doubles(), v = in.shifts.to_doubles();
        for (std::vector<double>* list : {&x, &v})
          for (size_t i = 0; i < list->size(); i += 3)
            std::ranges::copy(bent({(*list)[i], (*list)[i + 1], (*list)[i + 2]}),
                              list->begin() + static_cast<ptrdiff_t>(i));
        strained.positions = Tensor::from(DType::f64, in.positions.shape(), x);
        strained.shifts = Tensor::from(DType::f64, in.shifts.shape(), v);
        return potential_.run(strained).energy;
      };
      const double slope = (energy_at(h) - energy_at(-h)) / (2 * h);
      error = std::max(error, std::fabs(slope + found[k]) / scale);
    }
    add("virial",
        "the virial is the negative derivative of the energy by a strain, by central differences",
        error, false);
  }

  // Half of the atoms as ghosts without edges of their own.
  void own_edges() {
    const auto n = static_cast<int64_t>(cluster_.at.size());
    std::vector<double> ghost(static_cast<size_t>(n)), kept[2], shift;
    for (int64_t i = n / 2; i < n; ++i) ghost[static_cast<size_t>(i)] = 1;
    const std::vector<double> list = plain_in_.edges.to_doubles(),
                              shifts = plain_in_.shifts.to_doubles();
    const size_t count = list.size() / 2;
    for (size_t e = 0; e < count; ++e) {
      if (list[e] >= static_cast<double>(n / 2)) continue;
      kept[0].push_back(list[e]);
      kept[1].push_back(list[count + e]);
      shift.insert(shift.end(), shifts.begin() + static_cast<ptrdiff_t>(3 * e),
                   shifts.begin() + static_cast<ptrdiff_t>(3 * e + 3));
    }
    PotentialInput in = plain_in_;
    in.ghosts = Tensor::from(DType::boolean, Sizes{n}, ghost);
    const auto left = static_cast<int64_t>(kept[0].size());
    kept[0].insert(kept[0].end(), kept[1].begin(), kept[1].end());
    in.edges = Tensor::from(DType::i64, Sizes{2, left}, kept[0]);
    in.shifts = Tensor::from(DType::f64, Sizes{left, 3}, shift);
    const PotentialOutput out = potential_.run(in);
    double error = 0;
    for (int64_t i = 0; i < n / 2; ++i)
      error = std::max(error, std::fabs(out.energies.item(i) - plain_.energies.item(i)) / energy_);
    add("ghosts", "an atom's energy depends on its own edges only; ghosts have none", error, true,
        false);
  }

  Potential& potential_;
  const double cutoff_, spacing_;
  std::mt19937_64 random_;
  Sample cluster_;
  PotentialInput plain_in_;
  PotentialOutput plain_;
  double force_ = 0, energy_ = 0;  // the largest of the cluster
  std::vector<PotentialCheck> checks_;
};

// How often a cell is repeated on either side so that no image within the cutoff is left out.
std::array<int, 3> images(const Cell& cell, double cutoff) {
  std::array<int, 3> count{};
  const Point& a = cell.rows[0];
  const double volume = std::fabs(dot(a, cross(cell.rows[1], cell.rows[2])));
  for (size_t k = 0; k < 3; ++k) {
    if (!cell.periodic[k]) continue;
    const Point side = cross(cell.rows[(k + 1) % 3], cell.rows[(k + 2) % 3]);
    const double height = volume / std::sqrt(dot(side, side));
    if (!(height > 0)) throw Error("the cell has no volume, and its vector {} is periodic", k);
    constexpr double most = 1000;
    if (cutoff / height > most)
      throw Error("the cutoff {} is more than {} times as long as the cell is high", cutoff, most);
    count[k] = static_cast<int>(std::ceil(cutoff / height));
  }
  return count;
}

// The cell's rows, where vectors that are not periodic may be zero.
Cell with_volume(Cell cell) {
  for (size_t k = 0; k < 3; ++k) {
    if (cell.periodic[k] || dot(cell.rows[k], cell.rows[k]) > 0) continue;
    Point side = cross(cell.rows[(k + 1) % 3], cell.rows[(k + 2) % 3]);
    if (dot(side, side) == 0) side[k] = 1;
    cell.rows[k] = side;
  }
  return cell;
}

}  // namespace

PotentialInput with_edges(const Tensor& positions, const Tensor& species, const Cell& given,
                          double cutoff) {
  const std::vector<double> x = positions.to_doubles();
  const size_t n = x.size() / 3;
  const Cell cell = with_volume(given);
  const std::array<int, 3> most = images(cell, cutoff);
  std::vector<double> from, to, shifts;
  auto add_edges = [&](const Point& shift, bool home) {
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) {
        if (home && i == j) continue;
        double square = 0;
        for (size_t a = 0; a < 3; ++a) {
          const double d = x[3 * j + a] - x[3 * i + a] + shift[a];
          square += d * d;
        }
        if (square >= cutoff * cutoff) continue;
        from.push_back(static_cast<double>(i));
        to.push_back(static_cast<double>(j));
        shifts.insert(shifts.end(), shift.begin(), shift.end());
      }
  };
  // Atoms may lie outside of the cell: their images are looked for farther away, too.
  std::array<int, 3> reach = most;
  if (n > 0)
    for (size_t k = 0; k < 3; ++k) {
      if (!cell.periodic[k]) continue;
      const Point side = cross(cell.rows[(k + 1) % 3], cell.rows[(k + 2) % 3]);
      const double volume = dot(cell.rows[k], side);
      double low = HUGE_VAL, high = -HUGE_VAL;
      for (size_t i = 0; i < n; ++i) {
        const double along = dot({x[3 * i], x[3 * i + 1], x[3 * i + 2]}, side) / volume;
        low = std::min(low, along);
        high = std::max(high, along);
      }
      reach[k] += static_cast<int>(std::ceil(high - low));
    }
  for (int a = -reach[0]; a <= reach[0]; ++a)
    for (int b = -reach[1]; b <= reach[1]; ++b)
      for (int c = -reach[2]; c <= reach[2]; ++c) {
        Point shift;
        for (size_t k = 0; k < 3; ++k)
          shift[k] = a * cell.rows[0][k] + b * cell.rows[1][k] + c * cell.rows[2][k];
        add_edges(shift, a == 0 && b == 0 && c == 0);
      }
  const auto count = static_cast<int64_t>(from.size());
  from.insert(from.end(), to.begin(), to.end());
  PotentialInput in;
  in.positions = positions;
  in.species = species;
  in.edges = Tensor::from(DType::i64, Sizes{2, count}, from);
  in.shifts = Tensor::from(DType::f64, Sizes{count, 3}, shifts);
  return in;
}

std::vector<PotentialCheck> check_potential(Potential& potential,
                                            const PotentialCheckOptions& options) {
  return Checker(potential, options).run(options.brief);
}

}  // namespace gradus
