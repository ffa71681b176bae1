// Matrix products keep the order that work/product.h promises, to the bit.
// SPEC F6
#include <cmath>

#include <sys/mman.h>
#include <unistd.h>

#include "gradus/convert.h"
#include "gradus/error.h"
#include "kernels/gemm.h"
#include "kernels/gemm_kernel.h"
#include "kernels/make.h"
#include "tests/ops/pointwise_support.h"
#include "work/product.h"

namespace gradus::ops::test {
namespace {

template <class C>
C fused(C a, C b, C c) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b) +
                          static_cast<uint64_t>(c));
  else
    return std::fma(a, b, c);
}

// One element of a product, as the header tells it.
template <class T, class C>
T element(const T* a, int64_t a_step, const T* b, int64_t b_step, int64_t n) {
  C sum = 0;
  for (int64_t first = 0; first < n; first += 256) {
    C acc = 0;
    for (int64_t k = first; k < std::min(n, first + 256); ++k)
      acc = fused(convert<C>(a[k * a_step]), convert<C>(b[k * b_step]), acc);
    sum = first == 0 ? acc : static_cast<C>(sum + acc);
  }
  return convert<T>(sum);
}

Tensor laid_out(DType dtype, int64_t rows, int64_t columns, bool transposed, bool gaps,
                uint64_t seed) {
  Tensor x = uniform(Sizes{rows, columns}, -3, 3, seed).to(dtype);
  if (gaps) return scattered(x);
  if (!transposed) return x;
  Tensor t =
      run_one("transpose", {x}, {attribute("dim0", int64_t{0}), attribute("dim1", int64_t{1})});
  t = t.copy();
  return run_one("transpose", {t}, {attribute("dim0", int64_t{0}), attribute("dim1", int64_t{1})});
}

// By our own loops, also where an operator would call a library.
Tensor product(const Tensor& a, const Tensor& b, Context& context) {
  work::Gemm g;
  g.dtype = a.dtype();
  g.m = a.shape()[0];
  g.k = a.shape()[1];
  g.n = b.shape()[1];
  g.a_row = a.strides()[0];
  g.a_column = a.strides()[1];
  g.b_row = b.strides()[0];
  g.b_column = b.strides()[1];
  Tensor y = Tensor::zeros(g.dtype, Sizes{g.m, g.n});
  Tensor scratch =
      Tensor::zeros(DType::u8, Sizes{static_cast<int64_t>(kernels::gemm_scratch_bytes(g))});
  kernels::gemm(g, a.data(), b.data(), y.mutable_data(), scratch.mutable_data(), context.workers());
  // What the operator gives where it keeps to our loops: with AVX2, for every size.
  if (!work::is_large(g) || cpu_level() == CpuLevel::v3) {
    const Operator* op = find("matmul");
    EagerOperand operands[]{a, b};
    EXPECT_TRUE(bitwise_equal(evaluate(*op, op->read({}), operands, context)[0], y));
  }
  return y;
}

template <class T, class C>
void expect_order(DType dtype, int64_t m, int64_t n, int64_t k) {
  static Context one({.workers = 1}), three({.workers = 3});
  for (int way = 0; way < 5; ++way) {
    Tensor a = laid_out(dtype, m, k, way & 1, way == 4, 1);
    Tensor b = laid_out(dtype, k, n, way & 2, way == 4, 2);
    for (Context* context : {&one, &three}) {
      Tensor y = product(a, b, *context);
      ASSERT_EQ(Sizes(y.shape()), (Sizes{m, n}));
      int64_t wrong = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          T want = element<T, C>(a.data_as<T>() + i * a.strides()[0], a.strides()[1],
                                 b.data_as<T>() + j * b.strides()[1], b.strides()[0], k);
          wrong += std::memcmp(&want, y.data_as<T>() + i * n + j, sizeof(T)) != 0;
        }
      EXPECT_EQ(wrong, 0) << name_of(dtype) << " " << m << "x" << k << "x" << n << ", way " << way
                          << ", " << context->workers().workers() << " workers";
    }
  }
}

TEST(MatmulOrder, HoldsForEveryShapeAndLayout) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 16, 64},
                         {1, 1, 1},
                         {6, 16, 256},
                         {7, 17, 257},
                         {5, 63, 300},
                         {13, 1, 40},
                         {1, 130, 513},
                         {100, 70, 30},
                         {2, 3, 1030},
                         {6, 5, 40},
                         {1, 31, 256},
                         {4, 1, 9},
                         {1, 32, 257},
                         {1, 700, 40}}) {
    expect_order<float, float>(DType::f32, m, n, k);
    expect_order<double, double>(DType::f64, m, n, k);
  }
  expect_order<Half, float>(DType::f16, 20, 33, 300);
  expect_order<BFloat16, float>(DType::bf16, 9, 18, 520);
  expect_order<int64_t, int64_t>(DType::i64, 7, 9, 300);
  expect_order<int32_t, int64_t>(DType::i32, 7, 9, 30);
  expect_order<int8_t, int64_t>(DType::i8, 17, 20, 30);
  expect_order<uint8_t, int64_t>(DType::u8, 3, 20, 30);
}

TEST(MatmulOrder, HoldsAcrossBlocks) {
  // Past the packed rows, past the packed columns, and large enough for several workers.
  expect_order<float, float>(DType::f32, 200, 130, 270);
  expect_order<float, float>(DType::f32, 14, 1090, 270);
  expect_order<double, double>(DType::f64, 110, 200, 260);
  expect_order<double, double>(DType::f64, 14, 530, 260);
  expect_order<BFloat16, float>(DType::bf16, 200, 40, 260);
  // Cut by rows where columns are few, and by columns where rows are.
  expect_order<float, float>(DType::f32, 1000, 16, 80);
  expect_order<double, double>(DType::f64, 600, 7, 300);
  expect_order<float, float>(DType::f32, 5, 700, 310);
}

