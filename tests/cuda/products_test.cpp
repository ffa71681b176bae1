// Large products go to cuBLASLt: what it is asked for, by its double.
#include <numeric>

#include "fusion/cuda/accelerator.h"
#include "ops/device_form.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/needs.h"
#include "tests/cuda/product_double.h"

namespace gradus::fusion::test {
namespace {

using ops::Gemm;

class Products : public testing::Test {
 public:
  void SetUp() override {
    product_double() = {};
    product_double().memory = &device_->memory();
    device_->library = std::make_unique<const cuda::Products>(product_double_table());
  }
  void TearDown() override {
    EXPECT_EQ(product_double().faults, std::vector<std::string>());
    device_->library = nullptr;
    EXPECT_EQ(product_double().left, 0);
  }

  // Bit for bit what our loops give, from operands that begin `offset` elements into memory.
  void check(const Gemm& g, bool large = true, int64_t offset = 0) {
    const size_t size = size_of(g.dtype);
    int64_t batch = 1, reach_a = (g.m - 1) * g.a_row + (g.k - 1) * g.a_column + 1;
    int64_t reach_b = (g.k - 1) * g.b_row + (g.n - 1) * g.b_column + 1;
    for (const auto& b : g.batch) {
      batch *= b.size;
      reach_a += (b.size - 1) * b.a_stride;
      reach_b += (b.size - 1) * b.b_stride;
    }
    const Tensor a = random(g.dtype, reach_a, 1), b = random(g.dtype, reach_b, 2);
    const size_t bytes = static_cast<size_t>(batch * g.m * g.n) * size;
    const size_t shift = static_cast<size_t>(offset) * size;
    auto to_device = [&](const Tensor& t) {
      std::byte* there = accelerator_->allocate(t.storage()->bytes() + shift) + shift;
      accelerator_->to_device(there, t.data(), t.storage()->bytes());
      return there;
    };
    DeviceCode code = accelerator_->bind({ops::DeviceProduct{g, large}, 0}, 3, true);
    ASSERT_NE(code.kernel.run, nullptr);
    std::byte* args[] = {to_device(a), to_device(b), accelerator_->allocate(bytes + shift) + shift};
    // Scratch memory is aligned to 64 bytes, and to no more.
    std::byte* scratch = accelerator_->allocate(code.kernel.scratch_bytes + 64) + 64;
    WorkerPool workers(1);
    ir::KernelScope scope{workers, scratch};
    code.kernel.run(code.kernel.parameters.get(), args, scope);
    std::vector<std::byte> got(bytes), expected(bytes);
    accelerator_->to_host(got.data(), args[2], bytes);
    std::vector<std::byte> room(ops::gemm_scratch_bytes(g, false) + 64);
    void* aligned = room.data();
    size_t left = room.size();
    std::align(64, left - 64, aligned, left);
    ops::gemm(g, a.data(), b.data(), expected.data(), static_cast<std::byte*>(aligned), workers);
    EXPECT_EQ(got, expected);
  }
  static Tensor random(DType dtype, int64_t n, uint64_t seed) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i)
      values.push_back(static_cast<double>((i * 37 + static_cast<int64_t>(seed) * 11) % 23 - 11) /
                       8);
    return Tensor::from(dtype, Sizes{n}, values);
  }
  static Gemm rows(DType dtype, int64_t m, int64_t n, int64_t k) {
    return {dtype, m, n, k, k, 1, n, 1, {}};
  }
  size_t calls() const { return product_double().calls.size(); }

  const std::shared_ptr<InterpretedDevice> device_ = std::make_shared<InterpretedDevice>();
  const std::shared_ptr<cuda::CudaAccelerator> accelerator_ =
      std::make_shared<cuda::CudaAccelerator>(device_,
                                              std::make_shared<ObjectStore>(kernel_folder()));
};

TEST_F(Products, OfEveryFloatingDtype) {
  GRADUS_NEEDS_NVRTC();
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16})
    check(rows(d, 3, 5, 7), d != DType::f16);
  EXPECT_EQ(calls(), 3u);  // small ones of f16 are not worth it
  EXPECT_EQ(product_double().calls[0].type, 1);
  EXPECT_EQ(product_double().calls[0].rows, 5u);
  EXPECT_EQ(product_double().calls[0].columns, 3u);
  EXPECT_EQ(product_double().calls[0].inner, 7u);
}

TEST_F(Products, OfOperandsThatLieOtherwise) {
  Gemm g = rows(DType::f32, 4, 6, 5);
  g.a_row = 1, g.a_column = 4;
  check(g);
  EXPECT_TRUE(product_double().calls.back().second_turned);
  g.b_row = 1, g.b_column = 9;  // with gaps
  check(g);
  EXPECT_TRUE(product_double().calls.back().first_turned);
  check(rows(DType::f32, 1, 6, 5));
  check(rows(DType::f32, 4, 1, 5));
  EXPECT_EQ(calls(), 4u);
}

// Rows that repeat, or elements that are strided both ways, are for our own kernel.
TEST_F(Products, WhatTheLibraryDoesNotTake) {
  GRADUS_NEEDS_NVRTC();
  Gemm g = rows(DType::f32, 4, 6, 5);
  g.a_row = 0;
  check(g);
  g.a_row = 10, g.a_column = 2;
  check(g);
  check(rows(DType::i64, 4, 6, 5));
  EXPECT_EQ(calls(), 0u);
}

TEST_F(Products, OfBatches) {
  Gemm g = rows(DType::f32, 3, 4, 5);
  g.batch = {{6, 15, 20}};
  check(g);
  EXPECT_EQ(product_double().calls.back().batch, 6);
  g.batch = {{6, 15, 0}};  // one b for all
  check(g);
  g.batch = {{2, 100, 3}, {3, 15, 40}};
  check(g);
  EXPECT_EQ(calls(), 4u);
}

TEST_F(Products, OfPointersThatAreNotAligned) {
  check(rows(DType::f32, 8, 8, 8), true, 1);
  check(rows(DType::bf16, 8, 8, 8), true, 3);
  EXPECT_EQ(calls(), 2u);
}

// Without an algorithm in the memory that it is offered, our own kernel is there.
TEST_F(Products, WithoutAnAlgorithm) {
  GRADUS_NEEDS_NVRTC();
  product_double().workspace_bytes = size_t{1} << 40;
  check(rows(DType::f32, 8, 8, 8));
  EXPECT_EQ(calls(), 0u);
}

}  // namespace
}  // namespace gradus::fusion::test
