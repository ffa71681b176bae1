// Gradients are added up where that costs least, and never where somebody can see it.
#include "autograd/sums.h"

#include "tests/autograd/support.h"

namespace gradus::autograd::testing {
namespace {

TEST(Sums, TakeThePlaceOfWhatNobodySees) {
  GradModeGuard mode(GradMode::no_grad);
  Variable a = leaf({1, 2}, false);
  const std::byte* place = a.data().data();
  Variable sum = add_up(std::move(a), leaf({10, 20}, false));
  EXPECT_EQ(values(sum), (std::vector<double>{11, 22}));
  EXPECT_EQ(sum.data().data(), place);
}

TEST(Sums, LeaveWhatOthersSee) {
  const std::vector<double> sum{11, 22}, before{1, 2};
  auto add_to = [&](Variable a) {
    EXPECT_EQ(values(add_up(std::move(a), leaf({10, 20}, false))), sum);
  };
  for (GradMode mode : {GradMode::no_grad, GradMode::enabled}) {
    GradModeGuard guard(mode);
    Variable variable = leaf({1, 2}, false);
    add_to(variable);
    EXPECT_EQ(values(variable), before) << "of the variable";
    Tensor tensor = leaf({1, 2}, false).data();
    add_to(Variable(tensor));
    EXPECT_EQ(tensor.to_doubles(), before) << "of the tensor";
    Tensor view;
    {
      Tensor whole = leaf({1, 2}, false).data();
      view = whole.view(whole.layout(), 0);
      add_to(Variable(std::move(whole)));
    }
    EXPECT_EQ(view.to_doubles(), before) << "of the memory";
    std::vector<double> memory = before;
    add_to(Variable(Tensor(make_ref<Storage>(memory.data(), 16, Device{}, nullptr),
                           Layout(DType::f64, Sizes{2}))));
    EXPECT_EQ(memory, before) << "of foreign memory";
  }
}

// Whoever watches a variable without keeping it may turn to it again.
TEST(Sums, LeaveWhatIsWatched) {
  GradModeGuard mode(GradMode::no_grad);
  Variable a = leaf({1, 2}, false);
  WeakVariable weak(a);
  const std::byte* place = a.data().data();
  EXPECT_NE(add_up(std::move(a), leaf({10, 20}, false)).data().data(), place);
}

// The same cotangent at two roots, which its owner reads later.
TEST(Sums, LeaveTheCallersCotangents) {
  Variable x = leaf({3}), one = leaf({1}, false);
  Variable y = op("neg", {x});
  auto dx = grad(std::array{y, y, y}, std::array{x}, std::array{one, one, one});
  EXPECT_EQ(values(dx[0]), std::vector<double>{-3});
  EXPECT_EQ(values(one), std::vector<double>{1});
}

}  // namespace
}  // namespace gradus::autograd::testing
