// The autograd engine on devices: where nodes run, and on which streams.
#include "tests/cuda/engine.h"

#include <thread>

#include "gradus/custom_function.h"
#include "gradus/engine.h"
#include "gradus/staged_function.h"
#include "gradus/text.h"
#include "interpreter/opaque_call.h"
#include "tests/autograd/support.h"
#include "tests/cuda/needs.h"
#include "tests/functions.h"

namespace gradus::fusion::test {
namespace {

using autograd::Stream;
using autograd::StreamGuard;
using autograd::Variable;
using autograd::Variables;
using autograd::testing::error_of;
using autograd::testing::op;
using autograd::testing::OwnEngine;

class CudaEngine : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    first_ = EngineDevices::get().devices[0];
    second_ = EngineDevices::get().devices[1];
  }
  Variable leaf(const std::vector<double>& values, Device device = cuda0, bool wants = true) {
    const Tensor t = Tensor::from(DType::f64, Sizes{static_cast<int64_t>(values.size())}, values);
    return Variable(there(t, device), wants);
  }
  std::vector<double> values(const Variable& v) { return here(v.data()).to_doubles(); }
  static autograd::DeviceStreams& streams() { return *autograd::device_streams(DeviceKind::cuda); }
  // A stream on which what the current one was given is done.
  static Stream stream_after_current(Device device = cuda0) {
    const Stream s = new_stream(device);
    streams().wait(device, streams().current(device), device, s);
    return s;
  }

  std::shared_ptr<LateDevice> first_, second_;
};

TEST_F(CudaEngine, OperatorsRunWhereTheirOperandsLie) {
  const size_t before = first_->launches_on(0), copies = first_->copies_out;
  const Variable y = op("exp", {op("mul", {leaf({1, 2}), leaf({3, 4})})});
  EXPECT_EQ(y.data().device(), cuda0);
  EXPECT_EQ(first_->launches_on(0), before + 2);
  EXPECT_EQ(first_->copies_out, copies);
  EXPECT_EQ(values(op("mul", {leaf({1, 2}, cuda1), ir::Number::of(3.0)})),
            (std::vector<double>{3, 6}));
  // Views share memory, there as here.
  const Variable x = leaf({1, 2, 3, 4});
  const Variable row = op("reshape", {x}, {{"shape", ir::Literal::list(Sizes{2, 2}), {}}});
  EXPECT_EQ(row.data().storage(), x.data().storage());
  const std::string text = error_of([&] { op("mul", {leaf({1}), leaf({1}, cuda1)}); });
  EXPECT_NE(text.find("cuda:0"), std::string::npos) << text;
  EXPECT_NE(text.find("cuda:1"), std::string::npos) << text;
}

// SPEC E6, E7
TEST_F(CudaEngine, NodesRunOnTheThreadAndStreamOfTheirFirstAcceleratorInput) {
  OwnEngine engine;
  const Variable x0 = leaf({1, 2}), x1 = leaf({3, 4}, cuda1);
  const Stream s = stream_after_current();
  std::map<std::string, std::thread::id> ran;
  std::map<std::string, Stream> on;
  std::mutex mutex;
  auto note = [&](std::string name, Device device) {
    return [&, name, device](Variables&& c) {
      std::lock_guard guard(mutex);
      ran[name] = std::this_thread::get_id();
      if (device != Device()) on[name] = streams().current(device);
      return std::move(c);
    };
  };
  Variable a;
  {
    StreamGuard guard(cuda0, s);
    a = autograd::testing::through("on 0", op("mul", {x0, x0}), note("on 0", cuda0));
    a = autograd::move_to(a, Device());
  }
  const Variable b = autograd::testing::through("on 1", op("mul", {x1, x1}), note("on 1", cuda1));
  const Variable c = autograd::testing::through("here", a, note("here", Device()));
  const Variable y = op("add", {c, autograd::move_to(b, Device())});
  y.backward(Variable(Tensor::from(DType::f64, Sizes{2}, std::vector<double>{2, 3})));
  EXPECT_EQ(values(x0.grad()), (std::vector<double>{4, 12}));
  EXPECT_EQ(values(x1.grad()), (std::vector<double>{12, 24}));
  EXPECT_EQ(x0.grad().data().device(), cuda0);
  EXPECT_EQ(x1.grad().data().device(), cuda1);
  EXPECT_EQ(ran["here"], std::this_thread::get_id());
  EXPECT_NE(ran["on 0"], std::this_thread::get_id());
  EXPECT_NE(ran["on 1"], std::this_thread::get_id());
  EXPECT_NE(ran["on 0"], ran["on 1"]);
  EXPECT_EQ(on["on 0"], s);
  EXPECT_EQ(on["on 1"], 0u);
}

