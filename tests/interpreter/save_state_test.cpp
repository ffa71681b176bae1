// States saved after a stage and resumed.
// SPEC I20
#include <filesystem>
#include <thread>

#include "gradus/files.h"
#include "gradus/inputs.h"
#include "tests/interpreter/opaque_support.h"

namespace gradus::test {
namespace {

class SaveState : public OpaqueTest {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "gradus-state-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};
#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

// Views of inputs and of values, small carried values, a large one, a constant, an integer.
constexpr const char* mixed = R"(
graph mixed {
  stage 0 (%x: f64[N, 3], %w: f64[3], %i: i64[2]) {
    %c = constant() {value = f64[3] [1, 2, 3]}
    %a = mul(%x, %w)
    %t = transpose(%a) {dim0 = 0, dim1 = 1}
    %e = exp(%t)
    %s = sum(%e) {dim = 1}
    %q = mul(%s, %c)
    %p = index_select(%x, %i) {dim = 0}
    %y = mul(%q, %w)
    return %y, %p
  }
})";

std::vector<Tensor> inputs_of(const State& state, uint64_t seed,
                              std::map<std::string, Tensor> given = {}) {
  InputSources sources = random_sources(seed, Context::default_context());
  sources.sizes = {{"N", 200}};
  sources.find = [given](std::string_view name) -> std::optional<FoundTensor> {
    auto it = given.find(std::string(name));
    return it == given.end() ? std::nullopt : std::optional(FoundTensor{it->second, "here"});
  };
  return find_inputs(state, sources);
}

// Every stage's results, saved and resumed before stage `at`, by states of the given fusion.
std::vector<Tensor> results(const std::shared_ptr<const Code>& code, size_t at,
                            const std::string& path, FusionMode before, FusionMode after) {
  auto context = Context::default_context();
  State state(code, context, {.fusion = before});
  std::vector<Tensor> all;
  for (size_t s = 0; s <= code->stages(); ++s) {
    if (s == at) {
      state.save(path);
      state = State::resume(code, path, context, {.fusion = after});
      EXPECT_EQ(state.next_stage(), s);
    }
    if (s == code->stages()) break;
    for (Tensor& t : state.run(inputs_of(state, 4))) all.push_back(std::move(t));
  }
  return all;
}

TEST_F(SaveState, GoesOnWithTheSameBits) {
  auto code = compile(mixed, 3);
  auto expected = results(code, 99, "", FusionMode::off, FusionMode::off);
  for (size_t stage = 0; stage <= code->stages(); ++stage)
    for (auto [before, after] : {std::pair(FusionMode::off, FusionMode::off),
                                 std::pair(FusionMode::first, FusionMode::off),
                                 std::pair(FusionMode::off, FusionMode::first)}) {
      // Compiled anew, as another process does.
      auto actual = results(stage % 2 ? code : compile(mixed, 3), stage, at("s"), before, after);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_TRUE(bitwise_equal(actual[i], expected[i])) << "stage " << stage << " result " << i;
    }
}

TEST_F(SaveState, KeepsAbsentAndStridedValues) {
  auto code = compile(R"(
graph g {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %y = mul(%x, %w)
    %z = exp(%w)
    return %y, %z
  }
})",
                      2);
  Tensor wide = random_tensor(DType::f64, Sizes{8}, "w", 1, *Context::default_context());
  Tensor every = wide.view(Layout(DType::f64, {4}, {2}), 1);
  Tensor x = f64({1, 2, 3, 4}), ct = f64({1, -1, 2, 0.5});
  auto run_all = [&](bool saved) {
    State state(code);
    std::vector<Tensor> all;
    auto stage = [&](std::vector<Tensor> in) {
      for (Tensor& t : run(state, std::move(in))) all.push_back(std::move(t));
      if (!saved) return;
      state.save(at("s"));
      state = State::resume(code, at("s"));
    };
    stage({x, every});
    stage({ct, Tensor()});
    stage({ct, ct});
    return all;
  };
  auto expected = run_all(false), actual = run_all(true);
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(bitwise_equal(expected[i], actual[i])) << i;
  // Of a large tensor only what is looked at is written.
  Tensor huge = Tensor::zeros(DType::f64, Sizes{1 << 20});
  State state(code);
  run(state, {huge.view(Layout(DType::f64, {4}), 1 << 19), x});
  state.save(at("small"));
  EXPECT_LT(std::filesystem::file_size(at("small")), 8192u);
}

TEST_F(SaveState, IsOfOneProgram) {
  auto code = compile(mixed, 1);
  State state(code);
  state.run(inputs_of(state, 1));
  state.save(at("s"));
  auto refused = [&](const std::shared_ptr<const Code>& other) {
    return error_of([&] { State::resume(other, at("s")); });
  };
  EXPECT_SAYS(refused(compile(mixed, 2)), "it is a state of another program ('mixed'");
  EXPECT_SAYS(error_of([&] { State::resume(code, at("nowhere")); }), "nowhere");
  write_safetensors(at("other"), NamedTensors{});
  EXPECT_SAYS(error_of([&] { State::resume(code, at("other")); }), "it is no saved state");
  std::map<std::string, std::string, std::less<>> newer{{"gradus_state", "2"}};
  write_safetensors(at("newer"), {}, newer);
  EXPECT_SAYS(error_of([&] { State::resume(code, at("newer")); }), "of a newer release");
}

