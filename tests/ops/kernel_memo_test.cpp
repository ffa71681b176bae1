// The memo gives each call the work that `bind` would give it.
#include "kernels/kernel_memo.h"

#include <gtest/gtest.h>

#include "ops/registry.h"

namespace gradus::ops {
namespace {

struct NoSizes final : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

const KernelMemo::Entry& bind(KernelMemo& memo, const ir::Operator& op,
                              const ir::Attributes& attributes, std::vector<Layout> in,
                              std::vector<Layout> out) {
  NoSizes sizes;
  SmallVector<bool, 4> present(in.size(), true), number(in.size(), false);
  ops::BindCall call{op, in, present, number, attributes, sizes, {}, {}, {}};
  for (Layout& l : out) call.out.push_back(l);
  call.views.resize(out.size());
  return memo.bind(call);
}

TEST(KernelMemo, FindsWhatWasBoundAndTellsCallsApart) {
  const ir::Operator& sub = *find("sub");
  ir::Attributes plain = sub.read({});
  ir::Attributes alpha = sub.read({{"alpha", 2.0, {}}});
  Layout row(DType::f32, {4}), column(DType::f32, {4}, {2}), wide(DType::f64, {4});
  KernelMemo memo;
  auto work = [&](const ir::Attributes& a, const Layout& x, const Layout& y) {
    return bind(memo, sub, a, {x, y}, {y}).work;
  };
  const work::WorkRef first = work(plain, row, row), again = work(plain, row, row);
  EXPECT_EQ(first, again);
  std::vector<work::WorkRef> others{work(alpha, row, row), work(plain, column, row),
                                    work(plain, row, wide)};
  for (const auto& other : others) EXPECT_NE(first, other);
}

TEST(KernelMemo, KeepsViews) {
  const ir::Operator& op = *find("transpose");
  ir::Attributes attributes = op.read({{"dim0", 0, {}}, {"dim1", 1, {}}});
  KernelMemo memo;
  for (int round = 0; round < 2; ++round) {
    const auto& found =
        bind(memo, op, attributes, {Layout(DType::f64, {2, 3})}, {Layout(DType::f64, {3, 2})});
    EXPECT_EQ(found.work, nullptr);
    EXPECT_EQ(found.views[0].operand, 0);
    EXPECT_EQ(found.out[0].strides, (Sizes{1, 3}));
  }
}

}  // namespace
}  // namespace gradus::ops
