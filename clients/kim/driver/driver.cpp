// A KIM model driver (https://openkim.org, KIM API 2): a program is an interatomic potential for
// every simulator that speaks KIM.
//
// A model's parameter files are one program of a format that Gradus reads, and perhaps one file of
// weights, which says the cutoff and the species (include/gradus/potential.h).
#include <memory>
#include <string>
#include <vector>

#include <KIM_LogMacros.hpp>
#include <KIM_ModelDriverHeaders.hpp>

#include "gradus/potential.h"

namespace {

using gradus::DType;
using gradus::Sizes;
using gradus::Tensor;

// What KIM keeps for a model.
struct Model {
  explicit Model(gradus::Potential p) : potential(std::move(p)) {}

  gradus::Potential potential;
  // How many units of the simulator one of the potential's is.
  double length = 1, energy = 1;
  double cutoff = 0;  // in the simulator's unit
  int contributing_alone = 1;
  // Filled at every call, so that a step whose sizes are those of the one before takes no memory.
  std::vector<double> positions;
  std::vector<int64_t> edges;
};

// Memory that others own, for the length of a call.
template <class T>
Tensor borrowed(const T* data, DType dtype, Sizes shape) {
  size_t bytes = sizeof(T);
  for (int64_t n : shape) bytes *= static_cast<size_t>(n);
  auto* at = reinterpret_cast<std::byte*>(const_cast<T*>(data));
  return Tensor(gradus::make_ref<gradus::Storage>(at, bytes, gradus::Device(), [] {}),
                gradus::Layout(dtype, std::move(shape)));
}

KIM::EnergyUnit energy_unit(const std::string& units) {
  if (units == "metal") return KIM::ENERGY_UNIT::eV;
  if (units == "real") return KIM::ENERGY_UNIT::kcal_mol;
  throw gradus::Error("the potential's units are '{}'; 'metal' and 'real' can be converted", units);
}

// How many of the simulator's units one of the potential's is, to these powers.
double factor(KIM::EnergyUnit energy, KIM::LengthUnit to_length, KIM::EnergyUnit to_energy,
              double length_power, double energy_power) {
  double f = 1;
  if (KIM::ModelDriverCreate::ConvertUnit(
          KIM::LENGTH_UNIT::A, energy, KIM::CHARGE_UNIT::e, KIM::TEMPERATURE_UNIT::K,
          KIM::TIME_UNIT::ps, to_length, to_energy, KIM::CHARGE_UNIT::e, KIM::TEMPERATURE_UNIT::K,
          KIM::TIME_UNIT::ps, length_power, energy_power, 0, 0, 0, &f))
    throw gradus::Error("KIM cannot convert angstrom and {} to {} and {}", energy.ToString(),
                        to_length.ToString(), to_energy.ToString());
  return f;
}

struct Files {
  std::string program, weights;
};

Files files_of(KIM::ModelDriverCreate& create) {
  const std::string* folder = nullptr;
  create.GetParameterFileDirectoryName(&folder);
  int count = 0;
  create.GetNumberOfParameterFiles(&count);
  Files files;
  for (int i = 0; i < count; ++i) {
    const std::string* name = nullptr;
    if (create.GetParameterFileBasename(i, &name))
      throw gradus::Error("KIM does not tell the name of parameter file {}", i);
    const bool weights = name->ends_with(".safetensors") || name->ends_with(".npz");
    std::string& place = weights ? files.weights : files.program;
    if (!place.empty())
      throw gradus::Error("a model has one program and one file of weights, and '{}' is a second",
                          *name);
    place = *folder + "/" + *name;
  }
  if (files.program.empty())
    throw gradus::Error("no parameter file of the model is a program: {}", gradus::importable());
  return files;
}

int compute(const KIM::ModelCompute* kim, const KIM::ModelComputeArguments* arguments);
int create_arguments(const KIM::ModelCompute*, KIM::ModelComputeArgumentsCreate* create) {
  namespace name = KIM::COMPUTE_ARGUMENT_NAME;
  int failed = 0;
  for (const KIM::ComputeArgumentName& n :
       {name::partialEnergy, name::partialForces, name::partialParticleEnergy, name::partialVirial,
        name::partialParticleVirial})
    failed |= create->SetArgumentSupportStatus(n, KIM::SUPPORT_STATUS::optional);
  return failed;
}
int destroy_arguments(const KIM::ModelCompute*, KIM::ModelComputeArgumentsDestroy*) { return 0; }

int destroy(KIM::ModelDestroy* kim) {
  Model* model = nullptr;
  kim->GetModelBufferPointer(reinterpret_cast<void**>(&model));
  delete model;
  return 0;
}

template <class F>
KIM::Function* routine(F* f) {
  return reinterpret_cast<KIM::Function*>(f);
}

void give_routines(KIM::ModelDriverCreate& create) {
  namespace name = KIM::MODEL_ROUTINE_NAME;
  const KIM::LanguageName cpp = KIM::LANGUAGE_NAME::cpp;
  if (create.SetRoutinePointer(name::ComputeArgumentsCreate, cpp, 1, routine(create_arguments)) ||
      create.SetRoutinePointer(name::Compute, cpp, 1, routine(compute)) ||
      create.SetRoutinePointer(name::ComputeArgumentsDestroy, cpp, 1, routine(destroy_arguments)) ||
      create.SetRoutinePointer(name::Destroy, cpp, 1, routine(destroy)))
    throw gradus::Error("KIM does not take the driver's routines");
}

void create_model(KIM::ModelDriverCreate& create, KIM::LengthUnit length, KIM::EnergyUnit energy) {
  const Files files = files_of(create);
  // A simulator uses more processors by more processes.
  gradus::ContextOptions options;
  options.workers = 1;
  auto context = std::make_shared<gradus::Context>(options);
  gradus::PotentialOptions wanted;
  wanted.own_edges = true;
  gradus::Potential potential =
      gradus::Potential::load(files.program, files.weights, wanted, context);
  const gradus::PotentialFacts& facts = potential.facts();
  auto model = std::make_unique<Model>(Model{potential});
  const KIM::EnergyUnit own = energy_unit(facts.units);
  model->length = factor(own, length, energy, 1, 0);
  model->energy = factor(own, length, energy, 0, 1);
  model->cutoff = facts.cutoff * model->length;
  if (create.SetModelNumbering(KIM::NUMBERING::zeroBased) ||
      create.SetUnits(length, energy, KIM::CHARGE_UNIT::unused, KIM::TEMPERATURE_UNIT::unused,
                      KIM::TIME_UNIT::unused))
    throw gradus::Error("KIM does not take the model's numbering or units");
  if (facts.species.empty())
    throw gradus::Error("no species are known: the weights' metadata have no 'species'");
  for (size_t s = 0; s < facts.species.size(); ++s)
    if (const KIM::SpeciesName name(facts.species[s]);
        !name.Known() || create.SetSpeciesCode(name, static_cast<int>(s)))
      throw gradus::Error("KIM knows no species '{}'", facts.species[s]);
  give_routines(create);
  create.SetInfluenceDistancePointer(&model->cutoff);
  create.SetNeighborListPointers(1, &model->cutoff, &model->contributing_alone);
  create.SetModelBufferPointer(model.release());
}

// What a simulator gives, and asks for: null where it does not.
struct Call {
  const int *count = nullptr, *species = nullptr, *contributing = nullptr;
  const double* coordinates = nullptr;
  double *energy = nullptr, *forces = nullptr, *energies = nullptr, *virial = nullptr,
         *virials = nullptr;
};

Call call_of(const KIM::ModelComputeArguments& arguments) {
  namespace name = KIM::COMPUTE_ARGUMENT_NAME;
  Call c;
  if (arguments.GetArgumentPointer(name::numberOfParticles, &c.count) ||
      arguments.GetArgumentPointer(name::particleSpeciesCodes, &c.species) ||
      arguments.GetArgumentPointer(name::particleContributing, &c.contributing) ||
      arguments.GetArgumentPointer(name::coordinates, &c.coordinates) ||
      arguments.GetArgumentPointer(name::partialEnergy, &c.energy) ||
      arguments.GetArgumentPointer(name::partialForces, &c.forces) ||
      arguments.GetArgumentPointer(name::partialParticleEnergy, &c.energies) ||
      arguments.GetArgumentPointer(name::partialVirial, &c.virial) ||
      arguments.GetArgumentPointer(name::partialParticleVirial, &c.virials))
    throw gradus::Error("KIM does not give the call's arguments");
  return c;
}

gradus::PotentialInput input_of(Model& model, const Call& c,
                                const KIM::ModelComputeArguments& arguments) {
  const int64_t n = *c.count;
  gradus::PotentialInput in;
  if (model.length == 1) {
    in.positions = borrowed(c.coordinates, DType::f64, {n, 3});
  } else {
    model.positions.assign(c.coordinates, c.coordinates + 3 * n);
    for (double& x : model.positions) x /= model.length;
    in.positions = borrowed(model.positions.data(), DType::f64, {n, 3});
  }
  in.species = borrowed(c.species, DType::i32, {n});
  std::vector<int64_t>& from = model.edges;
  std::vector<int64_t> to;
  std::vector<double> ghosts(static_cast<size_t>(n));
  from.clear();
  for (int i = 0; i < n; ++i) {
    ghosts[static_cast<size_t>(i)] = c.contributing[i] == 0;
    if (!c.contributing[i]) continue;
    int count = 0;
    const int* neighbours = nullptr;
    if (arguments.GetNeighborList(0, i, &count, &neighbours))
      throw gradus::Error("KIM does not give the neighbours of atom {}", i);
    from.insert(from.end(), static_cast<size_t>(count), i);
    to.insert(to.end(), neighbours, neighbours + count);
  }
  const auto edges = static_cast<int64_t>(to.size());
  from.insert(from.end(), to.begin(), to.end());
  in.edges = borrowed(from.data(), DType::i64, {2, edges});
  in.ghosts = Tensor::from(DType::boolean, Sizes{n}, ghosts);
  return in;
}

// KIM's virials have the sign of the energy's slope by a strain.
void give(const Model& model, const Call& c, const gradus::PotentialInput& in,
          const gradus::PotentialOutput& out) {
  const auto n = static_cast<size_t>(*c.count);
  if (c.energy) *c.energy = out.energy * model.energy;
  auto copy = [](const Tensor& from, double* to, size_t count, double scale) {
    for (size_t i = 0; i < count; ++i) to[i] = from.data_as<double>()[i] * scale;
  };
  if (c.forces) copy(out.forces, c.forces, 3 * n, model.energy / model.length);
  if (c.energies) {
    copy(out.energies, c.energies, n, model.energy);
    for (size_t i = 0; i < n; ++i)
      if (!c.contributing[i]) c.energies[i] = 0;
  }
  if (c.virial) {
    const gradus::Voigt v = gradus::virial(in, out);
    for (size_t k = 0; k < 6; ++k) c.virial[k] = -v[k] * model.energy;
  }
  if (c.virials) copy(gradus::atom_virials(in, out), c.virials, 6 * n, -model.energy);
}

int compute(const KIM::ModelCompute* kim, const KIM::ModelComputeArguments* arguments) {
  Model* model = nullptr;
  kim->GetModelBufferPointer(reinterpret_cast<void**>(&model));
  try {
    const Call call = call_of(*arguments);
    const gradus::PotentialInput in = input_of(*model, call, *arguments);
    give(*model, call, in, model->potential.run(in));
    return 0;
  } catch (const std::exception& e) {
    kim->LogEntry(KIM::LOG_VERBOSITY::error, e.what(), __LINE__, __FILE__);
    return 1;
  }
}

}  // namespace

extern "C" int create_gradus_driver(KIM::ModelDriverCreate* create, KIM::LengthUnit length,
                                    KIM::EnergyUnit energy, KIM::ChargeUnit, KIM::TemperatureUnit,
                                    KIM::TimeUnit) {
  try {
    create_model(*create, length, energy);
    return 0;
  } catch (const std::exception& e) {
    create->LogEntry(KIM::LOG_VERBOSITY::error, e.what(), __LINE__, __FILE__);
    return 1;
  }
}