// Branches on streams of their own, whose gradients meet at a leaf of another.
// SPEC E11
TEST_F(CudaEngine, GradientsFromSeveralStreamsAreAddedAfterTheyAreMade) {
  OwnEngine engine;
  for (int round = 0; round < 4; ++round) {
    const Variable x = leaf({1, 2, 3});
    Variables branches, cotangents;
    for (int i = 0; i < 3; ++i) {
      const Stream s = stream_after_current();
      const size_t before = first_->launches_on(static_cast<cuda::StreamNumber>(s));
      StreamGuard guard(cuda0, s);
      branches.push_back(op("mul", {op("mul", {x, x}), x}));
      EXPECT_GT(first_->launches_on(static_cast<cuda::StreamNumber>(s)), before);
    }
    for (int i = 0; i < 3; ++i) cotangents.push_back(leaf({1, 1, 1}, cuda0, false));
    autograd::backward(branches, cotangents);
    EXPECT_EQ(values(x.grad()), (std::vector<double>{9, 36, 81}));
  }
}

// SPEC E11
TEST_F(CudaEngine, RootsAndResultsAreSynchronisedWithTheCallersStreams) {
  OwnEngine engine;
  for (int round = 0; round < 4; ++round) {
    const Variable x = leaf({1, 2, 3});
    Variable y;
    {
      StreamGuard guard(cuda0, stream_after_current());
      y = op("mul", {x, x});
    }
    StreamGuard guard(cuda0, new_stream(cuda0));
    const Variable cotangent = leaf({1, 10, 100}, cuda0, false);
    const Variable got = autograd::grad(std::array{y}, std::array{x}, std::array{cotangent},
                                        {.keep_graph = true})[0];
    EXPECT_EQ(values(got), (std::vector<double>{2, 40, 600}));
    y.backward(cotangent);
    EXPECT_EQ(values(x.grad()), (std::vector<double>{2, 40, 600}));
  }
}

// SPEC E11
TEST_F(CudaEngine, MemoryIsNotReusedWhileAnotherStreamReadsIt) {
  OwnEngine engine;
  for (int round = 0; round < 4; ++round) {
    const Variable x = leaf({1, 2, 3});
    const Stream low = stream_after_current(), high = new_stream(cuda0);
    Variable y;
    {
      StreamGuard guard(cuda0, low);
      const Variable a = op("mul", {x, x});
      streams().wait(cuda0, low, cuda0, high);
      StreamGuard other(cuda0, high);
      y = op("mul", {a, a});
    }
    // `a` was made on `low`; `high` has still to read it.
    {
      StreamGuard guard(cuda0, low);
      Variable v = leaf({9, 9, 9}, cuda0, false);
      for (int i = 0; i < 6; ++i) v = op("add", {v, ir::Number::of(1.0)});
      EXPECT_EQ(values(v), (std::vector<double>{15, 15, 15}));
    }
    StreamGuard guard(cuda0, high);
    EXPECT_EQ(values(y), (std::vector<double>{1, 16, 81}));
    y.backward(leaf({1, 1, 1}, cuda0, false));
    EXPECT_EQ(values(x.grad()), (std::vector<double>{4, 32, 108}));
  }
}

