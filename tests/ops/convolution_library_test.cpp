// Convolutions that a library computes, against our own in f64.
#include "kernels/libraries/onednn.h"
#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

struct Case {
  Sizes x, w;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  int64_t fewer = 0;  // windows that dy lacks along the last dimension

  LiteralList attributes(const char* name = nullptr) const {
    LiteralList list{ints("stride", stride), ints("padding", padding), ints("dilation", dilation),
                     attribute("groups", groups)};
    const Sizes& of = name && std::string(name) == "size" ? x : w;
    if (name) list.push_back(ints(name, {of.begin() + 2, of.end()}));
    return list;
  }
  Sizes y() const {
    Sizes out{x[0], w[0]};
    for (size_t d = 0; d < stride.size(); ++d)
      out.push_back((x[d + 2] + 2 * padding[d] - dilation[d] * (w[d + 2] - 1) - 1) / stride[d] + 1);
    out.back() -= fewer;
    return out;
  }
};

const Case cases[] = {
    {{8, 16, 14, 15}, {24, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {{5, 3, 20, 20}, {16, 3, 5, 5}, {2, 2}, {2, 2}, {1, 1}},               // few channels
    {{7, 17, 12, 12}, {19, 17, 3, 2}, {2, 1}, {1, 0}, {1, 2}},             // odd sizes
    {{6, 32, 10, 10}, {32, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 32},          // by channel
    {{4, 32, 12, 12}, {48, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},           // groups
    {{9, 32, 11, 13}, {24, 32, 1, 1}, {1, 1}, {0, 0}, {1, 1}},             // matrices
    {{6, 24, 100}, {32, 24, 5}, {1}, {2}, {1}},                            // one dimension
    {{3, 8, 7, 9, 8}, {16, 8, 3, 3, 3}, {1, 2, 1}, {1, 1, 0}, {1, 1, 1}},  // three
    {{8, 16, 14, 15}, {24, 16, 3, 3}, {2, 3}, {1, 1}, {1, 1}, 1, 2},       // windows left out
    {{32, 32, 16, 16}, {48, 32, 3, 3}, {1, 1}, {1, 1}, {1, 1}},            // parts of a batch
    {{4, 128, 7, 7}, {112, 128, 3, 3}, {1, 1}, {1, 1}, {1, 1}},            // more kernel than image
};

Context& workers(int n) {
  static Context one({.workers = 1}), two({.workers = 2}), eight({.workers = 8});
  return n == 1 ? one : n == 2 ? two : eight;
}

std::vector<Tensor> run_all(const Case& c, const Tensor& x, const Tensor& w, const Tensor& dy,
                            int n) {
  auto run = [&](const char* op, const Tensor& a, const Tensor& b, const LiteralList& attributes) {
    const Operator* o = find(op);
    EagerOperand in[]{a, b};
    return evaluate(*o, o->read(attributes), in, workers(n))[0];
  };
  std::vector<Tensor> out{run("convolution_input", dy, w, c.attributes("size")),
                          run("convolution_weight", x, dy, c.attributes("kernel"))};
  if (!c.fewer) out.push_back(run("convolution", x, w, c.attributes()));
  return out;
}

Tensor random(const Sizes& shape, DType dtype, uint64_t seed) {
  return uniform(shape, -1, 1, seed).to(dtype);
}
Tensor magnitude(const Tensor& t) { return run_one("abs", {t.to(DType::f64)}); }

// Whatever the order of the sums: a rounding of f32 for each product, and one of the result's.
void expect_close(const Tensor& got, const Tensor& exact, const Tensor& magnitudes,
                  double products) {
  const double rounding = got.dtype() == DType::bf16 ? 0x1p-8 : 0;
  auto g = got.to_doubles(), e = exact.to_doubles(), m = magnitudes.to_doubles();
  ASSERT_EQ(g.size(), e.size());
  double worst = 0;
  for (size_t i = 0; i < g.size(); ++i)
    worst = std::max(worst, std::abs(g[i] - e[i]) / (2 * products * 0x1p-24 * m[i] +
                                                     rounding * std::abs(e[i]) + 1e-30));
  EXPECT_LE(worst, 1);
}

TEST(ConvolutionLibrary, IsWithinItsBoundForEveryShapeAndLayout) {
  for (const Case& c : cases)
    for (DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(to_string(c.x) + to_string(c.w) + std::string(name_of(dtype)));
      Tensor x = random(c.x, dtype, 1), w = random(c.w, dtype, 2), dy = random(c.y(), dtype, 3);
      auto got = run_all(c, x, w, dy, 1);
      auto exact = run_all(c, x.to(DType::f64), w.to(DType::f64), dy.to(DType::f64), 1);
      auto magnitudes = run_all(c, magnitude(x), magnitude(w), magnitude(dy), 1);
      const double taps = static_cast<double>(numel(c.w)) / static_cast<double>(c.w[0]);
      const double most =
          std::max({taps, static_cast<double>(numel(c.w)) / static_cast<double>(c.w[1]),
                    static_cast<double>(dy.numel()) / static_cast<double>(c.w[0])});
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        expect_close(got[i], exact[i], magnitudes[i], most);
      }
      auto gaps = run_all(c, scattered(x), scattered(w), scattered(dy), 1);
      for (size_t i = 0; i < got.size(); ++i) expect_close(gaps[i], exact[i], magnitudes[i], most);
      // SPEC F6
      for (int n : {1, 2, 8}) {
        auto again = run_all(c, x, w, dy, n);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(bitwise_equal(again[i], got[i])) << i << ", " << n << " workers";
      }
    }
}

#if defined(__x86_64__)
TEST(ConvolutionLibrary, IsThere) {
  kernels::onednn::ConvolutionSizes s;
  s.x = Layout(DType::f32, Sizes{8, 16, 14, 15});
  s.w = Layout(DType::f32, Sizes{24, 16, 3, 3});
  s.y = Layout(DType::f32, Sizes{8, 24, 14, 15});
  s.axes[1] = {14, 14, 3, 1, 1, 1};
  s.axes[2] = {15, 15, 3, 1, 1, 1};
  for (auto direction : {kernels::onednn::Direction::result, kernels::onednn::Direction::image,
                         kernels::onednn::Direction::kernel}) {
    s.direction = direction;
    EXPECT_NE(kernels::onednn::Convolution::make(s), nullptr);
  }
  // Windows that y lacks are no padding that the library knows.
  s.axes[2].windows = 9;
  s.y.shape[3] = 9;
  EXPECT_EQ(kernels::onednn::Convolution::make(s), nullptr);
}
#endif

TEST(ConvolutionLibrary, ReadsExpandedOperands) {
  const Case& c = cases[0];
  auto expanded = [](const Sizes& shape, double v) {
    return run_one("expand", {Tensor::scalar(DType::f32, v)},
                   {ints("shape", std::vector<int64_t>(shape.begin(), shape.end()))});
  };
  Tensor x = random(c.x, DType::f32, 4), w = random(c.w, DType::f32, 5);
  Tensor dy = expanded(c.y(), 0.5);
  auto got = run_all(c, x, w, dy, 2);
  auto exact = run_all(c, x.to(DType::f64), w.to(DType::f64), dy.copy().to(DType::f64), 2);
  auto magnitudes = run_all(c, magnitude(x), magnitude(w), magnitude(dy.copy()), 2);
  for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], exact[i], magnitudes[i], 2000);
}

}  // namespace
}  // namespace gradus::ops::test
