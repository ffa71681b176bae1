// Accelerators: threads, queues and streams, on the loopback device.
#include "gradus/devices.h"

#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "tests/autograd/loopback.h"
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

// Streams of this thread as they were before, and nothing left queued.
class Devices : public ::testing::Test {
 protected:
  void SetUp() override {
    Loopback::get();
    for (int i = 0; i < 2; ++i) device_.push_back(Loopback::device(i));
  }
  void TearDown() override { Loopback::drain(); }
  // A stream of the first device on which what was queued on the default one is done.
  Stream stream_after_default() {
    DeviceStreams& loopback = Loopback::get();
    Stream s = new_stream(device_[0]);
    loopback.wait(device_[0], 0, device_[0], s);
    return s;
  }
  std::vector<Device> device_;
};

size_t threads() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++n;
  return n;
}

// SPEC E7
TEST_F(Devices, ThreadsStartOnceAndOnlyWhenWanted) {
  Loopback::drain();
  Variable x = device_leaf(0, {1, 2}), ct = device_leaf(0, {1, 1}, false);
  device_leaf(1, {1});
  Loopback::drain();
  size_t before = threads();
  OwnEngine engine;
  op("neg", {leaf({1})}).backward(leaf({1}, false));
  EXPECT_EQ(threads(), before);
  std::set<std::thread::id> seen;
  auto note = [&](Variables&& c) {
    seen.insert(std::this_thread::get_id());
    return std::move(c);
  };
  for (int i = 0; i < 3; ++i) {
    through("node", x, note).backward(ct);
    EXPECT_EQ(threads(), before + Loopback::count);
  }
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_FALSE(seen.count(std::this_thread::get_id()));
  engine->shutdown();
  EXPECT_EQ(threads(), before);
}

// SPEC E6, E7
TEST_F(Devices, NodesRunOnTheThreadAndStreamOfTheirFirstAcceleratorInput) {
  OwnEngine engine;
  DeviceStreams& loopback = Loopback::get();
  Stream s = new_stream(device_[0]);
  std::map<std::string, std::thread::id> ran;
  std::map<std::string, Stream> streams;
  std::mutex mutex;
  auto note = [&](std::string name, Device device) {
    return [&, name, device](Variables&& c) {
      std::lock_guard guard(mutex);
      ran[name] = std::this_thread::get_id();
      if (device.kind != DeviceKind::cpu) streams[name] = loopback.current(device);
      return std::move(c);
    };
  };
  auto moves = [&](std::string name, Device to, Device device) {
    return [&, name, to, device](Variables&& c) {
      note(name, device)(Variables(c));
      return Variables{move_to(c[0], to)};
    };
  };
  Variable x0 = device_leaf(0, {1}), x1 = device_leaf(1, {1}), x = leaf({1});
  // cpu <- device 1 <- device 0 <- cpu, as the gradient goes.
  Variable a = through("on cpu", x, note("on cpu", {}));
  auto b = make_ref<LambdaNode>("on 1", collect_next_edges(std::array{a}),
                                moves("on 1", Device(), device_[1]));
  Variable vb = create_gradient_edge(x1.data(), b);
  Variable vc;
  {
    StreamGuard guard(device_[0], s);
    auto c = make_ref<LambdaNode>("on 0", collect_next_edges(std::array{vb}),
                                  moves("on 0", device_[1], device_[0]));
    vc = create_gradient_edge(x0.data(), c);
  }
  auto d = make_ref<LambdaNode>("top", collect_next_edges(std::array{vc}),
                                moves("top", device_[0], Device()));
  create_gradient_edge(x.data(), d).backward(leaf({7}, false));
  EXPECT_EQ(values(x.grad()), std::vector<double>{7});
  const auto self = std::this_thread::get_id();
  EXPECT_EQ(ran["on cpu"], self);
  EXPECT_EQ(ran["top"], self);
  EXPECT_NE(ran["on 0"], self);
  EXPECT_NE(ran["on 1"], self);
  EXPECT_NE(ran["on 0"], ran["on 1"]);
  EXPECT_EQ(streams["on 0"], s);
  EXPECT_EQ(streams["on 1"], 0u);
}

