// Products that a library computes: what they give, and that nothing else shows.
#include <filesystem>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "gradus/build.h"
#include "kernels/gemm.h"
#include "kernels/library_product.h"
#include "tests/ops/pointwise_support.h"

extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int);

namespace gradus::ops::test {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16};

Tensor swapped(const Tensor& x) {
  return run_one("transpose", {x},
                 {attribute("dim0", int64_t{-2}), attribute("dim1", int64_t{-1})});
}

// Random in [-1, 1); as it is, transposed in memory, or with gaps between all elements.
enum class Way { plain, transposed, gaps };
Tensor matrix(DType dtype, Sizes shape, Way way, uint64_t seed) {
  Tensor x = uniform(shape, -1, 1, seed).to(dtype);
  if (way == Way::gaps) return scattered(x);
  return way == Way::transposed ? swapped(swapped(x).copy()) : x;
}

Context& workers(int n) {
  static Context one({.workers = 1}), two({.workers = 2}), eight({.workers = 8});
  return n == 1 ? one : n == 2 ? two : eight;
}

work::Gemm sizes_of(const Tensor& a, const Tensor& b) {
  const auto size = [](const Tensor& t, size_t back) { return t.shape()[t.shape().size() - back]; };
  const auto stride = [](const Tensor& t, size_t back) {
    return t.strides()[t.strides().size() - back];
  };
  work::Gemm g;
  g.dtype = a.dtype();
  g.m = size(a, 2);
  g.k = size(a, 1);
  g.n = size(b, 1);
  g.a_row = stride(a, 2);
  g.a_column = stride(a, 1);
  g.b_row = stride(b, 2);
  g.b_column = stride(b, 1);
  for (size_t back = std::max(a.shape().size(), b.shape().size()); back > 2; --back) {
    const auto of = [&](const Tensor& t) {
      const bool varies = back <= t.shape().size() && size(t, back) != 1;
      return std::pair{varies ? size(t, back) : 1, varies ? stride(t, back) : 0};
    };
    const auto [a_size, a_stride] = of(a);
    const auto [b_size, b_stride] = of(b);
    g.batch.push_back({std::max(a_size, b_size), a_stride, b_stride});
  }
  return g;
}

// By a library, also where an operator would keep to our loops; by them where no library takes it.
work::Kernel kernel_of(const work::Gemm& g) {
  const auto kernel = kernels::make_library(g);
  return kernel ? *kernel : kernels::make(work::Product{g});
}

Tensor run(const work::Kernel& kernel, const work::Gemm& g, const Tensor& a, const Tensor& b,
           WorkerPool& workers) {
  Sizes shape;
  for (const work::Gemm::Batch& entry : g.batch) shape.push_back(entry.size);
  shape.push_back(g.m);
  shape.push_back(g.n);
  Tensor y = Tensor::zeros(g.dtype, shape);
  Tensor scratch = Tensor::zeros(DType::u8, Sizes{static_cast<int64_t>(kernel.scratch_bytes)});
  work::KernelScope scope{workers, scratch.mutable_data()};
  std::byte* args[]{const_cast<std::byte*>(a.data()), const_cast<std::byte*>(b.data()),
                    y.mutable_data()};
  kernel.run(kernel.parameters.get(), args, scope);
  return y;
}

Tensor product(const Tensor& a, const Tensor& b, Context& context) {
  const work::Gemm g = sizes_of(a, b);
  return run(kernel_of(g), g, a, b, context.workers());
}

// The exact product within an error of f64's, and the sum of the products' magnitudes.
struct Exact {
  std::vector<double> values, magnitudes;

  Exact(const Tensor& a, const Tensor& b) {
    auto multiply = [](Tensor x, Tensor y) {
      x = x.to(DType::f64).copy();
      y = y.to(DType::f64).copy();
      work::Gemm g = sizes_of(x, y);
      Tensor out = Tensor::zeros(DType::f64, Sizes{g.m, g.n});
      Tensor scratch =
          Tensor::zeros(DType::u8, Sizes{static_cast<int64_t>(kernels::gemm_scratch_bytes(g))});
      kernels::gemm(g, x.data(), y.data(), out.mutable_data(), scratch.mutable_data(),
                    workers(1).workers());
      return out.to_doubles();
    };
    auto magnitude = [](const Tensor& x) { return run_one("abs", {x.to(DType::f64)}); };
    values = multiply(a, b);
    magnitudes = multiply(magnitude(a), magnitude(b));
  }
};

