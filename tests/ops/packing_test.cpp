// Copies of operands that several products read across their rows.
#include "ops/packing.h"

#include <gtest/gtest.h>

#include "ops/registry.h"

namespace gradus::ops {
namespace {

std::optional<Packing> of(const char* op, const Layout& a, const Layout& b, bool transpose_b) {
  const ir::Operator* record = find(op);
  ir::LiteralList list;
  if (transpose_b) list.push_back({"transpose_b", true, {}});
  const Layout in[] = {a, b};
  return packing_of(*record, record->read(list), in);
}

Layout matrix(int64_t rows, int64_t columns, DType d = DType::f32) { return {d, {rows, columns}}; }
Layout across(int64_t rows, int64_t columns, DType d = DType::f32) {
  return {d, {rows, columns}, {1, rows}};
}

TEST(Packing, IsOfSmallProductsThatReadAcrossRows) {
  auto packing = of("matmul", matrix(1, 16), matrix(64, 16), true);
  ASSERT_TRUE(packing);
  EXPECT_EQ(packing->operand, 1u);
  EXPECT_EQ(packing->layout, Layout(DType::f32, {64, 16}, {1, 64}));
  packing = of("matmul", matrix(3, 16, DType::f64), across(16, 64, DType::f64), false);
  ASSERT_TRUE(packing);
  EXPECT_EQ(packing->layout, matrix(16, 64, DType::f64));
  EXPECT_FALSE(of("matmul", matrix(1, 16), matrix(16, 64), false));   // lies well
  EXPECT_FALSE(of("matmul", matrix(1, 16), across(64, 16), true));    // this, too
  EXPECT_FALSE(of("matmul", matrix(40, 16), matrix(64, 16), true));   // many rows
  EXPECT_FALSE(of("matmul", matrix(1, 16), matrix(9000, 16), true));  // a large copy
  EXPECT_FALSE(of("matmul", matrix(1, 16, DType::i64), matrix(64, 16, DType::i64), true));
  EXPECT_FALSE(of("matmul", Layout(DType::f32, {16}), matrix(64, 16), true));
  EXPECT_FALSE(of("mul", matrix(4, 4), matrix(4, 4), false));
}

template <class T>
void expect_copies(DType d, int64_t n, int64_t k, int64_t stride) {
  const Layout from(d, {n, k}, {stride, 1});
  const Packing packing{1, Layout(d, {n, k}, {1, n})};
  std::vector<T> source(static_cast<size_t>(n * stride)),
      target(static_cast<size_t>(n * k) + 1, -1);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<T>(i);
  ir::Kernel kernel = bind_packing(from, packing);
  WorkerPool workers(1);
  ir::KernelScope scope{workers, nullptr};
  std::byte* args[] = {reinterpret_cast<std::byte*>(source.data()),
                       reinterpret_cast<std::byte*>(target.data())};
  kernel.run(kernel.parameters.get(), args, scope);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i)
      ASSERT_EQ(target[static_cast<size_t>(i * n + j)], static_cast<T>(j * stride + i))
          << n << " x " << k;
  EXPECT_EQ(target.back(), -1);
}

TEST(Packing, CopiesEveryElement) {
  for (int64_t n : {2, 7, 8, 15, 16, 17, 33, 64})
    for (int64_t k : {2, 3, 8, 9, 16, 31, 256}) {
      expect_copies<float>(DType::f32, n, k, k + 3);
      expect_copies<double>(DType::f64, n, k, k);
    }
}

}  // namespace
}  // namespace gradus::ops
