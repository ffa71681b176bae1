#include "pair_gradus.h"

#include <cstring>

#include <atom.h>
#include <comm.h>
#include <error.h>
#include <force.h>
#include <memory.h>
#include <neigh_list.h>
#include <neighbor.h>
#include <update.h>
#include <utils.h>

namespace LAMMPS_NS {

namespace {

using gradus::DType;
using gradus::Sizes;
using gradus::Tensor;

// LAMMPS has xx, yy, zz, xy, xz, yz.
constexpr int of_lammps[] = {0, 1, 2, 5, 4, 3};

// Memory of LAMMPS', for the length of a call.
Tensor borrowed(const double* data, Sizes shape) {
  size_t bytes = sizeof(double);
  for (int64_t n : shape) bytes *= static_cast<size_t>(n);
  auto* at = reinterpret_cast<std::byte*>(const_cast<double*>(data));
  return Tensor(gradus::make_ref<gradus::Storage>(at, bytes, gradus::Device(), [] {}),
                gradus::Layout(DType::f64, std::move(shape)));
}

bool are_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".npz");
}

}  // namespace

PairGradus::PairGradus(LAMMPS* lammps) : Pair(lammps) {
  single_enable = 0;
  restartinfo = 0;
  one_coeff = 1;
  manybody_flag = 1;
  no_virial_fdotr_compute = 1;
  centroidstressflag = CENTROID_NOTAVAIL;
  comm_reverse = 9;
}

PairGradus::~PairGradus() {
  if (!allocated) return;
  memory->destroy(setflag);
  memory->destroy(cutsq);
}

void PairGradus::allocate() {
  if (allocated) return;
  allocated = 1;
  const int types = atom->ntypes;
  memory->create(setflag, types + 1, types + 1, "pair:setflag");
  memory->create(cutsq, types + 1, types + 1, "pair:cutsq");
  for (int i = 1; i <= types; ++i)
    for (int j = 1; j <= types; ++j) setflag[i][j] = 0;
}

void PairGradus::settings(int count, char** words) {
  if (count > 0)
    error->all(FLERR,
               "pair_style gradus takes no arguments, and '{}' is one; files and elements stand in "
               "pair_coeff",
               words[0]);
}

void PairGradus::load(const std::string& program, const std::string& weights) {
  try {
    // More processors are more ranks.
    gradus::ContextOptions one;
    one.workers = 1;
    gradus::PotentialOptions options;
    options.own_edges = true;
    potential_ = std::make_unique<gradus::Potential>(
        gradus::Potential::load(program, weights, options, std::make_shared<gradus::Context>(one)));
  } catch (const gradus::Exception& e) {
    error->all(FLERR, "pair_style gradus: {}", e.what());
  }
}

void PairGradus::coeff(int count, char** words) {
  allocate();
  if (count < 3 || strcmp(words[0], "*") != 0 || strcmp(words[1], "*") != 0)
    error->all(FLERR, "pair_coeff of style gradus is: * * PROGRAM [WEIGHTS] ELEMENT...");
  int next = 3;
  const std::string weights = count > 3 && are_weights(words[3]) ? words[next++] : "";
  if (count - next != atom->ntypes)
    error->all(FLERR, "pair_coeff of style gradus has {} elements, and there are {} types of atoms",
               count - next, atom->ntypes);
  load(words[2], weights);
  const std::vector<std::string>& known = potential_->facts().species;
  number_of_type_.assign(static_cast<size_t>(atom->ntypes) + 1, -1);
  for (int type = 1; type <= atom->ntypes; ++type) {
    const std::string name = words[next + type - 1];
    if (name == "NULL") continue;
    size_t number = 0;
    while (number < known.size() && known[number] != name) ++number;
    if (number == known.size() && !known.empty())
      error->all(FLERR, "pair_style gradus: the potential knows no element '{}'", name);
    number_of_type_[static_cast<size_t>(type)] = known.empty() ? 0 : static_cast<int64_t>(number);
  }
  for (int i = 1; i <= atom->ntypes; ++i)
    for (int j = i; j <= atom->ntypes; ++j)
      setflag[i][j] = number_of_type_[static_cast<size_t>(i)] >= 0 &&
                      number_of_type_[static_cast<size_t>(j)] >= 0;
}

void PairGradus::init_style() {
  if (!potential_) error->all(FLERR, "pair_style gradus has no pair_coeff");
  if (utils::strmatch(update->integrate_style, "^respa"))
    error->all(FLERR, "pair_style gradus does not run with run_style respa");
  if (potential_->facts().units != update->unit_style)
    error->all(FLERR, "pair_style gradus: the potential's units are '{}', and LAMMPS' are '{}'",
               potential_->facts().units, update->unit_style);
  if (atom->molecular != Atom::ATOMIC)
    for (int k = 1; k <= 3; ++k)
      if (force->special_lj[k] != 1 || force->special_coul[k] != 1)
        error->all(
            FLERR,
            "pair_style gradus wants all pairs of bonded atoms: special_bonds lj/coul 1 1 1");
  neighbor->add_request(this, NeighConst::REQ_FULL);
}

double PairGradus::init_one(int i, int j) {
  if (setflag[i][j] == 0)
    error->all(FLERR, "pair_style gradus: types {} and {} have no element", i, j);
  return potential_->facts().cutoff;
}

