// Libraries that bring operators and functions to a program that knows nothing of them.
#pragma once

#include <string>

#include "gradus/version.h"

// In one file of the library, outside of any namespace:
//
//   GRADUS_PLUGIN() {
//     gradus::ops::register_operator(gradus::ops::operator_record<Rexp>);
//     gradus::ops::register_function(std::make_shared<Swish>());
//   }
//
// The library is linked with libgradus of the same version, shared, as the program that loads it.
#define GRADUS_PLUGIN()                                                                       \
  extern "C" __attribute__((visibility("default"))) const char* const gradus_plugin_version = \
      GRADUS_VERSION;                                                                         \
  extern "C" __attribute__((visibility("default"))) void gradus_plugin_register()

#pragma GCC visibility push(default)

namespace gradus {

// Loads the library and has it register what it brings; once, it is never unloaded. Throws Error
// for a file that cannot be loaded, one that is no plug-in, and one that was made for another
// version; and whatever it throws.
void load_plugin(const std::string& path);

}  // namespace gradus

#pragma GCC visibility pop