TEST(MatmulOrder, EveryWorkerHasAPart) {
  struct Shape {
    int64_t m, n, k;
    bool transposed_b;
  };
  for (const Shape& s :
       {Shape{100'000, 16, 64, true}, Shape{4096, 64, 64, false}, Shape{500, 32, 100, false},
        Shape{4096, 100, 64, true}, Shape{1, 1024, 1100, false}, Shape{6, 1024, 1024, false},
        Shape{1024, 1024, 64, false}, Shape{30, 8, 5000, true}})
    for (DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (int workers : {2, 3, 8}) {
        work::Gemm g;
        g.dtype = dtype;
        g.m = s.m, g.n = s.n, g.k = s.k;
        g.a_row = s.k, g.a_column = 1;
        g.b_row = s.transposed_b ? 1 : s.n;
        g.b_column = s.transposed_b ? s.k : 1;
        // Tiles of six rows, and of a cache line or two.
        const int64_t tiles = (s.m + 5) / 6 * ((s.n + 31) / 32);
        EXPECT_GE(kernels::gemm_items(g, workers), std::min<int64_t>(workers, tiles))
            << name_of(dtype) << " " << s.m << "x" << s.k << "x" << s.n << ", " << workers;
      }
  work::Gemm little;
  little.dtype = DType::f32;
  little.m = little.n = little.k = little.a_row = little.b_row = 20;
  little.a_column = little.b_column = 1;
  EXPECT_EQ(kernels::gemm_items(little, 8), 1);
}

// Memory whose end is the end of what can be read.
class AtTheEnd {
 public:
  explicit AtTheEnd(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (bytes + page - 1) / page * page;
    size_ = readable + page;
    void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GRADUS_CHECK(pages != MAP_FAILED);
    first_ = static_cast<std::byte*>(pages);
    GRADUS_CHECK(mprotect(first_ + readable, page, PROT_NONE) == 0);
    data_ = first_ + readable - bytes;
  }
  ~AtTheEnd() { munmap(first_, size_); }
  AtTheEnd(const AtTheEnd&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte *first_ = nullptr, *data_ = nullptr;
  size_t size_ = 0;
};

// A read behind an operand ends the process.
TEST(MatmulOrder, ReadsNothingBehindItsOperands) {
  for (DType dtype : {DType::f32, DType::f64})
    for (auto [m, n, k] : {std::array<int64_t, 3>{200, 530, 61}, {197, 130, 64}, {14, 1090, 9}})
      for (bool a_transposed : {false, true})
        for (bool b_transposed : {false, true}) {
          work::Gemm g{dtype, m, n, k};
          g.a_row = a_transposed ? 1 : k;
          g.a_column = a_transposed ? m : 1;
          g.b_row = b_transposed ? 1 : n;
          g.b_column = b_transposed ? k : 1;
          const size_t size = size_of(dtype);
          const AtTheEnd a(static_cast<size_t>(m * k) * size), b(static_cast<size_t>(k * n) * size),
              c(static_cast<size_t>(m * n) * size);
          Tensor scratch =
              Tensor::zeros(DType::u8, Sizes{static_cast<int64_t>(kernels::gemm_scratch_bytes(g))});
          WorkerPool workers(2);
          kernels::gemm(g, a.data(), b.data(), c.data(), scratch.mutable_data(), workers);
        }
}

// Beside the baseline, those that run here.
std::vector<CpuLevel> levels_here() {
  std::vector<CpuLevel> levels;
  for (CpuLevel level : {CpuLevel::v3, CpuLevel::v4})
    if (level <= cpu_level()) levels.push_back(level);
  return levels;
}

TEST(MatmulOrder, IsTheSameForEveryInstructionSet) {
  auto same = [](auto zero) {
    using C = decltype(zero);
    using K = kernels::GemmKernels<C>;
    std::mt19937_64 generator(4);
    std::uniform_real_distribution<double> value(-2, 2);
    std::vector<C> a(6 * 300), b(77 * K::widest), c(6 * K::widest);
    for (auto* v : {&a, &b, &c})
      for (C& x : *v) x = static_cast<C>(value(generator));
    const K& base = kernels::gemm_kernels<C>(CpuLevel::base);
    for (CpuLevel level : levels_here()) {
      const K& other = kernels::gemm_kernels<C>(level);
      for (int64_t rows = 1; rows <= K::rows; ++rows)
        for (int64_t columns = 1; columns <= (rows == 1 ? other.row_columns : K::columns);
             ++columns)
          for (bool first : {true, false}) {
            std::vector<C> x = c, y = c;
            kernels::GemmTile<C> t{rows,     columns,   77,       a.data(),  77,   1,
                                   b.data(), K::widest, x.data(), K::widest, first};
            base.tile(t);
            t.c = y.data();
            other.tile(t);
            EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(C)), 0)
                << rows << "x" << columns << " at level " << static_cast<int>(level);
          }
    }
    for (int64_t k : {1, 4, 7, 8, 21}) {
      std::vector<C> x(static_cast<size_t>(k * K::columns)), y = x;
      base.transpose(b.data(), 30, k, x.data());
      kernels::gemm_kernels<C>(cpu_level()).transpose(b.data(), 30, k, y.data());
      EXPECT_EQ(x, y) << k;
    }
  };
  same(0.0f);
  same(0.0);
}

}  // namespace
}  // namespace gradus::ops::test
