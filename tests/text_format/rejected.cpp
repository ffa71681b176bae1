// The programs of rejected/: each names, in its first line, a part of the message that it gives.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/functions.h"
#include "tests/text_format/support.h"

namespace gradus::ir {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> programs() {
  std::vector<fs::path> list;
  for (const auto& entry : fs::directory_iterator(GRADUS_SOURCE_DIR "/tests/text_format/rejected"))
    if (entry.path().extension() == ".ir") list.push_back(entry.path());
  std::sort(list.begin(), list.end());
  return list;
}

// SPEC P5
TEST(Rejected, EveryProgramForItsReason) {
  test::register_test_functions();
  for (const fs::path& path : programs()) {
    SCOPED_TRACE(path.filename().string());
    std::ifstream in(path);
    std::string first;
    std::getline(in, first);
    const std::string prefix = "# error: ";
    ASSERT_TRUE(first.starts_with(prefix)) << first;
    try {
      parse_file(path.string());
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(e.bare().find(first.substr(prefix.size())), std::string::npos) << e.what();
      EXPECT_TRUE(e.where().known()) << e.what();
    }
  }
}

// Those that a text can break at all: values out of the table, wrong stage numbers in it and
// operators that are not in the table exist in memory only (see verifier.cpp).
// SPEC P5
TEST(Rejected, EveryInvariantThatATextCanBreak) {
  std::set<std::string> seen;
  for (const fs::path& path : programs()) {
    std::ifstream in(path);
    std::string first;
    std::getline(in, first);
    std::string file = path.filename().string(), number = file.substr(0, file.find('_'));
    EXPECT_NE(first.find("[" + number + "]"), std::string::npos) << file << ": " << first;
    seen.insert(number);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"V1", "V3", "V4", "V7", "V8", "V9", "V10", "V11", "V12",
                                         "V13", "V14", "V15"}));
}

}  // namespace
}  // namespace gradus::ir