// Whatever the order of the sums: k roundings of the accumulator's unit, and one of the result's.
void expect_close(const Tensor& y, const Exact& exact, int64_t k) {
  const double unit = y.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
  const double rounding = y.dtype() == DType::bf16 ? 0x1p-8 : 0;
  auto got = y.to_doubles();
  ASSERT_EQ(got.size(), exact.values.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double bound = 2 * static_cast<double>(k) * unit * exact.magnitudes[i] +
                   rounding * std::abs(exact.values[i]);
    worst = std::max(worst, std::abs(got[i] - exact.values[i]) / bound);
  }
  EXPECT_LE(worst, 1);
}

TEST(ProductLibrary, IsWithinItsBoundForEveryShapeAndLayout) {
  struct Case {
    int64_t m, n, k;
  };
  for (auto [m, n, k] : {Case{128, 128, 128}, Case{97, 131, 83}, Case{2, 700, 750},
                         Case{700, 2, 750}, Case{530, 1030, 70}, Case{600, 300, 33},
                         Case{200, 250, 210}, Case{40, 1500, 150}, Case{1030, 1030, 3}})
    for (DType dtype : dtypes) {
      const Exact exact(matrix(dtype, Sizes{m, k}, Way::plain, 1),
                        matrix(dtype, Sizes{k, n}, Way::plain, 2));
      for (int way = 0; way < 5; ++way) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{}, way {}", name_of(dtype), m, k, n, way));
        Way first = way == 4 ? Way::gaps : way & 1 ? Way::transposed : Way::plain;
        Way second = way == 4 ? Way::gaps : way & 2 ? Way::transposed : Way::plain;
        Tensor a = matrix(dtype, Sizes{m, k}, first, 1), b = matrix(dtype, Sizes{k, n}, second, 2);
        EXPECT_EQ(work::is_large(sizes_of(a, b)), true);
        // oneDNN has bf16 on some processors only, and no library reads operands with gaps.
        if (dtype != DType::bf16 && way != 4) {
          EXPECT_EQ(kernels::make_library(sizes_of(a, b)).has_value(),
                    has_part(dtype == DType::f64 ? Part::openblas : Part::onednn));
        }
        Tensor y = product(a, b, workers(1));
        expect_close(y, exact, k);
        // SPEC F6
        for (int n_workers : {1, 2, 8})
          EXPECT_TRUE(bitwise_equal(product(a, b, workers(n_workers)), y)) << n_workers;
      }
    }
}

TEST(ProductLibrary, TakesBatches) {
  for (DType dtype : dtypes) {
    Tensor a = matrix(dtype, Sizes{3, 1, 110, 120}, Way::plain, 3),
           b = matrix(dtype, Sizes{2, 120, 90}, Way::transposed, 4);
    Tensor y = product(a, b, workers(1));
    ASSERT_EQ(Sizes(y.shape()), (Sizes{3, 2, 110, 90}));
    auto entry = [](const Tensor& t, int64_t i) {
      return run_one("select", {t}, {attribute("dim", int64_t{0}), attribute("index", i)});
    };
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 2; ++j)
        expect_close(entry(entry(y, i), j), Exact(entry(entry(a, i), 0), entry(b, j)), 120);
    for (int n : {2, 8}) EXPECT_TRUE(bitwise_equal(product(a, b, workers(n)), y)) << n;
  }
}

TEST(ProductLibrary, TakesSmallMatricesTogether) {
  for (DType dtype : dtypes) {
    // Groups of entries, the last of them smaller; one matrix for all of them.
    Tensor a = matrix(dtype, Sizes{9, 110, 100}, Way::transposed, 3),
           b = matrix(dtype, Sizes{9, 100, 99}, Way::plain, 4),
           one = matrix(dtype, Sizes{1, 110, 100}, Way::plain, 5);
    for (const Tensor& first : {a, one}) {
      Tensor y = product(first, b, workers(1));
      ASSERT_EQ(Sizes(y.shape()), (Sizes{9, 110, 99}));
      auto entry = [](const Tensor& t, int64_t i) {
        return run_one(
            "select", {t},
            {attribute("dim", int64_t{0}), attribute("index", t.shape()[0] == 1 ? 0 : i)});
      };
      for (int64_t i = 0; i < 9; ++i)
        expect_close(entry(y, i), Exact(entry(first, i), entry(b, i)), 100);
      for (int n : {2, 8}) EXPECT_TRUE(bitwise_equal(product(first, b, workers(n)), y)) << n;
    }
  }
}

