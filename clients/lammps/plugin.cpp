// What LAMMPS' command `plugin load` calls.
#include <lammps.h>

#include "pair_gradus.h"

namespace {

// As LAMMPS declares it (its plug-in interface, version 1).
struct Plugin {
  const char *version, *style, *name, *info, *author;
  void* (*create)(void* lammps);
  void* handle;
};
using Register = void (*)(Plugin*, void* lammps);

void* create(void* lammps) {
  return new LAMMPS_NS::PairGradus(static_cast<LAMMPS_NS::LAMMPS*>(lammps));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void lammpsplugin_init(void* lammps, void* handle,
                                                                         void* registering) {
  Plugin plugin{};
  plugin.version = static_cast<LAMMPS_NS::LAMMPS*>(lammps)->version;
  plugin.style = "pair";
  plugin.name = "gradus";
  plugin.info = "potentials that are Gradus programs";
  plugin.author = "Gradus";
  plugin.create = create;
  plugin.handle = handle;
  reinterpret_cast<Register>(registering)(&plugin, lammps);
}
