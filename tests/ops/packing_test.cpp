// Products that had better read a copy of an operand that lies otherwise.
#include <gtest/gtest.h>

#include "gradus/bind.h"
#include "gradus/registry.h"
#include "work/product.h"

namespace gradus::ops {
namespace {

struct NoSizes final : ir::DimEnvironment {
  std::optional<int64_t> find(std::string_view) const override { return std::nullopt; }
};

std::optional<work::Gemm> of(const Layout& a, const Layout& b, bool transpose_b) {
  const ir::Operator* op = find("matmul");
  ir::LiteralList list;
  if (transpose_b) list.push_back({"transpose_b", true, {}});
  const ir::Attributes attributes = op->read(list);
  const std::array in{a, b};
  const bool present[]{true, true}, number[]{false, false};
  NoSizes sizes;
  BindCall call{*op, in, present, number, attributes, sizes, {}, {}, {}};
  const int64_t n = b.shape[transpose_b ? 0 : 1];
  call.out.push_back(a.rank() == 1 ? Layout(a.dtype, {n}) : Layout(a.dtype, {a.shape[0], n}));
  call.views.resize(1);
  op->bind(call);
  return work::packed(std::get<work::Product>(*call.work).gemm);
}

Layout matrix(int64_t rows, int64_t columns, DType d = DType::f32) { return {d, {rows, columns}}; }
Layout across(int64_t rows, int64_t columns, DType d = DType::f32) {
  return {d, {rows, columns}, {1, rows}};
}

TEST(Packing, IsOfSmallProductsThatReadAcrossRows) {
  auto packed = of(matrix(1, 16), matrix(64, 16), true);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->b_row, 64);
  EXPECT_EQ(packed->b_column, 1);
  EXPECT_EQ(packed->k, 16);
  packed = of(matrix(3, 16, DType::f64), across(16, 64, DType::f64), false);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->b_row, 64);
  EXPECT_TRUE(of(Layout(DType::f32, {16}), matrix(64, 16), true));  // a row
  EXPECT_FALSE(of(matrix(1, 16), matrix(16, 64), false));           // lies well
  EXPECT_FALSE(of(matrix(1, 16), across(64, 16), true));            // this, too
  EXPECT_FALSE(of(matrix(40, 16), matrix(64, 16), true));           // many rows
  EXPECT_FALSE(of(matrix(1, 16), matrix(9000, 16), true));          // a large copy
  EXPECT_FALSE(of(matrix(1, 16, DType::i64), matrix(64, 16, DType::i64), true));
}

}  // namespace
}  // namespace gradus::ops
