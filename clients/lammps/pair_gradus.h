// pair_style gradus: a potential that is a program (docs/simulators.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <pair.h>

#include "gradus/potential.h"

namespace LAMMPS_NS {

//   pair_style gradus
//   pair_coeff * * PROGRAM [WEIGHTS] ELEMENT...     one element, or NULL, for each type of atom
class PairGradus : public Pair {
 public:
  explicit PairGradus(LAMMPS* lammps);
  ~PairGradus() override;

  void settings(int count, char** words) override;
  void coeff(int count, char** words) override;
  void init_style() override;
  double init_one(int i, int j) override;
  void compute(int eflag, int vflag) override;
  // Where LAMMPS hands no forces of ghosts back (newton off).
  int pack_reverse_comm(int count, int first, double* buffer) override;
  void unpack_reverse_comm(int count, int* list, double* buffer) override;
  double memory_usage() override;

 private:
  void allocate();
  void load(const std::string& program, const std::string& weights);
  void list_edges();
  gradus::PotentialInput input() const;
  void hand_back();
  void add_to_atoms(const gradus::PotentialInput& in, const gradus::PotentialOutput& out);
  void add_sums(const gradus::PotentialInput& in, const gradus::PotentialOutput& out);

  std::unique_ptr<gradus::Potential> potential_;
  std::vector<int64_t> number_of_type_;  // which of the potential's species; -1: none
  // As of the last neighbour list.
  gradus::Tensor species_, edges_, ghosts_;
  // By atom, ghosts too: a force, and where it is asked for a virial in LAMMPS' order.
  std::vector<double> shares_;
  size_t width_ = 3;
};

}  // namespace LAMMPS_NS
