// Operators on variables, backward, and derivatives of derivatives.
#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

TEST(Backward, AccumulatesIntoLeaves) {
  Variable x = leaf({1, 2, 3}), w = leaf({4, 5, 6});
  Variable y = op("sum", {op("mul", {x, w})});
  y.backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(values(w.grad()), (std::vector<double>{1, 2, 3}));
  op("sum", {op("mul", {x, x})}).backward();
  EXPECT_EQ(values(x.grad()), (std::vector<double>{6, 9, 12}));
}

TEST(Backward, DifferentiatesThroughItself) {
  Variable x = leaf({0.3, -0.7, 1.9});
  Variable y = op("sum", {op("tanh", {x})});
  Variable order1 = grad(std::array{y}, std::array{x}, {}, {.create_graph = true})[0];
  Variable order2 =
      grad(std::array{op("sum", {order1})}, std::array{x}, {}, {.create_graph = true})[0];
  Variable order3 = grad(std::array{op("sum", {order2})}, std::array{x})[0];
  for (size_t i = 0; i < 3; ++i) {
    double t = std::tanh(values(x)[i]), s = 1 - t * t;
    EXPECT_NEAR(values(order1)[i], s, 1e-15);
    EXPECT_NEAR(values(order2)[i], -2 * t * s, 1e-15);
    EXPECT_NEAR(values(order3)[i], s * (6 * t * t - 2), 1e-14);
  }
}

// SPEC N12
TEST(Backward, OfAMillionNodesNeitherRecursesNorLeaks) {
  size_t nodes = living_nodes(), variables = living_variables();
  {
    Variable x = scalar(1);
    Variable y = x;
    for (int i = 0; i < 1'000'000; ++i) y = through("id", y, hand_on);
    y.backward();
    EXPECT_EQ(values(x.grad()), std::vector<double>{1});
  }
  EXPECT_EQ(living_nodes(), nodes);
  EXPECT_EQ(living_variables(), variables);
}

}  // namespace
}  // namespace gradus::autograd::testing