// Whatever the file says, it is refused or resumed; nothing is read that is not there.
TEST_F(SaveState, RefusesDamagedFiles) {
  auto code = compile(mixed, 1);
  State state(code);
  state.run(inputs_of(state, 1));
  state.save(at("s"));
  SafetensorsFile file(at("s"));
  size_t refused = 0, tried = 0;
  auto attempt = [&](const std::vector<std::pair<std::string, Tensor>>& tensors,
                     const std::map<std::string, std::string, std::less<>>& metadata) {
    ++tried;
    write_safetensors(at("d"), tensors, metadata);
    try {
      State resumed = State::resume(code, at("d"));
      resumed.run(inputs_of(resumed, 2));
    } catch (const Error&) {
      ++refused;
    }
  };
  std::vector<std::pair<std::string, Tensor>> all;
  for (const std::string& name : file.names()) all.emplace_back(name, file.read(name));
  for (size_t n = 0; n < all.size(); ++n) {
    auto fewer = all;
    fewer.erase(fewer.begin() + static_cast<long>(n));
    attempt(fewer, file.metadata());
    for (double value : {-2.0, 0.0, 1e18}) {
      auto other = all;
      other[n].second = Tensor::from(DType::i64, Sizes{3}, std::vector<double>(3, value));
      attempt(other, file.metadata());
      if (all[n].second.dtype() != DType::i64) continue;
      for (int64_t e = 0; e < all[n].second.numel(); ++e) {
        other[n].second = all[n].second.copy();
        other[n].second.mutable_data_as<int64_t>()[e] = static_cast<int64_t>(value);
        attempt(other, file.metadata());
      }
    }
  }
  for (const auto& [key, value] : file.metadata())
    for (std::string other : {"", "-1", "7", "0 -8", "0 999999999999", "99 0", "x"}) {
      auto metadata = file.metadata();
      metadata[key] = other;
      attempt(all, metadata);
    }
  EXPECT_GT(tried, 50u);
  EXPECT_GT(refused, tried / 2);
}

TEST_F(SaveState, RefusesPoisonAndChangedValues) {
  auto code = compile(calling("t.thrower"), 0);
  until_throw = 0;
  State state(code);
  EXPECT_THROW(run(state, {f64({1})}), Error);
  until_throw = 1 << 30;
  EXPECT_SAYS(error_of([&] { state.save(at("s")); }), "the state is poisoned");
  auto mul = compile("graph g { stage 0 (%x: f64[N]) { %y = mul(%x, %x) return %y } }", 1);
  State held(mul);
  Tensor x = f64({1, 2});
  run(held, {x});
  x.mutable_data();
  EXPECT_SAYS(error_of([&] { held.save(at("s")); }), "was changed in place");
  EXPECT_FALSE(std::filesystem::exists(at("s")));
}

TEST_F(SaveState, RefusesALiveHandleByName) {
  auto code = compile(calling("t.swish", "%a"), 2);
  State state(code);
  run(state, {f64({0.5, -1})});
  std::string message = error_of([&] { state.save(at("s")); });
  EXPECT_SAYS(message,
              "of 't.swish', which cannot be saved: the function is not registered as replayable");
  EXPECT_SAYS(message, "the state holds handle '%");
  // After the last eval it can be.
  run(state, {f64({1, 1})});
  run(state, {f64({1, 1})});
  EXPECT_NO_THROW(state.save(at("s")));
  EXPECT_TRUE(State::resume(code, at("s")).finished());
}

TEST_F(SaveState, CallsReplayableFunctionsAnew) {
  auto code = compile(calling("t.replayed", "%a"), 3);
  auto run_all = [&](bool saved) {
    State state(code);
    std::vector<Tensor> all;
    for (size_t s = 0; s < code->stages(); ++s) {
      for (Tensor& t : state.run(inputs_of(state, 6))) all.push_back(std::move(t));
      if (!saved) continue;
      state.save(at("s"));
      state = State::resume(compile(calling("t.replayed", "%a"), 3), at("s"));
    }
    return all;
  };
  auto expected = run_all(false), actual = run_all(true);
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(bitwise_equal(expected[i], actual[i])) << i;
}

// One state resumed, and a clone of it for each thread.
TEST_F(SaveState, ServesSeveralThreads) {
  auto code = compile(calling("t.replayed", "%a"), 2);
  State first(code);
  first.run(inputs_of(first, 3));
  first.save(at("s"));
  State resumed = State::resume(code, at("s"));
  auto serve = [&](State state, uint64_t seed) {
    std::vector<Tensor> all;
    while (!state.finished())
      for (Tensor& t : state.run(inputs_of(state, seed))) all.push_back(std::move(t));
    return all;
  };
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t n = 0; n < 4; ++n)
    threads.emplace_back([&, n, own = std::make_shared<State>(resumed.clone()),
                          mine = std::make_shared<State>(first.clone())] {
      auto actual = serve(std::move(*own), n), expected = serve(std::move(*mine), n);
      for (size_t i = 0; i < actual.size(); ++i) wrong += !bitwise_equal(actual[i], expected[i]);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gradus::test
