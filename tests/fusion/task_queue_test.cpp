#include "fusion/task_queue.h"

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradus/error.h"

namespace gradus::fusion {
namespace {

TEST(TaskQueue, DoesWhatIsAskedFor) {
  std::atomic<int> prepared = 0, done = 0;
  TaskQueue queue(3, 100, [&] { ++prepared; });
  EXPECT_EQ(prepared, 0);
  for (int i = 0; i < 50; ++i) queue.add(std::to_string(i), [&] { ++done; });
  queue.wait();
  EXPECT_EQ(done, 50);
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(queue.statistics().waiting, 0u);
  EXPECT_EQ(queue.statistics().dropped, 0u);
}

// One of a name at a time; when it is done it may be asked for again.
TEST(TaskQueue, KnowsTasksByName) {
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<int> done = 0;
  TaskQueue queue(2, 100, [] {});
  auto task = [&, opened] { opened.wait(), ++done; };
  for (int i = 0; i < 3; ++i) queue.add("a", task);
  queue.add("b", task);
  EXPECT_EQ(queue.statistics().waiting, 2u);
  gate.set_value();
  queue.wait();
  EXPECT_EQ(done, 2);
  queue.add("a", task);
  queue.wait();
  EXPECT_EQ(done, 3);
}

TEST(TaskQueue, HasSeveralThreads) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::promise<void> all;
  auto together = all.get_future().share();
  TaskQueue queue(3, 100, [] {});
  for (int i = 0; i < 3; ++i)
    queue.add(std::to_string(i), [&, together] {
      {
        std::lock_guard guard(mutex);
        threads.insert(std::this_thread::get_id());
        if (threads.size() == 3) all.set_value();
      }
      together.wait();
    });
  queue.wait();
  EXPECT_EQ(threads.size(), 3u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(TaskQueue, TakesNoMoreThanMayWait) {
  std::promise<void> gate, running;
  auto opened = gate.get_future().share();
  TaskQueue queue(1, 2, [] {});
  queue.add("first", [&, opened] { running.set_value(), opened.wait(); });
  running.get_future().wait();
  for (int i = 0; i < 5; ++i) queue.add(std::to_string(i), [] {});
  EXPECT_EQ(queue.statistics().waiting, 3u);
  EXPECT_EQ(queue.statistics().dropped, 3u);
  gate.set_value();
  queue.wait();
}

TEST(TaskQueue, GoesOnAfterAFault) {
  int done = 0;
  TaskQueue queue(1, 10, [] {});
  queue.add("bad", [] { throw Error("no"); });
  queue.add("good", [&] { ++done; });
  queue.wait();
  EXPECT_EQ(done, 1);
}

// Where what tasks need cannot be made ready, there is nobody to do them.
TEST(TaskQueue, LeavesTasksThatNobodyCanDo) {
  TaskQueue queue(2, 10, [] { throw ResourceError("no compiler"); });
  queue.add("a", [] { FAIL(); });
  queue.wait();
  EXPECT_EQ(queue.statistics().dropped, 1u);
}

// What waits is left when it ends, and nothing is taken after that.
TEST(TaskQueue, Stops) {
  std::promise<void> gate, running;
  std::atomic<int> done = 0;
  TaskQueue queue(1, 10, [] {});
  queue.add("first", [&] {
    running.set_value();
    gate.get_future().wait();
    ++done;
  });
  running.get_future().wait();
  queue.add("second", [&] { ++done; });
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  queue.stop();
  opens.join();
  EXPECT_EQ(done, 1);
  queue.add("third", [&] { ++done; });
  queue.wait();
  EXPECT_EQ(done, 1);
}

// Fails if what the first task made, as libraries make static objects, goes under the second.
[[noreturn]] void exit_while_a_task_runs() {
  static std::atomic<bool> running = false, gone = false;
  struct Made {
    ~Made() { gone = true; }
  };
  auto* queue = new TaskQueue(1, 10, [] {});
  queue->add("first", [] { static const Made made; });
  queue->wait();
  queue->add("second", [] {
    running = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (gone) _exit(1);
  });
  while (!running) std::this_thread::yield();
  std::exit(0);
}

TEST(TaskQueue, StopsBeforeWhatATaskMadeGoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_a_task_runs(), testing::ExitedWithCode(0), "");
}

TEST(TaskQueue, HasNoThreadsInAForkedChild) {
  std::promise<void> gate, running;
  auto* queue = new TaskQueue(1, 10, [] {});
  queue->add("first",
             [&, opened = gate.get_future().share()] { running.set_value(), opened.wait(); });
  running.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    int done = 0;
    queue->add("second", [&] { ++done; });
    queue->wait();
    queue->stop();
    delete queue;
    _exit(done);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.set_value();
  delete queue;
}

}  // namespace
}  // namespace gradus::fusion