// An operand that nobody keeps: the memory's own stream takes it for something else at once.
TEST_F(CudaEngine, OperandsAreTheirReadersUntilTheseAreDone) {
  const Stream low = stream_after_current(), high = new_stream(cuda0);
  Variable a, b;
  {
    StreamGuard guard(cuda0, low);
    a = op("exp", {leaf({1, 2, 3}, cuda0, false)});
    streams().wait(cuda0, low, cuda0, high);
  }
  {
    StreamGuard guard(cuda0, high);
    b = op("neg", {a});
  }
  const std::byte* memory = a.data().data();
  a = Variable();
  StreamGuard guard(cuda0, low);
  std::vector<Variable> others;
  do others.push_back(leaf({7, 8, 9}, cuda0, false));
  while (others.back().data().data() != memory && others.size() < 1000);
  EXPECT_EQ(others.back().data().data(), memory);
  EXPECT_EQ(values(others.back()), (std::vector<double>{7, 8, 9}));
  StreamGuard other(cuda0, high);
  const Variable expected = op("neg", {op("exp", {leaf({1, 2, 3}, Device(), false)})});
  EXPECT_EQ(values(b), values(expected));
}

// A result that nobody wants any more before it is made: it is written where its memory still is.
TEST_F(CudaEngine, ResultsLieInMemoryOfTheirStream) {
  const Stream s = stream_after_current();
  {
    StreamGuard guard(cuda0, s);
    op("exp", {leaf({1, 2, 3}, cuda0, false)});
  }
  std::vector<Variable> others;
  for (int i = 0; i < 4; ++i) others.push_back(leaf({7, 8, 9}, cuda0, false));
  EXPECT_EQ(values(others[0]), (std::vector<double>{7, 8, 9}));
  first_->synchronize(static_cast<cuda::StreamNumber>(s));
  for (const Variable& v : others) EXPECT_EQ(values(v), (std::vector<double>{7, 8, 9}));
}

// SPEC E11, E12
TEST_F(CudaEngine, CallbacksRunOnTheCallersStreams) {
  OwnEngine engine;
  StreamGuard guard(cuda0, stream_after_current());
  const Stream caller = streams().current(cuda0);
  Stream seen = 99;
  std::vector<double> read;
  const Variable x = leaf({1, 2});
  streams().wait(cuda0, caller, cuda0, 0);
  Variable y;
  {
    StreamGuard other(cuda0, 0);
    y = autograd::testing::through("node", op("mul", {x, x}), [&](Variables&& c) {
      autograd::Engine::queue_callback([&] {
        seen = streams().current(cuda0);
        read = values(x.grad());
      });
      return std::move(c);
    });
  }
  y.backward(leaf({1, 1}, cuda0, false));
  EXPECT_EQ(seen, caller);
  EXPECT_EQ(read, (std::vector<double>{2, 4}));
}

// From the CPU to two devices, and back.
// SPEC E2
TEST_F(CudaEngine, GraphsGoThroughSeveralDevices) {
  OwnEngine engine;
  auto f = [](Device a, Device b) {
    return [a, b](std::span<const Variable> x) {
      const Variable y = autograd::move_to(op("mul", {x[0], x[0]}), a);
      const Variable z = autograd::move_to(op("sin", {y}), b);
      return Variables{autograd::move_to(op("mul", {z, autograd::move_to(y, b)}), Device())};
    };
  };
  const std::vector inputs{random(DType::f64, {6}, "x", 5)};
  EXPECT_EQ(difference(derivatives(f(Device(), Device()), inputs, 2, Device()),
                       derivatives(f(cuda0, cuda1), inputs, 2, Device())),
            "");
}

