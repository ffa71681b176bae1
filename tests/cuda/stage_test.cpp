// Stages on a device: where tensors lie, what is copied, and what goes wrong.
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>

#include "devices/cuda/kernels.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

class Stages : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    device_ = std::make_shared<InterpretedDevice>();
    context_ = std::make_shared<Context>(ContextOptions{});
    auto kernels = std::make_shared<cuda::CudaKernels>(
        device_, KernelOptions{.folder = GRADUS_CUDA_TEST_KERNELS}, nullptr);
    backend_ = kernels->backend();
    context_->replace_part<Kernels>(std::move(kernels));
  }

  State state(const std::string& text, FusionMode mode = FusionMode::first) {
    return State(Code::compile(ir::parse(text).program()), context_, {.fusion = mode});
  }
  Tensor here(const Tensor& t) { return to_host(*backend_, t, *context_); }

  std::shared_ptr<InterpretedDevice> device_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<devices::Backend> backend_;
};

constexpr Device cuda0{DeviceKind::cuda, 0};

constexpr const char* two_stages = R"(graph g {
  stage 0 (%x: f32[N], %w: f32[N]) {
    %h = mul(%x, %w)
    %y = tanh(%h)
    return %y
  }
  stage 1 (%d: f32[N]) {
    %g = mul(%d, %h)
    return %g
  }
})";

Tensor f32(std::vector<double> values) {
  return Tensor::from(DType::f32, Sizes{static_cast<int64_t>(values.size())}, values);
}

// Each input is copied once, each result once, and nothing in between.
TEST_F(Stages, CopyInputsInAndResultsOut) {
  State s = state(two_stages);
  const Tensor y = s.run(std::vector{f32({1, 2, 3}), f32({.5, .25, 2})})[0];
  EXPECT_EQ(y.device(), Device());
  EXPECT_EQ(device_->copies_in, 2u);
  EXPECT_EQ(device_->copies_out, 1u);
  const Tensor g = s.run(std::vector{f32({1, 1, 2})})[0];
  EXPECT_EQ(g.to_doubles(), (std::vector<double>{.5, .5, 12}));
  EXPECT_EQ(device_->copies_in, 3u);
  EXPECT_EQ(device_->copies_out, 2u);
  EXPECT_TRUE(s.host_instructions().empty());
}

TEST_F(Stages, LeaveResultsThere) {
  State s = state(two_stages);
  RunOptions stay;
  stay.results_on_device = true;
  const Tensor x = to_device(backend_, f32({1, 2, 3}));
  const Tensor y = s.run(std::vector{x, f32({.5, .25, 2})}, stay)[0];
  EXPECT_EQ(y.device(), cuda0);
  EXPECT_EQ(device_->copies_out, 0u);
  const Tensor g = s.run(std::vector{y}, stay)[0];
  EXPECT_EQ(device_->copies_out, 0u);
  EXPECT_EQ(device_->copies_in, 2u);
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  const Tensor expected = cpu.run(std::vector{f32({1, 2, 3}), f32({.5, .25, 2})})[0];
  EXPECT_TRUE(bitwise_equal(here(y), expected));
  EXPECT_TRUE(bitwise_equal(here(g), cpu.run(std::vector{expected})[0]));
}

