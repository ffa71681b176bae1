// Generated sources as people read them: tests/cuda/golden/NAME.nest gives NAME.cu. With
// GRADUS_WRITE_GOLDEN set, what is generated is written there instead.
// SPEC F8
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "fusion/cuda/source.h"
#include "tests/start.h"

namespace gradus::fusion::cuda {
namespace {

namespace files = std::filesystem;

std::string read(const files::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CudaGolden, SourcesAreAsTheyWere) {
  size_t seen = 0;
  for (const auto& entry :
       files::directory_iterator(gradus::test::source_folder() + "/tests/cuda/golden")) {
    if (entry.path().extension() != ".nest") continue;
    ++seen;
    const std::string text = write_source(parse_nest(read(entry.path()))).text;
    files::path golden = entry.path();
    golden.replace_extension(".cu");
    if (std::getenv("GRADUS_WRITE_GOLDEN")) {
      std::ofstream(golden, std::ios::binary) << text;
      continue;
    }
    const std::string expected = read(golden);
    const auto [at, other] =
        std::mismatch(text.begin(), text.end(), expected.begin(), expected.end());
    EXPECT_EQ(text, expected) << golden.filename() << " differs first in line "
                              << std::count(text.begin(), at, '\n') + 1;
  }
  EXPECT_GE(seen, 4u);
}

}  // namespace
}  // namespace gradus::fusion::cuda