// SPEC E7, E17
TEST_F(Devices, WithoutMultithreadingTheCallerRunsThemToo) {
  OwnEngine engine({.multithreading = false});
  Variable x = device_leaf(0, {1, 2});
  const auto self = std::this_thread::get_id();
  Variable y = through("node", x, [&](Variables&& c) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    return Variables{op("add", {c[0], c[0]})};
  });
  y.backward(device_leaf(0, {1, 2}, false));
  EXPECT_EQ(device_values(x.grad()), (std::vector<double>{2, 4}));
}

// SPEC E2
TEST_F(Devices, ScalarGradientsMoveAndOthersAreRefused) {
  OwnEngine engine;
  Variable x(Loopback::get().copy_to(Tensor::scalar(DType::f64, 3), device_[1]), true);
  Variable y = through("scalar", x, [](Variables&&) { return Variables{scalar(4, false)}; });
  y.backward(scalar(1, false));  // the root's cotangent moves as well
  EXPECT_EQ(x.grad().data().device(), device_[1]);
  EXPECT_EQ(device_values(x.grad()), std::vector<double>{4});
  Variable v = device_leaf(1, {1, 2});
  Variable bad = through("vector", v, [](Variables&&) { return Variables{leaf({1, 2}, false)}; });
  std::string text = error_of([&] { bad.backward(device_leaf(1, {1, 1}, false)); });
  EXPECT_NE(text.find("gradient 0 of 'vector' has to be on other:1; it is on cpu"),
            std::string::npos)
      << text;
}

// Numbers decide the order of sums in the next derivative: what a device's thread makes follows
// what its caller has made, and the caller goes on after that.
// SPEC N2
TEST_F(Devices, NodesAreNumberedOnAcrossThreads) {
  OwnEngine engine;
  op("neg", {device_leaf(0, {1})}).backward(device_leaf(0, {1}, false));  // the thread is there
  Variable x = device_leaf(0, {1, 2}), y = x;
  for (int i = 0; i < 100; ++i) y = op("neg", {y});
  Variable square = op("mul", {y, y});
  Variable d = grad(std::array{square}, std::array{x}, std::array{device_leaf(0, {1, 1})},
                    {.create_graph = true})[0];
  EXPECT_GT(d.grad_fn()->sequence_number(), square.grad_fn()->sequence_number());
  EXPECT_GT(op("neg", {d}).grad_fn()->sequence_number(), d.grad_fn()->sequence_number());
}

// SPEC E2
TEST_F(Devices, MovingIsDifferentiated) {
  OwnEngine engine;
  Variable x = leaf({3});
  Variable y = move_to(move_to(op("mul", {x, x}), device_[0]), device_[1]);
  move_to(op("mul", {y, y}), Device()).backward(leaf({1}, false));
  EXPECT_EQ(values(x.grad()), std::vector<double>{108});
}

// Two branches on streams of their own, whose gradients meet at a leaf of a third.
// SPEC E11
TEST_F(Devices, GradientsFromSeveralStreamsAreAddedAfterTheyAreMade) {
  OwnEngine engine;
  DeviceStreams& loopback = Loopback::get();
  Device d = device_[0];
  for (int round = 0; round < 15; ++round) {
    Variable x = device_leaf(0, {1, 2, 3});
    std::vector<Variable> branches;
    for (int i = 0; i < 3; ++i) {
      Stream s = new_stream(d);
      loopback.wait(d, loopback.current(d), d, s);
      StreamGuard guard(d, s);
      branches.push_back(op("mul", {op("mul", {x, x}), x}));
    }
    std::vector<Variable> cotangents;
    for (int i = 0; i < 3; ++i) cotangents.push_back(device_leaf(0, {1, 1, 1}, false));
    backward(branches, cotangents);
    EXPECT_EQ(device_values(x.grad()), (std::vector<double>{9, 36, 81}));
  }
}

