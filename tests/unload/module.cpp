// The library within a shared one, as a plug-in or a language binding has it.
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "gradus/apply.h"
#include "gradus/custom_function.h"
#include "gradus/engine.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace {

using namespace gradus;
using autograd::Variable;
using autograd::Variables;

Variable op(std::string_view name, std::initializer_list<autograd::VariableOperand> operands,
            const ir::LiteralList& attributes = {}) {
  return autograd::apply(name, operands, attributes)[0];
}

// A sum of branches that are worth a worker each.
Variable branches(const Variable& x, int n) {
  Variable sum = op("tanh", {x});
  for (int i = 0; i < n; ++i) sum = op("add", {sum, op("exp", {op("sin", {x})})});
  return op("sum", {sum});
}

bool run_backward() {
  Variable x(
      Tensor::from(DType::f64, std::array<int64_t, 1>{1 << 15}, std::vector<double>(1 << 15, 0.25)),
      true);
  for (int round = 0; round < 3; ++round) branches(x, 8).backward();
  return x.grad().defined();
}

bool run_program() {
  auto module = ir::parse(
      "graph f {\n  stage 0 (%x: f64[N]) {\n    %y = tanh(%x)\n    %z = sum(%y)\n"
      "    return %z\n  }\n}\n");
  State state(Code::compile(ir::differentiate(module.program(), {.order = 1})));
  auto z = state.run(std::array{Tensor::zeros(DType::f64, std::array<int64_t, 1>{1 << 15})});
  return state.run(z).size() == 1;
}

// Takes its time in the backward, again and again.
struct Slow final : autograd::CustomFunction {
  std::string name() const override { return "Slow"; }
  bool is_thread_safe() const override { return true; }
  std::vector<Tensor> forward(autograd::FunctionContext&,
                              std::span<const Variable> in) const override {
    return {in[0].data().copy()};
  }
  Variables backward(autograd::FunctionContext&, const Variables& dy) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return dy;
  }
};

std::future<Variables> busy;

}  // namespace

// 0 if all went well. On the default context, and on one of its own with workers.
extern "C" int gradus_unload_run() {
  try {
    bool fine = run_backward() && run_program();
    auto context = std::make_shared<Context>(ContextOptions{.workers = 4});
    autograd::ThreadState state;
    state.context = context;
    autograd::StateGuard guard(state);
    return fine && run_backward() ? 0 : 1;
  } catch (const std::exception&) {
    return 2;
  }
}

// Leaves a backward running on the default context's engine.
extern "C" void gradus_unload_stay_busy() {
  Variable x(Tensor::zeros(DType::f64, std::array<int64_t, 1>{4}), true);
  Variable y = x;
  auto slow = std::make_shared<const Slow>();
  for (int i = 0; i < 500; ++i) y = autograd::CustomFunction::apply(slow, std::array{y})[0];
  auto engine = autograd::engine_of(autograd::current_context());
  busy =
      engine->execute_async({y.gradient_edge()}, {Variable(x.data())}, {.accumulate_grad = true});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}