// By a copy that the host does not see, which both devices' streams wait for: the memory that was
// copied is another's as soon as nobody keeps it.
TEST_F(CudaEngine, TensorsMoveBetweenDevicesWithoutTheHost) {
  LateDevice &first = *EngineDevices::get().devices[0], &second = *EngineDevices::get().devices[1];
  for (int round = 0; round < 4; ++round) {
    StreamGuard low(cuda0, new_stream(cuda0)), high(cuda1, new_stream(cuda1));
    const Variable x = leaf({1, 2, 3}, cuda0, false);
    const size_t out = first.copies_out, in = second.copies_in, between = second.copies_between;
    Variable there;
    {
      const Variable made = op("mul", {x, x});
      there = autograd::move_to(made, cuda1);
    }
    Variable other = x;  // in the memory of what was copied
    for (int i = 0; i < 4; ++i) other = op("add", {other, x});
    const Variable y = op("mul", {there, there});
    second.synchronize(static_cast<cuda::StreamNumber>(streams().current(cuda1)));
    EXPECT_EQ(first.copies_out, out);
    EXPECT_EQ(second.copies_in, in);
    EXPECT_EQ(second.copies_between, between + 1);
    EXPECT_EQ(values(other), (std::vector<double>{5, 10, 15}));
    EXPECT_EQ(values(y), (std::vector<double>{1, 16, 81}));
  }
}

// Made on one stream, moved from another: its own does not take the memory before it was copied.
TEST_F(CudaEngine, WhatMovesIsItsReadersUntilItWasCopied) {
  for (int round = 0; round < 4; ++round) {
    const Stream made = new_stream(cuda0), moves = new_stream(cuda0);
    const Variable x = leaf({1, 2, 3}, cuda0, false);
    streams().wait(cuda0, streams().current(cuda0), cuda0, made);
    StreamGuard target(cuda1, new_stream(cuda1));
    Variable there;
    {
      StreamGuard guard(cuda0, made);
      const Variable square = op("mul", {x, x});
      streams().wait(cuda0, made, cuda0, moves);
      StreamGuard other(cuda0, moves);
      there = autograd::move_to(square, cuda1);
    }
    StreamGuard guard(cuda0, made);
    const Variable other = op("add", {x, x});
    EXPECT_EQ(values(other), (std::vector<double>{2, 4, 6}));
    EXPECT_EQ(values(there), (std::vector<double>{1, 4, 9}));
  }
}

TEST_F(CudaEngine, IndicesOutOfRangeAreSaidInTheCpusWords) {
  auto text = [&](Device device) {
    const Variable x(there(random(DType::f32, {4}, "x", 1), device), true);
    const Tensor i = there(Tensor::from(DType::i64, Sizes{2}, std::vector<double>{1, 4}), device);
    return error_of([&] { op("index_select", {x, Variable(i)}, {{"dim", 0, {}}}); });
  };
  EXPECT_NE(text(Device()).find("out of range"), std::string::npos) << text(Device());
  EXPECT_EQ(text(cuda0), text(Device()));
}

// x and 2 x; a gradient is the sum of the cotangents.
struct Pair final : autograd::CustomFunction {
  std::string name() const override { return "Pair"; }
  std::vector<Tensor> forward(autograd::FunctionContext&,
                              std::span<const Variable> in) const override {
    return {op("neg", {in[0]}).data(), op("mul", {in[0], ir::Number::of(2.0)}).data()};
  }
  Variables backward(autograd::FunctionContext&, const Variables& dy) const override {
    return {dy[1]};
  }
};

// An absent cotangent is zeros that lie where the output does.
TEST_F(CudaEngine, CustomFunctions) {
  const Variable x = leaf({1, 2});
  const Variables y =
      autograd::CustomFunction::apply(std::make_shared<const Pair>(), std::array{x});
  y[0].backward(leaf({1, 1}, cuda0, false));
  EXPECT_EQ(x.grad().data().device(), cuda0);
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 0}));
}

