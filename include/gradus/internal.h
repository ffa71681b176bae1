// Macros that state which declarations the shared library exports. All code is compiled with
// -fvisibility=hidden. A public header puts its public declarations between
//   #pragma GCC visibility push(default)
//   #pragma GCC visibility pop
// and its internal declarations before them. A nested internal class needs GRADUS_INTERNAL. A
// friend function that is declared nowhere else needs GRADUS_PUBLIC, because GCC hides it
// otherwise.
#pragma once

#define GRADUS_INTERNAL __attribute__((visibility("hidden")))
#define GRADUS_PUBLIC __attribute__((visibility("default")))
