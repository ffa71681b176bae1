// Gradus in a program of one's own: an operator, a pass, an opaque function, an allocator and a log
// of one's own; a program built by calls, derived twice, and run on four threads.
#include <cmath>
#include <cstdio>
#include <mutex>
#include <thread>

#include "gradus/apply.h"
#include "gradus/builder.h"
#include "gradus/opaque_function.h"
#include "gradus/registry.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "pass.h"
#include "window_sums.h"

using namespace gradus;
using autograd::Variable;
using autograd::Variables;

namespace {

// Memory that is counted; a program would hand out its own.
class CountingAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    ++calls;
    return heap_.allocate(bytes);
  }
  void deallocate(void* block, size_t bytes) noexcept override { heap_.deallocate(block, bytes); }
  std::atomic<size_t> calls{0};

 private:
  HeapAllocator heap_;
};

// x / (1 + x^2), which Gradus knows nothing of: derived by the autograd engine.
class SoftClip final : public autograd::CppFunction {
 public:
  std::string name() const override { return "embed.soft_clip"; }
  bool replayable() const override { return true; }
  std::vector<ir::Type> infer(std::span<const ir::Type> operands) const override {
    if (operands.size() != 1 || !operands[0].is_floating())
      throw Error("it takes one floating operand");
    return {operands[0]};
  }
  Variables call(std::span<const Variable> x) const override {
    Variable below =
        autograd::apply("add", {autograd::apply("square", {x[0]})[0], ir::Number::of(1.0)})[0];
    return autograd::apply("div", {x[0], below});
  }
};

// y = sum(soft_clip(window_sums(x * w))), and a window that our pass takes away.
ir::Graph build() {
  ir::Builder b("embed");
  ir::Type vector(DType::f64, {ir::Dim::symbol("N")});
  ops::Value x = b.input("x", vector), w = b.input("w", vector);
  ops::Value s = ops::emit<embed::WindowSums>({x * w}, {.width = 3});
  ops::Value same = ops::emit<embed::WindowSums>({s}, {.width = 1});
  ops::Value clipped = b.call("embed.soft_clip", {same})[0];
  b.result("y", ops::sum_all(clipped));
  return b.take();
}

double by_hand(const std::vector<double>& x, const std::vector<double>& w) {
  double y = 0;
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    double s = x[i] * w[i] + x[i + 1] * w[i + 1] + x[i + 2] * w[i + 2];
    y += s / (1 + s * s);
  }
  return y;
}

int fault(const char* what) {
  std::fprintf(stderr, "embed: %s\n", what);
  return 1;
}

int run() {
  ops::register_operator(ops::operator_record<embed::WindowSums>);
  ops::register_function(std::make_shared<SoftClip>());

  std::mutex log_mutex;
  auto memory = std::make_shared<CountingAllocator>();
  ContextOptions options;
  options.allocator = memory;
  options.log = [&](LogLevel, std::string_view message) {
    std::lock_guard guard(log_mutex);
    std::fprintf(stderr, "log: %.*s\n", static_cast<int>(message.size()), message.data());
  };
  auto context = std::make_shared<Context>(options);

  ir::Graph program = ir::differentiate(build(), {.order = 2});
  auto code = Code::compile(
      program, {.dump = {}, .passes = {{"drop_single_windows", embed::drop_single_windows}}});
  for (size_t s = 0; s < code->stages(); ++s)
    for (const Instruction& i : code->stage(s).instructions)
      if (i.op->name == "window_sums" && i.op->write(i.attributes)[0].name == "width" &&
          std::get<ir::Dim>(i.op->write(i.attributes)[0].value.value) == ir::Dim(1))
        return fault("the pass left a window of one element");

  // Each thread has its own size and its own state; they share the code.
  std::vector<double> results(4);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<double> x, w;
      for (int i = 0; i < 5 + t; ++i) {
        x.push_back(std::sin(i + t));
        w.push_back(std::cos(i - t));
      }
      Sizes shape{static_cast<int64_t>(x.size())};
      Tensor vx = Tensor::from(DType::f64, shape, x), vw = Tensor::from(DType::f64, shape, w);
      State state(code, context);
      double y = state.run(std::array{vx, vw})[0].item();
      std::vector<Tensor> d = state.run(std::array{Tensor::scalar(DType::f64, 1)});
      auto second = state.run(std::array{vx, vw});
      // Against the function itself and its central difference.
      const double h = 1e-6;
      std::vector<double> up = x, down = x;
      up[1] += h, down[1] -= h;
      const double slope = (by_hand(up, w) - by_hand(down, w)) / (2 * h);
      wrong += std::fabs(y - by_hand(x, w)) > 1e-12 || std::fabs(d[0].item(1) - slope) > 1e-8 ||
               second.size() != 3;
      results[t] = y;
    });
  for (std::thread& t : threads) t.join();
  if (wrong) return fault("a result is wrong");
  if (memory->calls == 0) return fault("the allocator was not asked");
  try {
    ir::differentiate(program, {.order = 3, .wrt = std::vector<std::string>{"z"}});
    return fault("an error was expected");
  } catch (const Error& e) {
    std::printf("an error, caught here: %s\n", e.what());
  }
  for (double y : results) std::printf("y = %.17g\n", y);
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const Exception& e) {
    return fault(e.what());
  }
}