// SPEC E11
TEST_F(Devices, RootsAndResultsAreSynchronisedWithTheCallersStreams) {
  OwnEngine engine;
  Device d = device_[0];
  for (int round = 0; round < 15; ++round) {
    Variable x = device_leaf(0, {1, 2, 3}), y;
    Stream forward = stream_after_default(), caller = new_stream(d);
    {
      StreamGuard guard(d, forward);
      y = op("mul", {x, x});
    }
    StreamGuard guard(d, caller);
    Variable cotangent = device_leaf(0, {1, 10, 100}, false);  // made on the caller's stream
    Variable got =
        grad(std::array{y}, std::array{x}, std::array{cotangent}, {.keep_graph = true})[0];
    EXPECT_EQ(device_values(got), (std::vector<double>{2, 40, 600}));
    y.backward(cotangent);
    EXPECT_EQ(device_values(x.grad()), (std::vector<double>{2, 40, 600}));
  }
}

// SPEC E11
TEST_F(Devices, MemoryIsNotReusedWhileAnotherStreamReadsIt) {
  OwnEngine engine;
  DeviceStreams& loopback = Loopback::get();
  Device d = device_[0];
  for (int round = 0; round < 15; ++round) {
    Variable x = device_leaf(0, {1, 2, 3});
    Stream low = stream_after_default(), high = new_stream(d);
    Variable a, b;
    {
      StreamGuard guard(d, low);
      a = op("mul", {x, x});
    }
    loopback.wait(d, low, d, high);
    {
      // Its gradient is made on `high`, read on `low`, and dies as soon as that read is queued.
      StreamGuard guard(d, high);
      b = op("mul", {a, a});
    }
    StreamGuard guard(d, high);
    b.backward(device_leaf(0, {1, 1, 1}, false));
    EXPECT_EQ(device_values(x.grad()), (std::vector<double>{4, 32, 108}));
  }
}

// SPEC E11
TEST_F(Devices, WorkThatTheHostQueuesFromACpuNodeIsWaitedFor) {
  OwnEngine engine;
  for (int round = 0; round < 15; ++round) {
    Variable x = device_leaf(0, {1, 2, 3});
    Variable host = move_to(op("mul", {x, x}), Device());
    StreamGuard guard(device_[0], stream_after_default());
    host.backward(leaf({1, 1, 1}, false));
    EXPECT_EQ(device_values(x.grad()), (std::vector<double>{2, 4, 6}));
  }
}

// SPEC E11, E12
TEST_F(Devices, CallbacksRunOnTheCallersStreams) {
  for (int limit : {60, 1}) {
    OwnEngine engine({.depth_limit = limit});
    DeviceStreams& loopback = Loopback::get();
    Device d = device_[0];
    Stream caller = new_stream(d);
    Stream seen = 99;
    std::vector<double> read;
    auto run = [&] {
      GradModeGuard mode(GradMode::enabled);  // it is off in a node
      Variable x = device_leaf(0, {1, 2});
      loopback.wait(d, loopback.current(d), d, 0);
      Variable y;
      {
        StreamGuard guard(d, 0);
        y = through("node", op("mul", {x, x}), [&, x](Variables&& c) {
          Engine::queue_callback([&, x] {
            seen = Loopback::get().current(d);
            read = device_values(x.grad());
          });
          return std::move(c);
        });
      }
      y.backward(device_leaf(0, {1, 1}, false));
    };
    StreamGuard guard(d, caller);
    // Beyond the limit the nested call is on another thread.
    through("outer", leaf({1}), [&](Variables&& c) {
      run();
      return std::move(c);
    }).backward(leaf({1}, false));
    EXPECT_EQ(seen, caller);
    EXPECT_EQ(read, (std::vector<double>{2, 4}));
  }
}

