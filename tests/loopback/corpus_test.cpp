// Every fixture on a backend whose work is done late: each stage on a stream of its own, inputs and
// results here or there, states run again and cloned; the results are the CPU's, bit by bit.
#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>

#include <gtest/gtest.h>

#include "devices/backend.h"
#include "tests/corpus/fused.h"
#include "tests/functions.h"
#include "tests/loopback/backend.h"
#include "tests/start.h"
#include "tools/functions.h"

namespace gradus::loopback {
namespace {

// So many seeds, counting on from the first.
uint64_t given(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}
const uint64_t seeds = given("GRADUS_TEST_SEEDS", 20), first_seed = given("GRADUS_TEST_SEED", 1);

struct Place {
  explicit Place(uint64_t seed)
      : backend(std::make_shared<LoopbackBackend>(0, seed)), context(std::make_shared<Context>()) {
    context->replace_part<fusion::Kernels>(std::make_shared<LoopbackKernels>(backend));
  }
  const std::shared_ptr<LoopbackBackend> backend;
  const std::shared_ptr<Context> context;
};

// One for each seed: their threads serve all fixtures.
Place& place(uint64_t seed) {
  static auto& places = *new std::map<uint64_t, Place>;
  static std::mutex mutex;
  std::lock_guard guard(mutex);
  return places.try_emplace(seed, seed).first->second;
}

Tensor maybe_there(Place& at, const Tensor& t) {
  if (!t.defined() || t.numel() == 0 || at.backend->chance(2)) return t;
  return devices::to_device(at.backend, t, true);
}

// Results are read when all stages have been asked for: what a stage leaves is read by the next one
// while it may still be made.
corpus::Results run(Place& at, State& state, const corpus::Subject& subject) {
  corpus::Results results;
  while (!state.finished()) {
    at.backend->set_stream(at.backend->chance(2) ? 0 : 2 + at.backend->chance(2));
    std::vector<Tensor> inputs;
    for (const Tensor& t : subject.inputs[state.next_stage()]) inputs.push_back(maybe_there(at, t));
    results.push_back(state.run(inputs, {.results_on_device = !at.backend->chance(8)}));
  }
  for (devices::Backend::Stream stream : {0, 2, 3})
    if (stream != at.backend->stream())
      at.backend->wait(at.backend->stream(), at.backend->mark(stream));
  for (auto& stage : results)
    for (Tensor& t : stage) t = devices::to_host(*at.backend, t, *at.context);
  return results;
}

// Three rounds: the second one's memory was used before, the third may replay what was recorded.
std::string difference_by(Place& at, const corpus::Subject& subject,
                          const corpus::Results& expected) {
  const auto mode = at.backend->chance(2) ? FusionMode::first : FusionMode::behind;
  State state(subject.code, at.context, {.fusion = mode});
  std::string found;
  for (int round = 0; round < 3; ++round) {
    if (round) state.restart();
    found += corpus::difference(subject, expected, run(at, state, subject));
  }
  return found;
}

// SPEC E6
class FixtureTest : public testing::Test {
 public:
  explicit FixtureTest(std::string file) : file_(std::move(file)) {}
  void TestBody() override {
    for (const corpus::Subject& subject : corpus::subjects(corpus::load(file_))) {
      const corpus::Results expected = corpus::run_unfused(subject);
      std::vector<std::string> found(seeds);
      std::atomic<uint64_t> next = 0;
      auto run_seeds = [&] {
        for (uint64_t n; (n = next++) < seeds;) {
          Place& at = place(first_seed + n);
          found[n] = difference_by(at, subject, expected);
          at.backend->drain();
        }
      };
      // Delays are waited for, not computed.
      constexpr int threads = 4;
      std::vector<std::future<void>> running;
      for (int t = 0; t < threads; ++t)
        running.push_back(std::async(std::launch::async, run_seeds));
      for (auto& r : running) r.get();
      for (uint64_t n = 0; n < seeds; ++n)
        EXPECT_EQ(found[n], "") << "GRADUS_TEST_SEED=" << first_seed + n;
    }
  }

 private:
  const std::string file_;
};

const test::AtStart start([] {
  test::register_test_functions();
  cli::register_functions();
  for (const std::string& file : corpus::fixture_files())
    testing::RegisterTest("loopback", file.substr(0, file.size() - 3).c_str(), nullptr, nullptr,
                          __FILE__, __LINE__,
                          [file]() -> FixtureTest* { return new FixtureTest(file); });
});

}  // namespace
}  // namespace gradus::loopback
