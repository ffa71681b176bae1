#include <gtest/gtest.h>

#include "tools/functions.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gradus::cli::register_functions();
  return RUN_ALL_TESTS();
}
