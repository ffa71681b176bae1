// Generated sources as people read them: tests/cuda/golden/NAME.nest gives NAME.cu, and kernels of
// single instructions stand there as NAME.cu alone. With GRADUS_WRITE_GOLDEN set, what is generated
// is written there instead.
// SPEC F8
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "fusion/cuda/source.h"
#include "fusion/cuda/stock.h"
#include "tests/start.h"

namespace gradus::fusion::cuda {
namespace {

namespace files = std::filesystem;

std::string read(const files::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_golden(const files::path& golden, const std::string& text) {
  if (std::getenv("GRADUS_WRITE_GOLDEN")) {
    std::ofstream(golden, std::ios::binary) << text;
    return;
  }
  const std::string expected = read(golden);
  const auto [at, other] =
      std::mismatch(text.begin(), text.end(), expected.begin(), expected.end());
  EXPECT_EQ(text, expected) << golden.filename() << " differs first in line "
                            << std::count(text.begin(), at, '\n') + 1;
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
    expect_golden(golden, text);
  }
  EXPECT_GE(seen, 4u);
}

// y[index[i], j] += alpha * src[i, j], of bf16: one thread for a column, or one for each element.
TEST(CudaGolden, SumsOverIndices) {
  work::Index form;
  form.sides.dtype = DType::bf16;
  form.sides.action = work::IndexAction::add;
  form.sides.alpha = 2;
  form.shape = {100, 8};
  form.plain = {8, 1};
  form.indexed = {0, 1};
  form.serial = {true, false};
  form.sums = 80;
  work::IndexOperand index;
  index.argument = 1;
  index.size = 10;
  index.step = 8;
  index.strides = {1, 0};
  form.indices.push_back(index);
  ASSERT_TRUE(adds_atomically(form));
  const files::path folder = gradus::test::source_folder() + "/tests/cuda/golden";
  expect_golden(folder / "index_add.cu", index_kernel(form, 2, false).source.text);
  expect_golden(folder / "index_add_atomics.cu", index_kernel(form, 2, true).source.text);
}

}  // namespace
}  // namespace gradus::fusion::cuda