// SPEC E11
TEST_F(Devices, InputsAreLetGoBeforeAnybodyIsTold) {
  OwnEngine engine;
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> dead{0};
    int dead_at_callback = -1;
    double memory[2] = {1, 1};
    Variable x = device_leaf(0, {1, 2});
    auto last = make_ref<LambdaNode>("last", SmallVector<Edge, 2>(), [](Variables&& c) {
      EXPECT_EQ(values(c[0]), (std::vector<double>{1, 1}));
      return Variables();
    });
    Variable low = create_gradient_edge(x.data(), last);
    last->clear_input_metadata();
    Variable y = through("top", low, [&](Variables&&) {
      Engine::queue_callback([&] { dead_at_callback = dead; });
      return Variables{Variable(Tensor(make_ref<Storage>(memory, 16, Device(), [&] { ++dead; }),
                                       Layout(DType::f64, Sizes{2})))};
    });
    y.backward(device_leaf(0, {1, 1}, false));
    EXPECT_EQ(dead_at_callback, 1);
  }
}

// SPEC E9
TEST_F(Devices, NestedBackwardsOnADevicesThread) {
  for (int limit : {60, 3}) {
    OwnEngine engine({.depth_limit = limit});
    std::set<std::thread::id> on_device;
    std::function<double(int)> nest = [&](int depth) {
      Variable x = device_leaf(0, {1}), w = leaf({1});
      Variable y = through("device", x, [&, depth](Variables&&) {
        if (depth == 20) on_device.insert(std::this_thread::get_id());
        double below = depth > 0 ? nest(depth - 1) : 0;
        return Variables{device_leaf(0, {below + 1}, false)};
      });
      // A CPU node in the same nested task: served by whoever drives it.
      Variable h = through("host", w, hand_on);
      backward(std::array{y, h}, std::array{device_leaf(0, {1}, false), leaf({1}, false)});
      EXPECT_EQ(values(w.grad()), std::vector<double>{1});
      return device_values(x.grad())[0];
    };
    EXPECT_EQ(nest(20), 21);
    EXPECT_FALSE(on_device.count(std::this_thread::get_id()));
  }
}

// SPEC E9
TEST_F(Devices, TwoDevicesNestedOnEachOther) {
  for (int limit : {60, 2}) {
    OwnEngine engine({.depth_limit = limit});
    std::function<double(int, int)> nest = [&](int device, int depth) {
      Variable x = device_leaf(device, {1});
      Variable y = through("node", x, [&, device, depth](Variables&&) {
        double below = depth > 0 ? nest(1 - device, depth - 1) : 0;
        return Variables{device_leaf(device, {below + 1}, false)};
      });
      y.backward(device_leaf(device, {1}, false));
      return device_values(x.grad())[0];
    };
    ThreadState state = thread_state();
    std::vector<std::thread> callers;
    for (int t = 0; t < 4; ++t)
      callers.emplace_back([&, t] {
        StateGuard guard(state);
        EXPECT_EQ(nest(t % 2, 12), 13);
      });
    for (std::thread& t : callers) t.join();
  }
}

// SPEC E10, E14
TEST_F(Devices, FailuresAndShutdownOnADevicesThread) {
  Variable x = device_leaf(0, {1}), ct = device_leaf(0, {1}, false);
  {
    OwnEngine engine;
    Variable bad = through("bad", x, [](Variables&&) -> Variables { throw 5; });
    Variable y = joined("top", {bad, x, bad}, copies(3));
    for (int i = 0; i < 5; ++i) EXPECT_THROW(y.backward(ct, true), int);
    op("neg", {x}).backward(ct);
  }
  // A nested CPU task on the device's thread while the engine stops.
  OwnEngine engine;
  std::atomic<bool> inside{false};
  Variable y = through("outer", x, [&](Variables&& c) {
    Variable deep = leaf({1});
    for (int i = 0; i < 3; ++i)
      deep = through("inner", deep, [&](Variables&& d) {
        inside = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return std::move(d);
      });
    Variable other = through("other", leaf({1}), hand_on);
    joined("both", {deep, other}, copies(2)).backward(leaf({1}, false));
    return std::move(c);
  });
  std::thread stopper([&] {
    while (!inside) std::this_thread::yield();
    engine->shutdown();
  });
  std::string text = error_of([&] { y.backward(ct); });
  stopper.join();
  EXPECT_NE(text.find("shut down"), std::string::npos) << text;
}

}  // namespace
}  // namespace gradus::autograd::testing