// What of a call stays as it is until LAMMPS lists neighbours anew.
void PairGradus::list_edges() {
  const int64_t all = atom->nlocal + atom->nghost;
  std::vector<double> species(static_cast<size_t>(all)), ghosts(static_cast<size_t>(all));
  for (int64_t i = 0; i < all; ++i) {
    species[static_cast<size_t>(i)] =
        static_cast<double>(number_of_type_[static_cast<size_t>(atom->type[i])]);
    ghosts[static_cast<size_t>(i)] = i >= atom->nlocal;
  }
  int64_t edges = 0;
  for (int n = 0; n < list->inum; ++n) edges += list->numneigh[list->ilist[n]];
  edges_ = Tensor::empty(DType::i64, Sizes{2, edges});
  auto* from = edges_.mutable_data_as<int64_t>();
  int64_t* to = from + edges;
  for (int n = 0; n < list->inum; ++n) {
    const int i = list->ilist[n];
    for (int k = 0; k < list->numneigh[i]; ++k) {
      *from++ = i;
      *to++ = list->firstneigh[i][k] & NEIGHMASK;
    }
  }
  species_ = Tensor::from(DType::i64, Sizes{all}, species);
  ghosts_ = Tensor::from(DType::boolean, Sizes{all}, ghosts);
}

gradus::PotentialInput PairGradus::input() const {
  const int64_t all = atom->nlocal + atom->nghost;
  gradus::PotentialInput in;
  in.positions = all ? borrowed(atom->x[0], {all, 3}) : Tensor::zeros(DType::f64, Sizes{0, 3});
  in.species = species_;
  in.edges = edges_;
  in.ghosts = ghosts_;
  return in;
}

void PairGradus::compute(int eflag, int vflag) {
  ev_init(eflag, vflag);
  if (neighbor->ago == 0 || !edges_.defined() || species_.numel() != atom->nlocal + atom->nghost)
    list_edges();
  try {
    const gradus::PotentialInput in = input();
    add_to_atoms(in, potential_->run(in));
  } catch (const gradus::Exception& e) {
    error->one(FLERR, "pair_style gradus: {}", e.what());
  }
}

void PairGradus::add_to_atoms(const gradus::PotentialInput& in,
                              const gradus::PotentialOutput& out) {
  const auto local = static_cast<size_t>(atom->nlocal),
             all = local + static_cast<size_t>(atom->nghost);
  const auto* forces = out.forces.data_as<double>();
  if (force->newton_pair && !vflag_atom) {
    if (double* const f = all ? atom->f[0] : nullptr)
      for (size_t i = 0; i < 3 * all; ++i) f[i] += forces[i];
    return add_sums(in, out);
  }
  width_ = vflag_atom ? 9 : 3;
  comm_reverse = static_cast<int>(width_);
  shares_.assign(all * width_, 0);
  for (size_t i = 0; i < all; ++i)
    for (size_t a = 0; a < 3; ++a) shares_[width_ * i + a] = forces[3 * i + a];
  if (vflag_atom) {
    const Tensor virials = gradus::atom_virials(in, out);
    const auto* v = virials.data_as<double>();
    for (size_t i = 0; i < all; ++i)
      for (size_t k = 0; k < 6; ++k)
        shares_[width_ * i + 3 + k] = v[6 * i + static_cast<size_t>(of_lammps[k])];
  }
  if (!force->newton_pair) hand_back();
  const size_t count = force->newton_pair ? all : local;
  for (size_t i = 0; i < count; ++i) {
    for (size_t a = 0; a < 3; ++a) atom->f[i][a] += shares_[width_ * i + a];
    if (vflag_atom)
      for (size_t k = 0; k < 6; ++k) vatom[i][k] += shares_[width_ * i + 3 + k];
  }
  add_sums(in, out);
}

// What is one number, or one of each atom that is no ghost.
void PairGradus::add_sums(const gradus::PotentialInput& in, const gradus::PotentialOutput& out) {
  const auto local = static_cast<size_t>(atom->nlocal);
  if (eflag_global) eng_vdwl += out.energy;
  if (eflag_atom)
    for (size_t i = 0; i < local; ++i) eatom[i] += out.energies.data_as<double>()[i];
  if (vflag_global) {
    const gradus::Voigt v = gradus::virial(in, out);
    for (int k = 0; k < 6; ++k) virial[k] += v[static_cast<size_t>(of_lammps[k])];
  }
}

// Shares of ghosts are added to those of the atoms that they are images of.
void PairGradus::hand_back() { comm->reverse_comm(this); }

int PairGradus::pack_reverse_comm(int count, int first, double* buffer) {
  const size_t size = static_cast<size_t>(count) * width_;
  std::copy_n(shares_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(first) * width_), size,
              buffer);
  return static_cast<int>(size);
}

void PairGradus::unpack_reverse_comm(int count, int* list, double* buffer) {
  for (int n = 0; n < count; ++n)
    for (size_t k = 0; k < width_; ++k)
      shares_[static_cast<size_t>(list[n]) * width_ + k] += *buffer++;
}

double PairGradus::memory_usage() {
  double bytes = Pair::memory_usage() + static_cast<double>(shares_.size() * sizeof(double));
  for (const Tensor& t : {species_, edges_, ghosts_})
    if (t.defined()) bytes += static_cast<double>(t.storage()->bytes());
  return bytes;
}

}  // namespace LAMMPS_NS
