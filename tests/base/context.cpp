#include "gradus/context.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gradus/error.h"

using namespace gradus;

namespace {

TEST(Context, TakesItsOptions) {
  auto allocator = std::make_shared<HeapAllocator>();
  std::vector<std::string> lines;
  ContextOptions options;
  options.workers = 3;
  options.allocator = allocator;
  options.log = [&](LogLevel level, std::string_view text) {
    lines.push_back(std::string(level == LogLevel::warning ? "w " : "i ") + std::string(text));
  };
  Context context(options);
  EXPECT_EQ(context.workers().workers(), 3);
  EXPECT_EQ(context.allocator(), allocator);
  context.log(LogLevel::warning, "slow");
  EXPECT_EQ(lines, std::vector<std::string>{"w slow"});
}

TEST(Context, IsSilentAndOfItsOwnByDefault) {
  Context a, b;
  a.log(LogLevel::warning, "nobody listens");
  EXPECT_NE(a.allocator(), b.allocator());
  EXPECT_EQ(Context::default_context(), Context::default_context());
  EXPECT_NE(Context::default_context()->allocator(), a.allocator());
}

TEST(HeapAllocator, AlignsAndCounts) {
  HeapAllocator heap;
  void* small = heap.allocate(1);
  void* none = heap.allocate(0);
  void* large = heap.allocate(1000);
  for (void* block : {small, none, large}) {
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % Allocator::alignment, 0u);
  }
  EXPECT_EQ(heap.live_bytes(), 1001u);
  EXPECT_EQ(heap.live_blocks(), 3u);
  heap.deallocate(large, 1000);
  heap.deallocate(none, 0);
  EXPECT_EQ(heap.live_bytes(), 1u);
  EXPECT_EQ(heap.peak_bytes(), 1001u);
  heap.reset_peak();
  EXPECT_EQ(heap.peak_bytes(), 1u);
  heap.deallocate(small, 1);
  EXPECT_EQ(heap.live_blocks(), 0u);
  EXPECT_EQ(heap.calls(), 3u);
}

// Else a step that gives new parameters holds two sets of them.
TEST(HeapAllocator, GivesABlockAgainToWhoAsksForAsMuch) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep blocks for a while";
#endif
  HeapAllocator heap;
  constexpr size_t bytes = 100000;  // of the heap, not of pages of its own
  void* const first = heap.allocate(bytes);
  void* const between = heap.allocate(bytes);
  heap.deallocate(first, bytes);
  void* const second = heap.allocate(bytes);
  EXPECT_EQ(second, first);
  heap.deallocate(second, bytes);
  heap.deallocate(between, bytes);
}

// Pages that the process has taken from the system in a call.
long pages_taken(const std::function<void()>& call) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  call();
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

// A step that returns two matrices of 2 MiB took 1 ms longer: the C library gave them back to the
// system each time.
TEST(HeapAllocator, LargeBlocksTakeTheirPagesOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep blocks for a while";
#endif
  HeapAllocator heap;
  for (size_t bytes : {size_t{200} << 10, size_t{2} << 20, size_t{64} << 20}) {
    auto two = [&] {
      void* blocks[2] = {heap.allocate(bytes), heap.allocate(bytes - 100)};
      for (void* block : blocks) std::memset(block, 7, bytes - 100);
      heap.deallocate(blocks[0], bytes);
      heap.deallocate(blocks[1], bytes - 100);
    };
    two();
    EXPECT_LE(pages_taken([&] {
                for (int i = 0; i < 10; ++i) two();
              }),
              8)
        << bytes;
    EXPECT_EQ(heap.live_bytes(), 0u);
  }
}

// Bytes of the process that are in memory.
size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What was given back in one size makes room for another.
TEST(HeapAllocator, KeepsNoMoreThanWasInUse) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep blocks for a while";
#endif
  const size_t before = resident_bytes();
  constexpr size_t largest = size_t{40} << 20, slack = size_t{6} << 20;
  {
    HeapAllocator heap;
    for (size_t bytes = largest; bytes > size_t{20} << 20; bytes -= size_t{1} << 20) {
      void* block = heap.allocate(bytes);
      std::memset(block, 7, bytes);
      heap.deallocate(block, bytes);
      EXPECT_LE(resident_bytes(), before + largest * 9 / 8 + slack) << bytes;
    }
    for (int i = 0; i < 3; ++i) {
      void* blocks[20];
      for (void*& block : blocks) std::memset(block = heap.allocate(largest / 2), 7, largest / 2);
      for (void* block : blocks) heap.deallocate(block, largest / 2);
      EXPECT_LE(resident_bytes(), before + (size_t{128} << 20) + slack);
    }
  }
  EXPECT_LE(resident_bytes(), before + slack);
}

TEST(HeapAllocator, TellsWhatIsTooLarge) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process where as much is asked for";
#endif
  HeapAllocator heap;
  for (size_t bytes : {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2, size_t{1} << 60})
    EXPECT_THROW(heap.allocate(bytes), ResourceError) << bytes;
  EXPECT_EQ(heap.live_blocks(), 0u);
}

// Those that are worth huge pages begin with one; no byte of them is missing.
TEST(HeapAllocator, TakesLargeBlocksByPages) {
  HeapAllocator heap;
  constexpr size_t page = size_t{2} << 20;
  for (size_t bytes : {2 * page - 1, 2 * page, 5 * page + 123}) {
    auto* block = static_cast<unsigned char*>(heap.allocate(bytes));
    if (bytes >= 2 * page) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % page, 0u);
    }
    block[0] = block[page] = block[bytes - 1] = 7;
    EXPECT_EQ(block[0] + block[page] + block[bytes - 1], 21);
    EXPECT_EQ(heap.live_bytes(), bytes);
    heap.deallocate(block, bytes);
  }
}

}  // namespace
