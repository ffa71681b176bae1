// How test programs begin, and where they find their files.
#pragma once

#include <cstdlib>
#include <string>

namespace gradus::test {

// The tree, or what stands for it where a program was carried to (its tests/ and examples/):
// $GRADUS_SOURCE_DIR, or where it was compiled.
std::string source_folder();

// A static object of it has a function called before the tests run, to register tests that files
// are made of.
struct AtStart {
  explicit AtStart(void (*function)());
};

// Runs them as the arguments say. Returns the exit status.
int run_tests(int argc, char** argv);

}  // namespace gradus::test
