#include "tests/start.h"

#include <vector>

#include <gtest/gtest.h>

namespace gradus::test {

namespace {

// Made by the first of the static objects that need it.
std::vector<void (*)()>& starters() {
  static std::vector<void (*)()> list;
  return list;
}

}  // namespace

std::string source_folder() {
  const char* given = std::getenv("GRADUS_SOURCE_DIR");
  return given ? given : GRADUS_SOURCE_DIR;
}

AtStart::AtStart(void (*function)()) { starters().push_back(function); }

int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (auto* start : starters()) start();
  return RUN_ALL_TESTS();
}

}  // namespace gradus::test
