// The table tells calls apart by all that decides what is made of them.
#include "kernels/call_table.h"

#include <gtest/gtest.h>

#include "gradus/registry.h"

namespace gradus::ops {
namespace {

struct Call {
  const ir::Operator& op;
  ir::Attributes attributes;
  std::vector<Layout> in;
  std::vector<Layout> results = {};
  std::optional<ir::Number> number = {};
  Device device = {};
  bool number_values = false;
};

// Finds the call, or else keeps it as that number.
int number_of(CallTable<int>& table, const Call& c, int fresh) {
  std::vector<CallOperand> operands;
  for (const Layout& l : c.in) operands.push_back({&l, c.device, nullptr});
  if (c.number) operands.push_back({nullptr, {}, &*c.number});
  const CallKey key{c.op, c.attributes, operands, c.results, c.number_values};
  const int* known = table.find(key);
  return known ? *known : table.insert(key, fresh);
}

TEST(CallTable, TellsCallsApart) {
  const ir::Operator &sub = *find("sub"), &add = *find("add");
  const ir::Attributes plain = sub.read({}), alpha = sub.read({{"alpha", 2.0, {}}}),
                       of_add = add.read({});
  const Layout row(DType::f32, {4}), column(DType::f32, {4}, {2}), wide(DType::f64, {4}),
      longer(DType::f32, {5});
  const auto half = ir::Number::of(0.5), third = ir::Number::of(1.0 / 3);
  const Device other{DeviceKind::other, 1};
  const std::vector<Call> calls{
      {sub, plain, {row, row}},
      {add, of_add, {row, row}},
      {sub, alpha, {row, row}},
      {sub, plain, {row, column}},
      {sub, plain, {row, wide}},
      {sub, plain, {row, longer}},
      {sub, plain, {row}},
      {sub, plain, {row, row}, {row}},
      {sub, plain, {row, row}, {column}},
      {sub, plain, {row, row}, {}, {}, other},
      {sub, plain, {row}, {}, half},
      {sub, plain, {row}, {}, ir::Number::of(int64_t{2})},
      {sub, plain, {row}, {}, half, other, true},
      {sub, plain, {row}, {}, third, other, true},
  };
  // One place, so that nothing but the comparison tells them apart; and many.
  for (size_t places : {1, 512}) {
    CallTable<int> table(places);
    for (int i = 0; i < static_cast<int>(calls.size()); ++i) {
      EXPECT_EQ(number_of(table, calls[static_cast<size_t>(i)], i), i) << "found another's";
      EXPECT_EQ(number_of(table, calls[static_cast<size_t>(i)], -1), i) << "not found again";
    }
  }
}

TEST(CallTable, NumbersCountByTheirCategoryUnlessTheirValuesMatter) {
  const ir::Operator& sub = *find("sub");
  const ir::Attributes plain = sub.read({});
  const Layout row(DType::f32, {4});
  const auto half = ir::Number::of(0.5), third = ir::Number::of(1.0 / 3);
  CallTable<int> table(64);
  EXPECT_EQ(number_of(table, {sub, plain, {row}, {}, half}, 1), 1);
  EXPECT_EQ(number_of(table, {sub, plain, {row}, {}, third}, 2), 1);
}

}  // namespace
}  // namespace gradus::ops
