// Reductions keep the order that work/reduce.h promises, to the bit, whatever the layout, the
// dtype, the number of workers and the way the kernel takes.
// SPEC F6
#include <cmath>
#include <functional>

#include "gradus/convert.h"
#include "kernels/reduce_loops.h"
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

// The order, written as it is told: recursive, without blocks or vectors.
template <class C>
C reduce_in_order(const std::vector<C>& x, C identity, const std::function<C(C, C)>& combine) {
  std::vector<C> partials;
  for (size_t first = 0; first < x.size(); first += 1024) {
    std::vector<C> lane(16, identity);
    for (size_t r = first; r < std::min(x.size(), first + 1024); ++r)
      lane[r % 16] = combine(lane[r % 16], x[r]);
    for (size_t w = 8; w > 0; w /= 2)
      for (size_t l = 0; l < w; ++l) lane[l] = combine(lane[l], lane[l + w]);
    partials.push_back(lane[0]);
  }
  if (partials.empty()) return identity;
  while (partials.size() > 1) {
    std::vector<C> next;
    for (size_t i = 0; i < partials.size(); i += 2)
      next.push_back(i + 1 < partials.size() ? combine(partials[i], partials[i + 1]) : partials[i]);
    partials = next;
  }
  return partials[0];
}

// Values of many magnitudes, so that every order has other bits.
Tensor spread(std::span<const int64_t> shape, uint64_t seed, DType dtype) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> value;
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& v : values) v = std::ldexp(value(generator), static_cast<int>(generator() % 12));
  return Tensor::from(DType::f64, shape, values).to(dtype);
}

// Sums over `dims` of a tensor of three dimensions, element by element in order.
template <class T, class C>
std::vector<T> sums(const Tensor& x, const std::vector<int64_t>& dims) {
  Tensor dense = x.contiguous();
  const T* data = dense.data_as<T>();
  auto reduced = [&](int64_t d) { return std::count(dims.begin(), dims.end(), d) > 0; };
  std::map<std::vector<int64_t>, std::vector<C>> groups;
  for (int64_t i = 0; i < dense.shape()[0]; ++i)
    for (int64_t j = 0; j < dense.shape()[1]; ++j)
      for (int64_t k = 0; k < dense.shape()[2]; ++k) {
        std::vector<int64_t> key{reduced(0) ? 0 : i, reduced(1) ? 0 : j, reduced(2) ? 0 : k};
        groups[key].push_back(convert<C>(data[(i * dense.shape()[1] + j) * dense.shape()[2] + k]));
      }
  std::vector<T> out;
  for (auto& [key, values] : groups)
    out.push_back(convert<T>(
        reduce_in_order<C>(values, C(0), [](C a, C b) { return static_cast<C>(a + b); })));
  return out;
}

std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<Tensor> all{x, scattered(x)};
  for (std::vector<int64_t> order : {std::vector<int64_t>{2, 0, 1}, {1, 2, 0}, {0, 2, 1}}) {
    std::vector<int64_t> back(3);
    for (size_t d = 0; d < 3; ++d) back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
    Tensor laid = run_one("permute", {x}, {ints("dims", order)}).copy();
    all.push_back(run_one("permute", {laid}, {ints("dims", back)}));
  }
  // A part of something larger: neighbouring dimensions do not join.
  Tensor wider = run_one("cat", {x, x, x}, {attribute("dim", int64_t{1})});
  int64_t n = x.shape()[1];
  all.push_back(
      run_one("slice", {wider},
              {attribute("dim", int64_t{1}), attribute("start", n), attribute("end", 2 * n)}));
  return all;
}

template <class T, class C>
void expect_order(std::initializer_list<int64_t> shape, DType dtype) {
  Context one({.workers = 1}), three({.workers = 3});
  Tensor x = spread(Sizes(shape), 5, dtype);
  const Operator* op = find("sum");
  for (std::vector<int64_t> dims :
       std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
    std::vector<T> want = sums<T, C>(x, dims);
    int l = 0;
    for (const Tensor& laid : layouts(x)) {
      for (Context* context : {&one, &three}) {
        EagerOperand operand = laid;
        Tensor y = evaluate(*op, op->read({ints("dim", dims)}), {&operand, 1}, *context)[0];
        ASSERT_EQ(static_cast<size_t>(y.numel()), want.size());
        EXPECT_EQ(std::memcmp(y.data(), want.data(), want.size() * sizeof(T)), 0)
            << name_of(dtype) << " " << to_string(x.shape()) << " over " << to_string(dims)
            << ", layout " << l << ", " << context->workers().workers() << " workers";
      }
      ++l;
    }
  }
}

TEST(ReductionOrder, HoldsForEveryLayoutAndWorker) {
  expect_order<float, float>({3, 17, 5}, DType::f32);
  expect_order<float, float>({1, 1, 1}, DType::f32);
  expect_order<float, float>({2, 15, 33}, DType::f32);
  expect_order<double, double>({7, 130, 19}, DType::f64);
  expect_order<Half, float>({5, 20, 70}, DType::f16);
  expect_order<BFloat16, float>({40, 3, 20}, DType::bf16);
}

TEST(ReductionOrder, HoldsAtTheEdgesOfChunks) {
  for (int64_t n : {1023, 1024, 1025, 2048, 3071, 5121}) {
    expect_order<float, float>({1, n, 1}, DType::f32);
    expect_order<float, float>({2, n, 3}, DType::f32);
  }
}

TEST(ReductionOrder, HoldsWhereTheReducedSpaceIsSplitOverWorkers) {
  expect_order<float, float>({1, 65536, 1}, DType::f32);
  expect_order<float, float>({2, 70000, 2}, DType::f32);
  expect_order<double, double>({1, 200001, 1}, DType::f64);
  expect_order<float, float>({260, 2, 270}, DType::f32);
}

TEST(ReductionOrder, IsThatOfProductsToo) {
  Tensor x = spread(Sizes{3000}, 8, DType::f64);
  for (double& v : std::span(x.mutable_data_as<double>(), 3000)) v = 1 + v * 1e-5;
  std::vector<double> values = x.to_doubles();
  double want = reduce_in_order<double>(values, 1, [](double a, double b) { return a * b; });
  EXPECT_EQ(run_one("prod", {x}).item(), want);
  EXPECT_EQ(run_one("prod", {scattered(x)}).item(), want);
}

TEST(ReductionOrder, LeavesNoTraceOfSplittingExtrema) {
  // Signed zeros and a NaN show which of equal elements was kept.
  for (int64_t n : {1, 5, 40, 1030, 140000}) {
    Tensor x = Tensor::zeros(DType::f32, Sizes{n});
    float* data = x.mutable_data_as<float>();
    for (int64_t i = 0; i < n; ++i) data[i] = i % 3 ? -0.0f : 0.0f;
    std::vector<float> values(data, data + n);
    auto greater = [](float a, float b) { return b > a || b != b ? b : a; };
    float want = reduce_in_order<float>(values, -INFINITY, greater);
    Tensor y = run_one("amax", {x}), z = run_one("amax", {scattered(x)});
    EXPECT_EQ(std::signbit(y.item()), std::signbit(want)) << n;
    EXPECT_TRUE(bitwise_equal(y, z)) << n;
    data[n / 2] = NAN;
    EXPECT_TRUE(std::isnan(run_one("amax", {x}).item())) << n;
    EXPECT_TRUE(std::isnan(run_one("amin", {scattered(x)}).item())) << n;
  }
}

}  // namespace
}  // namespace gradus::ops::test
