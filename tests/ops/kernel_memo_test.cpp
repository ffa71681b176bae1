// The memo gives each call the kernel that `bind` would give it.
#include "ops/kernel_memo.h"

#include <gtest/gtest.h>

#include "ops/registry.h"

namespace gradus::ops {
namespace {

struct NoSizes final : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

KernelMemo::Found bind(KernelMemo& memo, const ir::Operator& op, const ir::Attributes& attributes,
                       std::vector<Layout> in, std::vector<Layout> out) {
  NoSizes sizes;
  SmallVector<bool, 4> present(in.size(), true), number(in.size(), false);
  ir::BindCall call{op, in, present, number, attributes, sizes, {}, {}, {}};
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
  auto parameters = [&](const ir::Attributes& a, const Layout& x, const Layout& y) {
    auto found = bind(memo, sub, a, {x, y}, {y});
    return std::pair(found.entry.kernel.parameters, found.fresh);
  };
  auto [first, first_fresh] = parameters(plain, row, row);
  EXPECT_TRUE(first_fresh);
  auto [again, again_fresh] = parameters(plain, row, row);
  EXPECT_FALSE(again_fresh);
  EXPECT_EQ(first, again);
  std::vector<std::shared_ptr<const void>> others{parameters(alpha, row, row).first,
                                                  parameters(plain, column, row).first,
                                                  parameters(plain, row, wide).first};
  for (const auto& other : others) EXPECT_NE(first, other);
}

TEST(KernelMemo, KeepsViews) {
  const ir::Operator& op = *find("transpose");
  ir::Attributes attributes = op.read({{"dim0", 0, {}}, {"dim1", 1, {}}});
  KernelMemo memo;
  for (int round = 0; round < 2; ++round) {
    auto found =
        bind(memo, op, attributes, {Layout(DType::f64, {2, 3})}, {Layout(DType::f64, {3, 2})});
    EXPECT_EQ(found.fresh, round == 0);
    EXPECT_EQ(found.entry.views[0].operand, 0);
    EXPECT_EQ(found.entry.out[0].strides, (Sizes{1, 3}));
  }
}

}  // namespace
}  // namespace gradus::ops
