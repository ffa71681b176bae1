// Plug-ins: shared libraries with operators and functions, which a program loads at run time.
#pragma once

#include <string>

#include "gradus/version.h"

// Defines the entry point of a plug-in. Use it in one file of the library, outside of any
// namespace:
//
//   GRADUS_PLUGIN() {
//     gradus::ops::register_operator(gradus::ops::operator_record<Rexp>);
//     gradus::ops::register_function(std::make_shared<Swish>());
//   }
//
// The plug-in must be linked with the shared libgradus of the same version as the program that
// loads it.
#define GRADUS_PLUGIN()                                                                       \
  extern "C" __attribute__((visibility("default"))) const char* const gradus_plugin_version = \
      GRADUS_VERSION;                                                                         \
  extern "C" __attribute__((visibility("default"))) void gradus_plugin_register()

#pragma GCC visibility push(default)

namespace gradus {

// Loads a plug-in and registers its operators and functions. A plug-in is registered once and never
// unloaded. Throws Error for a file that cannot be loaded, a library that is no plug-in, and a
// plug-in of another version. Exceptions of the registration are passed on.
void load_plugin(const std::string& path);

}  // namespace gradus

#pragma GCC visibility pop
