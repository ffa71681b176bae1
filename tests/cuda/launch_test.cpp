// How frames become launches: parts of what 32 bits do not count, addresses, what is aligned.
#include "fusion/cuda/launch.h"

#include <cstring>

#include <gtest/gtest.h>

namespace gradus::fusion::cuda {
namespace {

constexpr KernelShape elements{.by_rows = false, .pack = 4}, rows{.by_rows = true, .pack = 1};

struct Read {
  uint32_t blocks;
  std::vector<uint64_t> addresses;
  std::vector<uint32_t> words;  // of the fields
};
Read read(const LaunchPlan& plan, size_t part, std::vector<uint64_t> addresses) {
  std::vector<std::byte> room(plan.parameter_bytes());
  const LaunchPlan::Launch l = plan.launch(part, addresses, room);
  Read r{l.blocks, addresses, {}};
  std::memcpy(r.addresses.data(), l.parameters.data(), 8 * addresses.size());
  r.words.resize((l.parameters.size() - 8 * addresses.size()) / 4);
  std::memcpy(r.words.data(), l.parameters.data() + 8 * addresses.size(), 4 * r.words.size());
  return r;
}

const Nest chain = parse_nest(
    "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = load f16 [broadcast, strided]\n"
    "%v2 = add(%v0, %v1) : f32 in f32 store %v2 }");

TEST(CudaLaunch, OfElements) {
  const LaunchPlan plan(chain, elements, {{100, 64}, {{80, 1}, {0, 3}}}, 132);
  ASSERT_EQ(plan.launches(), 1u);
  // n0, n1, groups, items, whole, a gap, and two strides.
  const Read r = read(plan, 0, {0x1000, 0x2001, 0x3000});
  EXPECT_EQ(r.blocks, 7u);
  EXPECT_EQ(r.words, (std::vector<uint32_t>{100, 64, 16, 1600, 0b101, 0, 80, 0, 3, 0}));
  EXPECT_EQ(r.addresses, (std::vector<uint64_t>{0x1000, 0x2001, 0x3000}));
  EXPECT_EQ(read(plan, 0, {0x1004, 0x2000, 0x3000}).words[4], 0b100u);
  EXPECT_EQ(read(plan, 0, {0x1000, 0x2000, 0x3008}).words[4], 0b001u);
  // Rows that begin anywhere.
  const LaunchPlan odd(chain, elements, {{100, 63}, {{80, 1}, {0, 3}}}, 132);
  EXPECT_EQ(read(odd, 0, {0x1000, 0x2000, 0x3000}).words[4], 0b001u);
  // One row begins where it begins, whatever the stride.
  const LaunchPlan one(chain, elements, {{1, 63}, {{81, 1}, {0, 3}}}, 132);
  EXPECT_EQ(read(one, 0, {0x1000, 0x2000, 0x3000}).words[4], 0b101u);
  EXPECT_EQ(LaunchPlan(chain, elements, {{0, 64}, {{80, 1}, {0, 3}}}, 132).launches(), 0u);
}

TEST(CudaLaunch, OfMoreThan32Bits) {
  // 2^20 rows of 2^14 elements: 2^32 packs.
  const LaunchPlan plan(chain, elements, {{1 << 20, 1 << 14}, {{1 << 14, 1}, {0, 1}}}, 132);
  ASSERT_EQ(plan.launches(), 4u);
  int64_t all = 0;
  for (size_t i = 0; i < 4; ++i) {
    const Read r = read(plan, i, {0, 0, 0});
    EXPECT_EQ(r.words[0], 1u << 18);
    EXPECT_EQ(r.addresses[0], static_cast<uint64_t>(all) * 4);
    EXPECT_EQ(r.addresses[1], 0u);
    EXPECT_EQ(r.addresses[2], static_cast<uint64_t>(all) * 4);
    EXPECT_EQ(r.blocks, 132u * 32);
    all += int64_t{1} << 32;
  }
  // One row of 2^32 + 3.
  const Nest flat = parse_nest("nest 1 { %v0 = load f32 [strided] store %v0 }");
  const LaunchPlan one(flat, elements, {{(int64_t{1} << 32) + 3}, {{-2}}}, 132);
  ASSERT_EQ(one.launches(), 5u);
  const Read last = read(one, 4, {uint64_t{1} << 40, 0});
  EXPECT_EQ(last.words[0], 3u);
  EXPECT_EQ(last.addresses[0], (uint64_t{1} << 40) - (uint64_t{1} << 35));
  EXPECT_EQ(last.addresses[1], uint64_t{1} << 34);
}

TEST(CudaLaunch, OfRows) {
  const Nest sum = parse_nest(
      "nest 3 { %v0 = load f32 [strided, strided, contiguous] %v1 = reduce sum(%v0) : f32 in f32\n"
      "store %v0 store_row %v1 }");
  auto words = [&](int64_t n) {
    const LaunchPlan plan(sum, rows, {{4, 5, n}, {{5 * n, n, 1}}}, 2);
    const Read r = read(plan, 0, {0, 0, 0});
    return std::vector<uint32_t>{r.blocks, r.words[3], r.words[4]};
  };
  // Blocks, rows, groups.
  EXPECT_EQ(words(1), (std::vector<uint32_t>{2, 20, 1}));
  EXPECT_EQ(words(1025), (std::vector<uint32_t>{3, 20, 2}));
  EXPECT_EQ(words(2049), (std::vector<uint32_t>{5, 20, 4}));
  EXPECT_EQ(words(100000), (std::vector<uint32_t>{20, 20, 16}));
  EXPECT_THROW(LaunchPlan(sum, rows, {{1, 1, int64_t{1} << 31}, {{0, 0, 1}}}, 2), Error);
}

}  // namespace
}  // namespace gradus::fusion::cuda
