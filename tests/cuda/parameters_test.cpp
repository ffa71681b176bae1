// A kernel's parameters: what the text declares is what a launch passes.
#include "fusion/cuda/parameters.h"

#include <gtest/gtest.h>

#include "fusion/cuda/stock.h"
#include "fusion/cuda/stock_elements.h"

namespace gradus::fusion::cuda {
namespace {

TEST(CudaParameters, AreListedOnce) {
  work::Window window;
  window.argument = 1;
  window.dtype = DType::f16;
  window.offset = 3;
  const Parameters inner[] = {Parameters().add("a", 7).add("b", 8),
                              Parameters().add("a", 9).add("b", 10)};
  Parameters p;
  p.in("float", "x", work::Window::scratch).out("u16", "y", window).out("i64", "z", std::nullopt);
  p.add("items", -5).add("size", Sizes{2, 3}).add("Pair", "pairs", inner);
  EXPECT_EQ(p.text(),
            "  const float* x;\n  u16* y;\n  i64* z;\n  i64 items;\n  i64 size[2];\n"
            "  Pair pairs[2];\n");
  EXPECT_EQ(inner[0].text(), "  i64 a;\n  i64 b;\n");
  const std::vector<uint64_t> words{0, 0, 0, static_cast<uint64_t>(-5), 2, 3, 7, 8, 9, 10};
  EXPECT_EQ(p.arguments().words, words);
  ASSERT_EQ(p.arguments().pointers.size(), 2u);
  EXPECT_EQ(p.arguments().pointers[0].word, 0u);
  EXPECT_EQ(p.arguments().pointers[0].argument, work::Window::scratch);
  EXPECT_EQ(p.arguments().pointers[1].word, 1u);
  EXPECT_EQ(p.arguments().pointers[1].argument, 1);
  EXPECT_EQ(p.arguments().pointers[1].offset, 6);
}

// Of the struct that a text declares, and of those that it declares before: 64-bit words.
size_t words_of(const std::string& text, const std::string& name) {
  const std::string head = "struct " + name + " {\n";
  size_t at = text.find(head), words = 0;
  if (at == std::string::npos) return 1;  // a number, or a pointer
  for (at += head.size(); text[at] == ' ' && text[at + 2] != '_';) {
    const size_t end = text.find('\n', at), bracket = text.find('[', at);
    const std::string type = text.substr(at + 2, text.find(' ', at + 2) - at - 2);
    const size_t count = bracket < end ? std::stoul(text.substr(bracket + 1)) : 1;
    words += count * (type == "const" ? 1 : words_of(text, type));
    at = end + 1;
  }
  return words;
}

void expect_agreement(const StockKernel& kernel) {
  ASSERT_FALSE(kernel.launches.empty());
  for (const StockKernel::Launch& l : kernel.launches)
    EXPECT_EQ(l.arguments.words.size(), words_of(kernel.source.text, "Work")) << kernel.source.text;
}

TEST(CudaParameters, AreAsManyAsTheTextDeclares) {
  work::Reduce sum;
  sum.kept = {{3, 5000}};
  sum.reduced = {{50, 100}, {100, 1}};
  sum.outputs = 3;
  sum.count = 5000;
  expect_agreement(reduce_kernel(sum));
  expect_agreement(fold_kernel(sum));
  work::MaxPool pool;
  pool.planes = pool.channels = 2;
  expect_agreement(max_pool_kernel(pool));
  work::Columns columns;
  columns.batch = columns.channels = 2;
  columns.columns = {4, 2, 1};
  for (bool folds : {false, true}) {
    columns.folds = folds;
    expect_agreement(columns_kernel(columns));
  }
}

// Nothing to do is no launch.
TEST(CudaParameters, AreNoneWhereThereIsNothingToDo) {
  work::Copy move;
  move.shape = {4, 0};
  EXPECT_TRUE(copy_kernel(move).launches.empty());
  EXPECT_TRUE(range_kernel({}).launches.empty());
  EXPECT_TRUE(fold_kernel({}).launches.empty());  // one chunk
}

}  // namespace
}  // namespace gradus::fusion::cuda