// A function of the user's that is called with tensors there computes there.
TEST_F(CudaEngine, OpaqueFunctionsOfVariables) {
  gradus::test::register_test_functions();
  const std::vector inputs{random(DType::f64, {5}, "x", 1), random(DType::f64, {5}, "y", 2)};
  auto f = [](std::span<const Variable> x) { return call_function("t.wave", x); };
  const size_t copies = first_->copies_out;
  const auto device = derivatives(f, inputs, 2, cuda0);
  EXPECT_EQ(first_->copies_out, copies + device.size());
  EXPECT_EQ(difference(derivatives(f, inputs, 2, Device()), device), "");
}

// What looks at values looks at them here.
TEST_F(CudaEngine, SizesThatDataDecides) {
  const Variable x = leaf({0, 2, 0, 3});
  EXPECT_EQ(values(op("nonzero", {x})), (std::vector<double>{1, 3}));
}

TEST_F(CudaEngine, AnomaliesAreFound) {
  OwnEngine engine;
  autograd::ThreadState state = autograd::thread_state();
  state.anomaly = autograd::AnomalyMode::nan;
  autograd::StateGuard guard(state);
  const Variable x = leaf({0, 1});
  const Variable y = op("mul", {op("sqrt", {x}), ir::Number::of(0.0)});
  const std::string text = error_of([&] { y.backward(leaf({1, 1}, cuda0, false)); });
  EXPECT_NE(text.find("returned NaN in gradient 0"), std::string::npos) << text;
}

// Values that lie elsewhere are not read as if they lay here.
TEST_F(CudaEngine, TheHostReadsNoDevicesMemory) {
  const std::string text = error_of([&] { leaf({1}).data().to_doubles(); });
  EXPECT_NE(text.find("cuda:0"), std::string::npos) << text;
}

constexpr const char* with_function = R"(graph g {
  stage 0 (%x: f64[N]) {
    %h = exp(%x)
    %y = cpp_op(%h) {name = "t.square"}
    %z = mul(%y, %h)
    return %z
  }
})";

// A function of the user's in a program that runs on a device, and its eval.
TEST_F(CudaEngine, OpaqueFunctionsOfProgramsOnTheDevice) {
  gradus::test::register_test_functions();
  const ir::Graph staged = ir::differentiate(ir::parse(with_function).program(), {.order = 2});
  const auto code = Code::compile(staged);
  auto run = [&](const std::shared_ptr<Context>& context, Device device, RunOptions options) {
    State s(code, context, {.fusion = device == Device() ? FusionMode::off : FusionMode::first});
    std::vector<Tensor> all;
    for (size_t k = 0; k < code->stages(); ++k) {
      std::vector<Tensor> in;
      for (size_t i = 0; i < code->inputs(k); ++i)
        in.push_back(there(random(DType::f64, {7}, code->input_name(k, i), 3), device));
      for (const Tensor& t : s.run(in, options)) all.push_back(here(t));
    }
    return all;
  };
  const auto cpu = run(Context::default_context(), Device(), {});
  EXPECT_EQ(cpu.size(),
            code->results(0).size() + code->results(1).size() + code->results(2).size());
  EXPECT_EQ(
      difference(cpu, run(EngineDevices::get().contexts[0], cuda0, {.results_on_device = true})),
      "");
}

constexpr const char* swing = R"(graph swing {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %s = tanh(%h)
    return %s
  }
})";

