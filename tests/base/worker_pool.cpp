#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "gradus/context.h"

using namespace gradus;

namespace {

class Workers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pool, Workers, testing::Values(1, 2, 8));

TEST_P(Workers, RunEveryChunkOnce) {
  WorkerPool pool(GetParam());
  EXPECT_EQ(pool.workers(), GetParam());
  for (int64_t chunks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(chunks));
    pool.parallel_for(chunks, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    for (int64_t i = 0; i < chunks; ++i) ASSERT_EQ(runs[static_cast<size_t>(i)], 1) << i;
  }
  pool.parallel_for(-1, [&](int64_t) { FAIL() << "there is no chunk"; });
}

TEST_P(Workers, RunManySmallLoops) {
  WorkerPool pool(GetParam());
  std::vector<int64_t> sums(4);
  for (int loop = 0; loop < 3000; ++loop)
    pool.parallel_for(4, [&](int64_t i) { sums[static_cast<size_t>(i)] += i; });  // plain writes
  EXPECT_EQ(sums, (std::vector<int64_t>{0, 3000, 6000, 9000}));
}

// Each chunk waits until another thread has begun the other one. Between loops the workers spin, or
// have gone to sleep.
TEST(WorkersOfAPool, ComeToEachLoop) {
  using namespace std::chrono;
  WorkerPool pool(2);
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  for (int loop = 0; loop < 200; ++loop) {
    std::atomic<int> begun{0};
    std::atomic<bool> alone{false};
    pool.parallel_for(2, [&](int64_t) {
      ++begun;
      const auto end = steady_clock::now() + seconds(20);
      while (begun < 2 && steady_clock::now() < end) std::this_thread::yield();
      if (begun < 2) alone = true;
    });
    ASSERT_FALSE(alone) << loop;
    std::this_thread::sleep_for(microseconds(loop % 4 * 70));
  }
}

TEST_P(Workers, NestedLoopsRunOnTheirCaller) {
  WorkerPool pool(GetParam());
  std::vector<std::atomic<int>> runs(8 * 8 * 2);
  pool.parallel_for(8, [&](int64_t i) {
    std::set<std::thread::id> threads;
    pool.parallel_for(8, [&](int64_t j) {
      threads.insert(std::this_thread::get_id());
      pool.parallel_for(2, [&](int64_t k) { ++runs[static_cast<size_t>((i * 8 + j) * 2 + k)]; });
    });
    if (pool.workers() > 1) {
      EXPECT_EQ(threads.size(), 1u);
      EXPECT_EQ(*threads.begin(), std::this_thread::get_id());
    }
  });
  for (auto& r : runs) EXPECT_EQ(r, 1);
}

TEST_P(Workers, AnExceptionReachesTheCaller) {
  WorkerPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> running{0}, after{0};
    try {
      pool.parallel_for(64, [&](int64_t i) {
        ++running;
        if (i == 5) {
          --running;
          throw std::runtime_error("chunk 5");
        }
        if (i > 5) ++after;
        --running;
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "chunk 5");
    }
    EXPECT_EQ(running, 0);  // nobody is still at work
    if (pool.workers() == 1) {
      EXPECT_EQ(after, 0);
    }
  }
  // And the pool is as good as new.
  std::atomic<int> sum{0};
  pool.parallel_for(100, [&](int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 4950);
}

TEST_P(Workers, ExceptionsOfAllChunksBecomeOne) {
  WorkerPool pool(GetParam());
  EXPECT_THROW(pool.parallel_for(32, [](int64_t i) { throw std::out_of_range(std::to_string(i)); }),
               std::out_of_range);
}

TEST_P(Workers, ServeTwoThreads) {
  WorkerPool pool(GetParam());
  auto sum_many = [&] {
    for (int loop = 0; loop < 500; ++loop) {
      std::vector<int64_t> parts(16);
      pool.parallel_for(16, [&](int64_t i) { parts[static_cast<size_t>(i)] = i; });
      ASSERT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), 120);
    }
  };
  std::thread other(sum_many);
  sum_many();
  other.join();
}

TEST(WorkerPool, ZeroMeansOnePerCore) {
  EXPECT_EQ(WorkerPool(0).workers(),
            std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

// Two chunks, each of which ends only when the other has begun: two threads run them.
template <class F>
void meet(WorkerPool& pool, F&& then) {
  std::atomic<int> arrived{0};
  pool.parallel_for(2, [&](int64_t i) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    then(i);
  });
}

TEST(WorkerPool, SeveralWorkersTakePartInEveryLoop) {
  WorkerPool pool(2);
  for (int loop = 0; loop < 10; ++loop) {
    std::thread::id ids[2];
    meet(pool, [&](int64_t i) { ids[i] = std::this_thread::get_id(); });
    EXPECT_NE(ids[0], ids[1]);
  }
}

TEST(WorkerPool, ALoopEndsWithItsLastChunk) {
  WorkerPool pool(2);
  bool slow_done = false;
  auto caller = std::this_thread::get_id();
  meet(pool, [&](int64_t) {
    if (std::this_thread::get_id() == caller) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    slow_done = true;
  });
  EXPECT_TRUE(slow_done);
}

// A worker that another process keeps from its core holds the one chunk that it is in, and nothing
// that it has not begun: the others run that meanwhile.
class SeveralWorkers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pool, SeveralWorkers, testing::Values(2, 8));
TEST_P(SeveralWorkers, HeldUpHoldOneChunkEach) {
  WorkerPool pool(GetParam());
  constexpr int64_t chunks = 64;
  const auto held = static_cast<int64_t>(GetParam()) - 1;  // all workers but one
  for (int round = 0; round < 5; ++round) {
    std::atomic<int64_t> begun{0}, done{0};
    std::atomic<bool> in_vain{false};
    pool.parallel_for(chunks, [&](int64_t) {
      const bool waits = begun++ < held;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (waits && done < chunks - held && !in_vain) {
        if (std::chrono::steady_clock::now() > end) in_vain = true;
        std::this_thread::yield();
      }
      if (!waits) ++done;
    });
    EXPECT_FALSE(in_vain);
    EXPECT_EQ(done, chunks - held);
  }
}

TEST(WorkerPool, IdleWorkersStayOutOfNestedLoops) {
  WorkerPool pool(8);
  std::atomic<int> strangers{0}, runs{0};
  pool.parallel_for(2, [&](int64_t) {
    auto mine = std::this_thread::get_id();
    pool.parallel_for(8, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      strangers += std::this_thread::get_id() != mine;
      ++runs;
    });
  });
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(runs, 16);
}

TEST(WorkerPool, ALoopOfASecondThreadRunsThere) {
  WorkerPool pool(8);
  std::atomic<bool> begun{false}, ended{false};
  std::thread other([&] {
    while (!begun) std::this_thread::yield();
    auto mine = std::this_thread::get_id();
    std::atomic<int> strangers{0};
    pool.parallel_for(8, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      strangers += std::this_thread::get_id() != mine;
    });
    EXPECT_EQ(strangers, 0);
    ended = true;
  });
  pool.parallel_for(2, [&](int64_t) {
    begun = true;
    while (!ended) std::this_thread::yield();
  });
  other.join();
}

}  // namespace
