// A program as one node of an outer graph, against the same computation as variables.
// SPEC I17
#include "gradus/staged_function.h"

#include <thread>

#include "gradus/apply.h"
#include "gradus/engine.h"
#include "gradus/text.h"
#include "tests/autograd/support.h"

namespace gradus {
namespace {

using namespace autograd::testing;
using autograd::grad;
using autograd::Variable;
using autograd::Variables;

constexpr const char* program = R"(
graph wave {
  stage 0 (%x: f64[N], %w: f64[N]) {
    %p = mul(%x, %w)
    %u = sin(%p)
    %v = mul(%u, %x)
    return %u, %v
  }
})";

StagedFunction wave(int derivatives) {
  return StagedFunction::of(ir::parse(program).program(), derivatives);
}

Variables by_hand(const Variable& x, const Variable& w) {
  Variable u = op("sin", {op("mul", {x, w})});
  return {u, op("mul", {u, x})};
}

// A scalar of both results, so that every path counts.
Variable objective(const Variables& y) { return op("sum", {op("mul", {op("exp", {y[0]}), y[1]})}); }

// Gradients of orders 1 to `order` with respect to x and w, each of a sum of products of the ones
// before.
std::vector<Tensor> derivatives(const std::function<Variables(Variable, Variable)>& f, int order) {
  Variable x = leaf({0.3, -0.7, 1.9}), w = leaf({0.8, 1.1, -0.4});
  Variable y = objective(f(x, w));
  std::vector<Tensor> all{y.data()};
  for (int k = 1; k <= order; ++k) {
    Variables g = grad(std::array{y}, std::array{x, w}, {}, {.create_graph = k < order});
    for (const Variable& v : g) all.push_back(v.data());
    if (k < order) y = op("sum", {op("mul", {op("tanh", {g[0]}), g[1]})});
  }
  return all;
}

void expect_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    auto x = a[i].to_doubles(), y = b[i].to_doubles();
    ASSERT_EQ(x.size(), y.size());
    for (size_t k = 0; k < x.size(); ++k)
      EXPECT_NEAR(x[k], y[k], 1e-12 * std::max(1.0, std::fabs(y[k]))) << "value " << i;
  }
}

TEST(StagedFunction, AgreesWithVariablesAtOrdersOneToThree) {
  for (int order = 1; order <= 3; ++order) {
    SCOPED_TRACE(order);
    StagedFunction f = wave(order);
    expect_close(derivatives(
                     [&](Variable x, Variable w) {
                       return f(std::array{x, w});
                     },
                     order),
                 derivatives(by_hand, order));
  }
}

TEST(StagedFunction, NestsTwice) {
  StagedFunction f = wave(3);
  auto staged = [&](Variable x, Variable w) {
    Variables y = f(std::array{x, w});
    return f(std::array{y[0], y[1]});
  };
  auto plain = [](Variable x, Variable w) {
    Variables y = by_hand(x, w);
    return by_hand(y[0], y[1]);
  };
  expect_close(derivatives(staged, 3), derivatives(plain, 3));
}

TEST(StagedFunction, HandsUndefinedCotangentsOn) {
  StagedFunction f = wave(1);
  Variable x = leaf({0.3, -0.7}), w = leaf({0.8, 1.1});
  Variables y = f(std::array{x, w});
  // Only u gets a cotangent.
  Variable g = grad(std::array{op("sum", {y[0]})}, std::array{w})[0];
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(values(g)[i], values(x)[i] * std::cos(values(x)[i] * values(w)[i]), 1e-15);
}

TEST(StagedFunction, IsFreedByABackwardThatDoesNotKeepIt) {
  StagedFunction f = wave(1);
  Variable x = leaf({0.3, -0.7}), w = leaf({0.8, 1.1});
  Variable y = objective(f(std::array{x, w}));
  y.backward({}, /*keep_graph=*/true);
  std::vector<double> once = values(x.grad());
  y.backward({}, /*keep_graph=*/true);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(values(x.grad())[i], 2 * once[i], 1e-15);
  y.backward();
  EXPECT_NE(error_of([&] { y.backward(); }).find("freed"), std::string::npos);
}

TEST(StagedFunction, RefusesMoreDerivativesThanItHas) {
  StagedFunction f = wave(1);
  Variable x = leaf({0.3, -0.7}), w = leaf({0.8, 1.1});
  Variable y = objective(f(std::array{x, w}));
  Variable g = grad(std::array{y}, std::array{x}, {}, {.create_graph = true})[0];
  std::string message = error_of([&] { op("sum", {g}).backward(); });
  EXPECT_NE(message.find("compiled for 1 derivative"), std::string::npos) << message;
  StagedFunction none = wave(0);
  Variable z = objective(none(std::array{x, w}));
  EXPECT_NE(error_of([&] { z.backward(); }).find("compiled for 0 derivatives"), std::string::npos);
}

TEST(StagedFunction, RefusesAnInputThatHasNoGradient) {
  auto graph = ir::differentiate(ir::parse(program).program(),
                                 {.order = 1, .wrt = std::vector<std::string>{"x"}});
  StagedFunction f(Code::compile(graph));
  Variable x = leaf({0.3}), w = leaf({0.8});
  EXPECT_NE(error_of([&] {
              f(std::array{x, w});
            }).find("'w' requires a gradient"),
            std::string::npos);
  w.set_requires_grad(false);
  f(std::array{x, w})[0].backward(leaf({1}, false));
  EXPECT_NEAR(values(x.grad())[0], 0.8 * std::cos(0.24), 1e-15);
}

TEST(StagedFunction, ServesSeveralThreads) {
  StagedFunction f = wave(2);
  Variable x = leaf({0.3, -0.7, 1.9}), w = leaf({0.8, 1.1, -0.4});
  Variable y = objective(f(std::array{x, w}));
  auto expected = grad(std::array{y}, std::array{x}, {}, {.keep_graph = true})[0].data();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Variable g = grad(std::array{y}, std::array{x}, {}, {.keep_graph = true})[0];
        right += bitwise_equal(g.data(), expected);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 200);
}

}  // namespace
}  // namespace gradus