// A whole program as a node: its stages run on the device, on the stream of the node.
TEST_F(CudaEngine, ProgramsAreNodes) {
  const ir::Graph staged = ir::differentiate(ir::parse(swing).program(), {.order = 2});
  const auto code = Code::compile(staged);
  const StagedFunction cpu(code), device(code, EngineDevices::get().contexts[0]);
  const std::vector inputs{random(DType::f64, {9}, "x", 1), random(DType::f64, {9}, "w", 2)};
  const auto expected = derivatives([&](auto x) { return cpu(x); }, inputs, 2, Device());
  StreamGuard guard(cuda0, new_stream(cuda0));
  const auto stream = static_cast<cuda::StreamNumber>(streams().current(cuda0));
  // Its kernels are compiled behind it: the host has the first round.
  const auto run = [&] { return derivatives([&](auto x) { return device(x); }, inputs, 2, cuda0); };
  EXPECT_EQ(difference(expected, run()), "");
  fusion::kernels_of(*EngineDevices::get().contexts[0])->wait();
  const size_t before = first_->launches_on(stream);
  EXPECT_EQ(difference(expected, run()), "");
  EXPECT_GE(first_->launches_on(stream), before + 3);
  // An input that lies here has its gradient here.
  const Variable x(there(inputs[0], cuda0), true), w(inputs[1], true);
  const Variable y = device(std::array{x, w})[0];
  EXPECT_EQ(y.data().device(), cuda0);
  const Variables d = autograd::grad(std::array{op("sum", {y})}, std::array{x, w});
  EXPECT_EQ(d[0].data().device(), cuda0);
  EXPECT_EQ(d[1].data().device(), Device());
}

constexpr const char* running_sums = R"(graph running_sums {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %h = mul(%x, %w)
    %c = cumsum(%h) {dim = 0}
    %s = tanh(%c)
    return %s
  }
})";

// A state goes on on another stream, after what it did on the one before.
TEST_F(CudaEngine, StatesGoOnOnOtherStreams) {
  const ir::Graph staged = ir::differentiate(ir::parse(running_sums).program(), {.order = 1});
  const auto code = Code::compile(staged);
  const auto& context = EngineDevices::get().contexts[0];
  const RunOptions stay{.results_on_device = true};
  constexpr int64_t n = 1009;  // whose bytes no other test asks for
  const std::vector inputs{random(DType::f64, {n}, "x", 1), random(DType::f64, {n}, "w", 2)};
  State cpu(code, Context::default_context(), {.fusion = FusionMode::off});
  cpu.run(inputs);
  const std::vector ct{random(DType::f64, {n}, "ct", 3)};
  const auto expected = cpu.run(ct);
  State s(code, context, {.fusion = FusionMode::first});
  s.run(inputs, stay);
  {
    StreamGuard guard(cuda0, new_stream(cuda0));
    State clone = s.clone();
    EXPECT_EQ(difference(expected, clone.run(ct)), "");
  }
  // What it held and worked with is let go with it, before the other stream has done its work.
  std::vector<Tensor> late;
  const Stream other = new_stream(cuda0);
  {
    StreamGuard guard(cuda0, other);
    State last = std::move(s);
    late = last.run(ct, stay);
  }
  std::vector<Variable> fresh;
  for (int64_t k = 1; k < 5; ++k)
    for (int i = 0; i < 8; ++i)
      fresh.push_back(leaf(std::vector<double>(static_cast<size_t>(k * n), 5)));
  EXPECT_EQ(values(fresh.back())[0], 5);
  StreamGuard guard(cuda0, other);
  for (Tensor& t : late) t = here(t);
  EXPECT_EQ(difference(expected, late), "");
}

TEST_F(CudaEngine, DevicesThatNobodyUsesAreRefused) {
  EXPECT_THROW(new_stream({DeviceKind::cuda, 9}), Error);
  EXPECT_THROW(new_stream({DeviceKind::other, 0}), Error);
  EXPECT_THROW(use_device(*Context::default_context(), {DeviceKind::other, 0}), Error);
  const std::string text = error_of([&] { autograd::move_to(leaf({1}), {DeviceKind::cuda, 9}); });
  EXPECT_NE(text.find("nobody uses cuda:9"), std::string::npos) << text;
}

}  // namespace
}  // namespace gradus::fusion::test
