// How headers say what the shared library shows. All code is compiled with -fvisibility=hidden; a
// public header puts what it declares between
//   #pragma GCC visibility push(default)
//   #pragma GCC visibility pop
// Declarations of what is internal stand before that. A nested class that is internal says so. A
// friend function that is declared nowhere else says that it is public: GCC hides it otherwise.
#pragma once

#define GRADUS_INTERNAL __attribute__((visibility("hidden")))
#define GRADUS_PUBLIC __attribute__((visibility("default")))