// Views are of the same memory, there as here.
TEST_F(Stages, TakeTensorsThatLieOtherwise) {
  State s = state("graph g { stage 0 (%x: f32[M, N]) { %y = neg(%x) return %y } }");
  const Tensor rows = Tensor::from(DType::f32, Sizes{2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor turned = rows.view(Layout(DType::f32, {3, 2}, {1, 3}), 0);
  EXPECT_EQ(s.run(std::vector{turned})[0].to_doubles(),
            (std::vector<double>{-1, -4, -2, -5, -3, -6}));
  s.restart();
  const Tensor repeated = rows.view(Layout(DType::f32, {2, 3}, {0, 1}), 0);
  EXPECT_EQ(s.run(std::vector{repeated})[0].to_doubles(),
            (std::vector<double>{-1, -2, -3, -1, -2, -3}));
}

// A program whose types name the device: results stay there, and elsewhere it does not run.
TEST_F(Stages, RunProgramsThatNameTheDevice) {
  const char* text =
      "graph g { stage 0 (%x: f32[N]@cuda:0) { %y = exp(%x) %z = full() {shape = [N], value = 2.0} "
      "%s = mul(%y, %z) return %s } }";
  State s = state(text);
  const Tensor y = s.run(std::vector{f32({0, 1})})[0];
  EXPECT_EQ(y.device(), cuda0);
  EXPECT_EQ(here(y).item(0), 2);
  State cpu(s.code());
  try {
    cpu.run(std::vector{f32({0, 1})});
    FAIL() << "it ran";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("must lie on cuda:0, and this state runs on cpu"),
              std::string::npos)
        << e.what();
  }
  State other = state("graph g { stage 0 (%x: f32[N]@cuda:1) { return %x } }");
  EXPECT_THROW(other.run(std::vector{f32({0, 1})}), Error);
}

// One program, on the CPU and with types that name the device: the same values by the same names,
// in all stages. Each group is one generated source, which becomes machine code for the device.
// SPEC F9
TEST_F(Stages, AreTheSameProgramThere) {
  auto code_on = [](const std::string& where) {
    std::string text =
        "graph g { stage 0 (%x: f32[N, 6]AT, %i: i64[K]AT, %w: f32[6]AT) {\n"
        "  %h = mul(%x, %w)\n  %p = softmax(%h) {dim = 1}\n"
        "  %q = index_select(%p, %i) {dim = 0}\n  %y = square(%q)\n  return %y } }";
    for (size_t at; (at = text.find("AT")) != std::string::npos;) text.replace(at, 2, where);
    return Code::compile(ir::differentiate(ir::parse(text).program(), {.order = 2}));
  };
  const auto cpu = code_on(""), there = code_on("@cuda:0");
  ASSERT_EQ(cpu->stages(), 3u);
  State on_cpu(cpu, Context::default_context(), {.fusion = FusionMode::off});
  std::vector<Tensor> last;
  State on_device(there, context_, {.fusion = FusionMode::first});
  for (size_t s = 0; s < cpu->stages(); ++s) {
    ASSERT_EQ(cpu->inputs(s), there->inputs(s));
    ASSERT_EQ(cpu->results(s).size(), there->results(s).size());
    for (size_t i = 0; i < cpu->inputs(s); ++i)
      EXPECT_EQ(cpu->input_name(s, i), there->input_name(s, i));
    std::vector<Tensor> inputs;
    if (s == 0) {
      inputs = {f32({1, 2, -3, .5, .25, 0, 3, 1, 4, -1, 5, -9, 2, 6, -5, 3, 5, 8}),
                Tensor::from(DType::i64, Sizes{4}, std::vector<double>{2, 0, 2, 1}),
                f32({.5, .25, 2, -1, 1, .75})};
      inputs[0] = inputs[0].view(Layout(DType::f32, {3, 6}), 0);
    } else {
      for (const ir::Result& r : cpu->results(s - 1))
        if (r.value != ir::no_value) inputs.push_back(last[inputs.size()]);
    }
    last = on_cpu.run(inputs);
    const std::vector<Tensor> got = on_device.run(inputs);
    for (size_t r = 0; r < got.size(); ++r) {
      EXPECT_EQ(cpu->results(s)[r].name, there->results(s)[r].name);
      EXPECT_EQ(got[r].device(), cuda0);
      EXPECT_TRUE(bitwise_equal(here(got[r]), last[r])) << cpu->results(s)[r].name;
    }
  }
  EXPECT_TRUE(on_device.host_instructions().empty());
  std::set<std::string> nests;
  for (const FusedGroup& g : on_device.groups()) nests.insert(g.nest);
  EXPECT_GE(nests.size(), 3u);
  EXPECT_EQ(kernels_of(*context_)->statistics().kernels, nests.size());
  for (const std::string& nest : nests) {
    const std::string source = cuda::write_source(parse_nest(nest)).text;
    EXPECT_EQ(source.find(cuda::entry_name), source.rfind(cuda::entry_name)) << source;
    EXPECT_FALSE(cuda_compiler().compile(parse_nest(nest))->cubin.empty());
  }
}

class Told final : public InstructionObserver {
 public:
  void before(size_t, size_t) override {}
  void after(size_t, size_t) override {}
  void host(size_t, size_t instruction) override { instructions.push_back(instruction); }
  std::vector<size_t> instructions;
};

// What there is no code for is right, and is told of.
TEST_F(Stages, TellWhatTheHostDoes) {
  State s = state(
      "graph g { stage 0 (%x: f32[N, N]) { %a = neg(%x) %b = inverse(%a) %y = exp(%b) return %y } "
      "}");
  const Tensor x = Tensor::from(DType::f32, Sizes{2, 2}, std::vector<double>{2, 1, 0, -4});
  Told told;
  RunOptions options;
  options.observer = &told;
  const Tensor y = s.run(std::vector{x}, options)[0];
  EXPECT_EQ(told.instructions, std::vector<size_t>{1});
  ASSERT_EQ(s.host_instructions().size(), 1u);
  EXPECT_EQ(s.host_instructions()[0].instruction, 1u);
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  EXPECT_TRUE(bitwise_equal(y, cpu.run(std::vector{x})[0]));
  EXPECT_EQ(device_->pinned, 1u);  // kept for the next
}

// An index out of range is found there, and has the words that it has here.
TEST_F(Stages, FindIndicesThatAreOutOfRange) {
  const std::string text =
      "graph g { stage 0 (%x: f32[N], %i: i64[M]) {\n"
      "  %y = index_select(%x, %i) {dim = 0}\n"
      "  %z = exp(%y)\n return %z } }";
  State s = state(text);
  const Tensor x = f32({1, 2, 3});
  auto run = [&](State& on, double index) -> std::string {
    try {
      on.run(std::vector{x, Tensor::from(DType::i64, Sizes{2}, std::vector<double>{1, index})});
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  const std::string expected = run(cpu, 3);
  EXPECT_NE(expected.find("out of range"), std::string::npos) << expected;
  EXPECT_EQ(run(s, 3), expected);
  EXPECT_TRUE(s.poisoned());
  s.restart();
  EXPECT_EQ(run(s, 2), "");
  EXPECT_TRUE(s.host_instructions().empty());
}

// Integers are divided there, and a divisor of zero has the words that it has here.
TEST_F(Stages, DivideIntegers) {
  const std::string text =
      "graph g { stage 0 (%x: i64[M, N], %y: i32[N]) {\n"
      "  %a = floor_divide(%x, %y)\n  %b = remainder(%x, %y)\n  %c = fmod(%x, -3)\n"
      "  %d = floor_divide(%y, 2)\n  return %a, %b, %c, %d } }";
  State s = state(text);
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  auto inputs = [](double divisor) {
    return std::vector{
        Tensor::from(DType::i64, Sizes{2, 4}, std::vector<double>{7, -7, 7, -7, 0, 9, -9, 4e15}),
        Tensor::from(DType::i32, Sizes{4}, std::vector<double>{2, divisor, -2, -3})};
  };
  const auto got = s.run(inputs(3)), expected = cpu.run(inputs(3));
  for (size_t r = 0; r < got.size(); ++r) EXPECT_TRUE(bitwise_equal(got[r], expected[r])) << r;
  EXPECT_TRUE(s.host_instructions().empty());
  auto fault = [&](State& on) -> std::string {
    on.restart();
    try {
      on.run(inputs(0));
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  const std::string why = fault(cpu);
  EXPECT_NE(why.find("has a zero, by which integers cannot be divided"), std::string::npos) << why;
  EXPECT_EQ(fault(s), why);
}

TEST_F(Stages, GoOnElsewhere) {
  const std::string path = testing::TempDir() + "/on_device.state";
  State s = state(two_stages);
  s.run(std::vector{f32({1, 2, 3}), f32({.5, .25, 2})});
  State clone = s.clone();
  s.save(path);
  const std::vector inputs{f32({1, 1, 2})};
  const Tensor expected = s.run(inputs)[0];
  EXPECT_TRUE(bitwise_equal(clone.run(inputs)[0], expected));
  State cpu =
      State::resume(s.code(), path, Context::default_context(), {.fusion = FusionMode::off});
  EXPECT_TRUE(bitwise_equal(cpu.run(inputs)[0], expected));
  State again = State::resume(s.code(), path, context_, {.fusion = FusionMode::first});
  EXPECT_TRUE(bitwise_equal(again.run(inputs)[0], expected));
  cpu.restart();
  cpu.run(std::vector{f32({1, 2, 3}), f32({.5, .25, 2})});
  cpu.save(path);
  State there = State::resume(s.code(), path, context_, {.fusion = FusionMode::first});
  EXPECT_TRUE(bitwise_equal(there.run(inputs)[0], expected));
}

// Prepared, and run once: the device is asked for nothing more.
TEST_F(Stages, KeepMemory) {
  State s = state(two_stages);
  s.prepare({{"N", 3}});
  auto round = [&] {
    s.run(std::vector{f32({1, 2, 3}), f32({.5, .25, 2})});
    s.run(std::vector{f32({1, 1, 2})});
    s.restart();
  };
  round();
  const size_t asked = device_->allocations;
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(device_->allocations, asked);
}

TEST_F(Stages, GiveMemoryBack) {
  {
    State s = state("graph g { stage 0 (%x: f32[N, N]) { %y = inverse(%x) return %y } }");
    s.run(std::vector{Tensor::from(DType::f32, Sizes{1, 1}, std::vector<double>{2})});
  }
  EXPECT_GT(device_->allocations, device_->frees);
  backend_ = nullptr;
  context_ = nullptr;
  EXPECT_EQ(device_->allocations, device_->frees);
  EXPECT_EQ(device_->pinned, 0u);
}

// Many small instructions, again and again on the same memory: one launch.
TEST_F(Stages, AreLaunchedAsOne) {
  std::string text = "graph g { stage 0 (%x: f32[N, N]) { %m0 = matmul(%x, %x)";
  for (int i = 1; i < 6; ++i) text += fmt::format(" %m{} = matmul(%m{}, %x)", i, i - 1);
  State s = state(text + " return %m5 } }");
  const Tensor x = Tensor::from(DType::f32, Sizes{2, 2}, std::vector<double>{.5, .25, -1, 2});
  const Tensor y = Tensor::from(DType::f32, Sizes{2, 2}, std::vector<double>{1, -.5, 3, .125});
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  for (int i = 0; i < 5; ++i) {
    for (State* one : {&s, &cpu}) one->restart();
    const Tensor& in = i % 2 ? x : y;
    EXPECT_TRUE(bitwise_equal(s.run(std::vector{in})[0], cpu.run(std::vector{in})[0])) << i;
  }
  EXPECT_EQ(device_->recordings, 1u);
  EXPECT_GE(device_->replays, 3u);
  // On other memory they are launched by themselves.
  const size_t replays = device_->replays;
  const Tensor there = to_device(backend_, y), more = to_device(backend_, x);
  for (int i = 0; i < 4; ++i) {
    for (State* one : {&s, &cpu}) one->restart();
    const Tensor got = s.run(std::vector{i % 2 ? more : there})[0];
    EXPECT_TRUE(bitwise_equal(got, cpu.run(std::vector{i % 2 ? x : y})[0]));
  }
  EXPECT_EQ(device_->replays, replays);
}

// The steps of a loop are launches of its stage.
TEST_F(Stages, AndTheirLoopsAreLaunchedAsOne) {
  const std::string text = R"(
graph cell {
  stage 0 (%h: f32[H], %x: f32[H], %w: f32[H, H]) {
    %a = mv(%w, %h)
    %n = tanh(%a)
    %s = add(%n, %x)
    return %s, %n
  }
}
graph g {
  stage 0 (%h0: f32[H], %xs: f32[T, H], %w: f32[H, H]) {
    %h, %ys = scan(%h0, %xs, %w) {body = "cell", carries = 1, sequences = 1}
    return %h, %ys
  }
})";
  State s = state(text);
  const Tensor h = f32({.5, -.25}),
               w = Tensor::from(DType::f32, Sizes{2, 2}, std::vector<double>{.5, .25, -1, 2}),
               xs = Tensor::from(DType::f32, Sizes{3, 2},
                                 std::vector<double>{1, -.5, 3, .125, -2, .75});
  State cpu(s.code(), Context::default_context(), {.fusion = FusionMode::off});
  for (int i = 0; i < 5; ++i) {
    for (State* one : {&s, &cpu}) one->restart();
    const auto found = s.run(std::vector{h, xs, w}), expected = cpu.run(std::vector{h, xs, w});
    for (size_t r = 0; r < 2; ++r) EXPECT_TRUE(bitwise_equal(found[r], expected[r])) << i;
  }
  EXPECT_EQ(device_->recordings, 1u);
  EXPECT_GE(device_->replays, 3u);
}

constexpr const char* many_kinds = R"(graph g {
  stage 0 (%x: f32[N, N], %i: i64[N]) {
    %h = mul(%x, %x)
    %s = tanh(%h)
    %m = matmul(%s, %x)
    %p = index_select(%m, %i) {dim = 0}
    %c = cumsum(%p) {dim = 0}
    %y = sum(%c) {dim = [0]}
    return %y, %m
  }
})";

// Kernels that are not there yet: the host does what they will do. States made later have them.
TEST_F(Stages, DoNotWaitForKernels) {
  std::promise<void> gate;
  device_->loading = [opened = gate.get_future().share()] {
    opened.wait_for(std::chrono::seconds(20));
  };
  const std::vector inputs{
      Tensor::from(DType::f32, Sizes{3, 3}, std::vector<double>{1, 2, 3, .5, -1, 2, 0, 1, .25}),
      Tensor::from(DType::i64, Sizes{3}, std::vector<double>{2, 0, 2})};
  const auto code = Code::compile(ir::parse(many_kinds).program());
  auto make = [&] { return State(code, context_, {.fusion = FusionMode::behind}); };
  State cpu(code, Context::default_context(), {.fusion = FusionMode::off});
  const std::vector<Tensor> expected = cpu.run(inputs);
  auto expect_right = [&](State& s) {
    const std::vector<Tensor> got = s.run(inputs);
    for (size_t r = 0; r < got.size(); ++r) EXPECT_TRUE(bitwise_equal(got[r], expected[r])) << r;
  };
  State first = make(), second = make();
  expect_right(first);
  expect_right(second);
  const size_t instructions = code->stage(0).instructions.size();
  EXPECT_EQ(first.host_instructions().size(), instructions);
  EXPECT_EQ(second.host_instructions().size(), instructions);
  EXPECT_EQ(device_->launches, 0u);
  EXPECT_GT(kernels_of(*context_)->statistics().waiting, 2u);
  gate.set_value();
  kernels_of(*context_)->wait();
  EXPECT_EQ(kernels_of(*context_)->statistics().waiting, 0u);
  State third = make();
  expect_right(third);
  EXPECT_TRUE(third.host_instructions().empty());
  EXPECT_GT(device_->launches, 0u);
  // Which kernels a state uses is settled when it is made.
  first.restart();
  expect_right(first);
  EXPECT_EQ(first.host_instructions().size(), instructions);
  // Nothing is asked for that a plan has no use for: halves of groups, or a reduction by itself.
  EXPECT_EQ(kernels_of(*context_)->statistics().kernels, third.groups().size());
}

// Who waits has several compiled at a time.
TEST_F(Stages, CompileSideBySide) {
  std::mutex mutex;
  std::condition_variable several;
  size_t loading = 0;
  device_->loading = [&] {
    std::unique_lock lock(mutex);
    if (++loading == 2) several.notify_all();
    several.wait_for(lock, std::chrono::seconds(30), [&] { return loading >= 2; });
  };
  State s = state(many_kinds);
  const auto start = std::chrono::steady_clock::now();
  s.prepare({{"N", 3}});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_GT(loading, 2u);
  EXPECT_TRUE(s.host_instructions().empty());
}

// What cannot be loaded is told once; the host does it, whether somebody waits or not.
TEST(StagesWithoutCode, RunOnTheHost) {
  GRADUS_NEEDS_NVRTC();
  std::mutex mutex;
  std::vector<std::string> told;
  auto device = std::make_shared<InterpretedDevice>();
  device->loading = [] { throw ResourceError("the device takes no code"); };
  auto context = std::make_shared<Context>(ContextOptions{});
  context->replace_part<Kernels>(
      std::make_shared<cuda::CudaKernels>(device, KernelOptions{.folder = GRADUS_CUDA_TEST_KERNELS},
                                          [&](LogLevel, std::string_view message) {
                                            std::lock_guard guard(mutex);
                                            told.emplace_back(message);
                                          }));
  const auto code = Code::compile(ir::parse(two_stages).program());
  const std::vector inputs{f32({1, 2, 3}), f32({.5, .25, 2})};
  for (FusionMode mode : {FusionMode::behind, FusionMode::behind, FusionMode::first}) {
    State s(code, context, {.fusion = mode});
    State cpu(code, Context::default_context(), {.fusion = FusionMode::off});
    EXPECT_TRUE(bitwise_equal(s.run(inputs)[0], cpu.run(inputs)[0]));
    EXPECT_EQ(s.host_instructions().size(), 2u);
    kernels_of(*context)->wait();
  }
  // The group, then its halves; by the third state nothing is asked for any more.
  EXPECT_EQ(kernels_of(*context)->statistics().failed, told.size());
  EXPECT_EQ(told.size(), 3u);
}

}  // namespace
}  // namespace gradus::fusion::test
