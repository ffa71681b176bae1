// Large products go to cuBLASLt: what it is asked for, by its double.
#include <numeric>

#include "devices/cuda/backend.h"
#include "devices/cuda/kernels.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "kernels/gemm.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/needs.h"
#include "tests/cuda/product_double.h"
#include "work/work.h"

namespace gradus::fusion::test {
namespace {

using work::Gemm;

class Products : public testing::Test {
 public:
  void SetUp() override {
    product_double() = {};
    product_double().memory = &device_->memory();
    device_->library = std::make_unique<const cuda::Products>(product_double_table(), true);
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
      std::byte* there = backend_->allocate(t.storage()->bytes() + shift) + shift;
      backend_->to_device(there, t.data(), t.storage()->bytes());
      return there;
    };
    device_->library = std::make_unique<const cuda::Products>(product_double_table(), large);
    devices::DeviceCode code = backend_->make(work::Product{g}, 3, true);
    ASSERT_NE(code.kernel.run, nullptr);
    std::byte* args[] = {to_device(a), to_device(b), backend_->allocate(bytes + shift) + shift};
    // Scratch memory is aligned to 64 bytes, and to no more.
    std::byte* scratch = backend_->allocate(code.kernel.scratch_bytes + 64) + 64;
    WorkerPool workers(1);
    work::KernelScope scope{workers, scratch};
    code.kernel.run(code.kernel.parameters.get(), args, scope);
    std::vector<std::byte> got(bytes), expected(bytes);
    backend_->to_host(got.data(), args[2], bytes);
    std::vector<std::byte> room(kernels::gemm_scratch_bytes(g, false) + 64);
    void* aligned = room.data();
    size_t left = room.size();
    std::align(64, left - 64, aligned, left);
    kernels::gemm(g, a.data(), b.data(), expected.data(), static_cast<std::byte*>(aligned),
                  workers);
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
  const std::shared_ptr<cuda::CudaBackend> backend_ =
      std::make_shared<cuda::CudaBackend>(device_, std::make_shared<ObjectStore>(kernel_folder()));
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

// Programs whose product and the sum that follows are one call of the library, or are not.
class JoinedProducts : public Products {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    Products::SetUp();
    context_ = std::make_shared<Context>(ContextOptions{});
    context_->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
        device_, KernelOptions{.folder = kernel_folder()}, nullptr));
  }

  // Whole numbers, so that sums are the same in any order: the bits of the CPU, stage by stage.
  void run(const std::string& text, int order = 0) {
    const ir::Graph program = ir::parse(text, "join.ir").program();
    const auto code = Code::compile(order ? ir::differentiate(program, {.order = order}) : program);
    State there(code, context_, {.fusion = FusionMode::first});
    State here(code, Context::default_context(), {.fusion = FusionMode::off});
    for (size_t stage = 0; stage < code->stages(); ++stage) {
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < code->inputs(stage); ++i) {
        const ir::Type& type = code->input_type(stage, i);
        Sizes shape;
        for (const ir::Dim& d : type.dims) shape.push_back(d.value());
        std::vector<double> values;
        for (int64_t n = 0; n < numel(shape); ++n)
          values.push_back(
              static_cast<double>((n * 31 + static_cast<int64_t>(i) * 7) % 13 % 5 - 2));
        inputs.push_back(Tensor::from(type.dtype, shape, values));
      }
      const auto expected = here.run(inputs), got = there.run(inputs);
      for (size_t r = 0; r < got.size(); ++r)
        EXPECT_TRUE(bitwise_equal(got[r], expected[r])) << "stage " << stage << ", result " << r;
    }
    said_ = describe_groups(there);
  }
  static size_t joined() {
    return static_cast<size_t>(
        std::ranges::count(product_double().calls, true, &ProductCall::adds_row));
  }

  std::shared_ptr<Context> context_;
  std::string said_;
};

TEST_F(JoinedProducts, AreSaidToBeOne) {
  run("graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {\n"
      "  %m = matmul(%x, %w)\n  %y = add(%m, %b)\n  return %y } }");
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(joined(), 1u);
  EXPECT_EQ(device_->launches, 0u);
  EXPECT_EQ(said_,
            "stage 0, instructions 0 matmul @2:8, 1 add @3:8\n"
            "by the device's library for products\n");
}

TEST_F(JoinedProducts, OfRowsThatLieOtherwise) {
  run("graph g { stage 0 (%x: f64[4, 32, 128], %w: f64[128, 128], %b: f64[1, 128]) {"
      "  %m = matmul(%x, %w) %y = add(%b, %m) return %y } }");
  run("graph g { stage 0 (%x: f32[3, 64, 128], %w: f32[3, 128, 128], %b: f32[1, 1, 128]) {"
      "  %m = matmul(%x, %w) %y = add(%m, %b) return %y } }");
  run("graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {"
      "  %c = expand(%b) {shape = [64, 128]} %m = matmul(%x, %w) %y = add(%m, %c) return %y } }");
  EXPECT_EQ(joined(), 3u);
}

// The operands stay for as long as the product is put off, and so does the row.
TEST_F(JoinedProducts, RunWhereTheSumStands) {
  run(R"(graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {
    %xx = mul(%x, %x)
    %m = matmul(%xx, %w)
    %u = mul(%x, 2.0)
    %v = cumsum(%u) {dim = 0}
    %r = sum(%v) {dim = [0]}
    %y = add(%m, %r)
    return %y, %v } })");
  EXPECT_EQ(joined(), 1u);
}

TEST_F(JoinedProducts, InDerivatives) {
  run(R"(graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {
    %m = matmul(%x, %w)
    %h = add(%m, %b)
    %y = matmul(%h, %w)
    return %y } })",
      2);
  EXPECT_EQ(joined(), 1u);
}

// A kernel that reads the sum reads the product as well: it is not worth it.
TEST_F(JoinedProducts, NotWhereAKernelFollows) {
  run("graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {"
      "  %m = matmul(%x, %w) %h = add(%m, %b) %y = relu(%h) return %y } }");
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(joined(), 0u);
}

TEST_F(JoinedProducts, NotOfOtherSums) {
  const std::string head =
      "graph g { stage 0 (%x: f32[128, 128], %w: f32[128, 128], %b: f32[128, 1], %c: f32[128], "
      "%d: f32[128, 128], %e: f32[1]) { %m = matmul(%x, %w) ";
  run(head + "%y = add(%m, %b) return %y } }");
  run(head + "%y = add(%m, %d) return %y } }");
  run(head + "%y = add(%m, %e) return %y } }");
  run(head + "%y = add(%m, %c) {alpha = 2} return %y } }");
  run(head + "%y = add(%m, %c) return %y, %m } }");
  run("graph g { stage 0 (%x: bf16[128, 128], %w: bf16[128, 128], %b: bf16[128]) {"
      "  %m = matmul(%x, %w) %y = add(%m, %b) return %y } }");
  EXPECT_EQ(calls(), 6u);
  EXPECT_EQ(joined(), 0u);
}

TEST_F(JoinedProducts, NotWhereTheLibraryHasNone) {
  product_double().without_epilogues = true;
  run("graph g { stage 0 (%x: f32[64, 128], %w: f32[128, 128], %b: f32[128]) {"
      "  %m = matmul(%x, %w) %y = add(%m, %b) return %y } }");
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(joined(), 0u);
}

}  // namespace
}  // namespace gradus::fusion::test
