#include "gradus/pool.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

using namespace gradus;

namespace {

TEST(Pool, GivesAlignedBlocksOfTheirOwn) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t bytes = 0; bytes <= 2 * pool::most_bytes; bytes += 7)
    for (int i = 0; i < 20; ++i) {
      auto* block = static_cast<unsigned char*>(pool::take(bytes));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
      std::memset(block, static_cast<int>(blocks.size() % 251), bytes);
      blocks.emplace_back(block, bytes);
    }
  for (size_t k = 0; k < blocks.size(); ++k) {
    auto [block, bytes] = blocks[k];
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], k % 251);
    pool::give(block, bytes);
  }
}

// Blocks go from one thread to another and are used again: the pool does not grow.
TEST(Pool, UsesAgainWhatOtherThreadsGiveBack) {
  auto round = [] {
    std::vector<void*> blocks;
    for (int i = 0; i < 20'000; ++i) blocks.push_back(pool::take(300));
    std::thread([&] {
      for (void* block : blocks) pool::give(block, 300);
    }).join();
  };
  round();
  size_t after_one = pool::pooled_bytes();
  for (int i = 0; i < 5; ++i) round();
  // Without that each size would take as much again, and keep it.
  EXPECT_LE(pool::pooled_bytes(), after_one + after_one / 2);
}

// Pages of one size serve another when they are empty.
TEST(Pool, UsesEmptyPagesForOtherSizes) {
  auto round = [](size_t bytes) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4000; ++i) blocks.push_back(pool::take(bytes));
    for (void* block : blocks) pool::give(block, bytes);
  };
  round(1000);
  size_t after_one = pool::pooled_bytes();
  for (size_t bytes : {500, 640, 700, 900}) round(bytes);
  // Without that each size would take as much again, and keep it.
  EXPECT_LE(pool::pooled_bytes(), after_one + after_one / 2);
}

}  // namespace