TEST(ProductLibrary, LeavesOverlapsToOurLoops) {
  // One row for all of a, and windows of b that share elements.
  Tensor row = uniform(Sizes{1, 200}, -1, 1, 5).to(DType::f32);
  Tensor a = run_one("expand", {row}, {ints("shape", {150, 200})});
  Tensor line = uniform(Sizes{399}, -1, 1, 6).to(DType::f32);
  Tensor b = run_one("unfold", {line},
                     {attribute("dim", int64_t{0}), attribute("size", int64_t{200}),
                      attribute("step", int64_t{1})});
  expect_close(product(a, b, workers(2)), Exact(a, b), 200);
  expect_close(product(a, swapped(b), workers(2)), Exact(a, swapped(b)), 200);
}

TEST(ProductLibrary, KeepsWhatIsNotFinite) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (DType dtype : dtypes) {
    auto a = uniform(Sizes{128, 128}, 0.5, 1, 7).to_doubles(), b = a;
    a[5] = inf;                // row 0
    a[3 * 128 + 9] = NAN;      // row 3
    b[5 * 128 + 2] = 0;        // inf * 0 in column 2
    b[70 * 128 + 100] = -inf;  // column 100
    Tensor y = product(Tensor::from(dtype, Sizes{128, 128}, a),
                       Tensor::from(dtype, Sizes{128, 128}, b), workers(1));
    for (int64_t i = 0; i < 128; ++i)
      for (int64_t j = 0; j < 128; ++j) {
        double v = y.item(i * 128 + j);
        if (i == 3 || (i == 0 && (j == 2 || j == 100))) {
          EXPECT_TRUE(std::isnan(v)) << i << ", " << j;
        } else if (i == 0) {
          EXPECT_EQ(v, inf) << j;
        } else if (j == 100) {
          EXPECT_EQ(v, -inf) << i;
        } else {
          EXPECT_TRUE(std::isfinite(v)) << i << ", " << j;
        }
      }
  }
}

// On more threads than cores, in parts and beside others, again and again.
TEST(ProductLibrary, KeepsProductsOfManyThreadsApart) {
  for (DType dtype : dtypes) {
    Tensor a = matrix(dtype, Sizes{144, 70}, Way::plain, 10),
           b = matrix(dtype, Sizes{70, 576}, Way::transposed, 11);
    const Tensor want = product(a, b, workers(1));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 24; ++t)
      threads.emplace_back([&] {
        Context two({.workers = 2});
        for (int i = 0; i < 400; ++i) wrong += !bitwise_equal(product(a, b, two), want);
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0) << name_of(dtype);
  }
}

TEST(ProductLibrary, RunsOnManyThreadsAtOnce) {
  for (DType dtype : dtypes) {
    Tensor a = matrix(dtype, Sizes{130, 140}, Way::plain, 8),
           b = matrix(dtype, Sizes{140, 120}, Way::plain, 9);
    // One kernel for all: more threads than it has places.
    const work::Gemm g = sizes_of(a, b);
    const work::Kernel kernel = kernel_of(g);
    auto run_alone = [&] {
      WorkerPool alone(1);
      return run(kernel, g, a, b, alone);
    };
    const Tensor want = run_alone();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 12; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) wrong += !bitwise_equal(run_alone(), want);
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0) << name_of(dtype);
  }
}

int threads_of_process() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++n;
  return n;
}

TEST(ProductLibrary, FormsNoTeam) {
  Tensor a = matrix(DType::f32, Sizes{600, 300}, Way::plain, 10),
         b = matrix(DType::f32, Sizes{300, 310}, Way::plain, 11);
  const int before = omp_get_max_threads(), threads = threads_of_process();
  omp_set_num_threads(5);
  product(a, b, workers(1));
  EXPECT_EQ(omp_get_max_threads(), 5);  // the caller's own setting
  EXPECT_EQ(threads_of_process(), threads);
  omp_set_num_threads(before);
}

// SPEC E15
TEST(ProductLibrary, WorksInAForkedChild) {
  for (DType dtype : dtypes) {
    Tensor a = matrix(dtype, Sizes{600, 300}, Way::plain, 12),
           b = matrix(dtype, Sizes{300, 310}, Way::plain, 13);
    const Tensor want = product(a, b, workers(2));
    pid_t child = fork();
    if (child == 0) {
      alarm(30);
      // Not destroyed: the leak checker knows nothing of the parent's threads.
      auto* fresh = new Context({.workers = 2});
      _exit(bitwise_equal(product(a, b, *fresh), want) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name_of(dtype);
  }
}

}  // namespace
}  // namespace gradus::ops::test
