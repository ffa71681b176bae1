// Convolutions against the sums that define them, whatever the sizes, layouts, dtypes and workers.
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

struct Sizes3 {
  int64_t batch, channels, outputs, groups;
  std::array<int64_t, 3> image, kernel, stride, padding, dilation;
  int spatial = 2;  // the last of the three

  int64_t windows(int d) const {
    return (image[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  }
  Sizes shape(int64_t a, int64_t b, const std::array<int64_t, 3>& s) const {
    Sizes out{a, b};
    for (int d = 3 - spatial; d < 3; ++d) out.push_back(s[d]);
    return out;
  }
  int64_t products() const { return numel(y()) * numel(w()) / outputs; }
  Sizes x() const { return shape(batch, channels, image); }
  Sizes w() const { return shape(outputs, channels / groups, kernel); }
  Sizes y() const { return shape(batch, outputs, {windows(0), windows(1), windows(2)}); }

  LiteralList attributes(const char* sizes = nullptr) const {
    auto last = [&](const std::array<int64_t, 3>& s) {
      return std::vector<int64_t>(s.end() - spatial, s.end());
    };
    LiteralList list{ints("stride", last(stride)), ints("padding", last(padding)),
                     ints("dilation", last(dilation)), attribute("groups", groups)};
    if (sizes) list.push_back(ints(sizes, last(std::string(sizes) == "size" ? image : kernel)));
    return list;
  }

  // Calls f(index into x, index into w, index into y) for every product of the definition.
  template <class F>
  void for_each_product(F f) const {
    const int64_t each = channels / groups, per_group = outputs / groups;
    int64_t y = 0;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t i = 0; i < windows(0); ++i)
          for (int64_t j = 0; j < windows(1); ++j)
            for (int64_t k = 0; k < windows(2); ++k, ++y)
              for (int64_t c = 0; c < each; ++c)
                for (int64_t p = 0; p < kernel[0]; ++p)
                  for (int64_t q = 0; q < kernel[1]; ++q)
                    for (int64_t r = 0; r < kernel[2]; ++r) {
                      int64_t a = i * stride[0] - padding[0] + p * dilation[0];
                      int64_t b = j * stride[1] - padding[1] + q * dilation[1];
                      int64_t d = k * stride[2] - padding[2] + r * dilation[2];
                      if (a < 0 || a >= image[0] || b < 0 || b >= image[1] || d < 0 ||
                          d >= image[2])
                        continue;
                      int64_t channel = o / per_group * each + c;
                      f((((n * channels + channel) * image[0] + a) * image[1] + b) * image[2] + d,
                        (((o * each + c) * kernel[0] + p) * kernel[1] + q) * kernel[2] + r, y);
                    }
  }
};

const Sizes3 shapes[] = {
    {1, 1, 1, 1, {1, 1, 3}, {1, 1, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1},
    {2, 4, 6, 2, {1, 1, 9}, {1, 1, 3}, {1, 1, 2}, {0, 0, 2}, {1, 1, 3}, 1},
    {2, 3, 4, 1, {1, 5, 6}, {1, 3, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {1, 4, 4, 4, {1, 6, 5}, {1, 3, 3}, {1, 2, 3}, {0, 1, 2}, {1, 1, 2}},
    {3, 2, 5, 1, {1, 7, 7}, {1, 2, 3}, {1, 4, 5}, {0, 3, 0}, {1, 2, 1}},  // strides leave gaps
    {2, 5, 3, 1, {1, 4, 6}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},  // read in place
    {2, 5, 3, 1, {1, 4, 6}, {1, 1, 1}, {1, 2, 1}, {0, 0, 1}, {1, 1, 1}},
    {2, 2, 3, 1, {4, 3, 5}, {2, 1, 3}, {2, 1, 1}, {1, 0, 2}, {1, 1, 2}, 3},
    {0, 2, 3, 1, {1, 4, 4}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 64, 3, 1, {1, 22, 23}, {1, 3, 3}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},      // tiles, chunks
    {40, 2, 2, 1, {1, 9, 8}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},        // parts of a batch
    {1, 2, 2, 2, {1, 1, 9000}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}, {1, 1, 1}, 1},   // the widest tiles
    {1, 16, 9, 1, {1, 70, 60}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},      // tiles of rows
    {1, 6, 8, 1, {4, 64, 66}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, 3},    // of depths
    {1, 8, 8, 1, {1, 1, 30000}, {1, 1, 7}, {1, 1, 3}, {0, 0, 3}, {1, 1, 2}, 1},  // of a row
    {2, 40, 40, 1, {1, 2, 2}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},  // copies for each tap
    {1, 8, 48, 1, {1, 8, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},   // a row at a time
};

struct Operands {
  Tensor x, w, dy;
  explicit Operands(const Sizes3& s, DType dtype = DType::f64)
      : x(random_tensor(s.x(), 1, dtype)),
        w(random_tensor(s.w(), 2, dtype)),
        dy(random_tensor(s.y(), 3, dtype)) {}
};

// The three operators on one set of operands, in a context.
std::vector<Tensor> run_all(const Sizes3& s, const Tensor& x, const Tensor& w, const Tensor& dy,
                            Context& context) {
  auto run = [&](const char* op, const Tensor& a, const Tensor& b, const LiteralList& attributes) {
    const Operator* o = find(op);
    std::vector<EagerOperand> in{a, b};
    return evaluate(*o, o->read(attributes), in, context)[0];
  };
  return {run("convolution", x, w, s.attributes()),
          run("convolution_input", dy, w, s.attributes("size")),
          run("convolution_weight", x, dy, s.attributes("kernel"))};
}

TEST(Convolution, IsTheSumThatDefinesIt) {
  for (const Sizes3& s : shapes) {
    SCOPED_TRACE(to_string(s.x()) + to_string(s.w()));
    Operands in(s);
    auto x = in.x.to_doubles(), w = in.w.to_doubles(), dy = in.dy.to_doubles();
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    s.for_each_product([&](int64_t i, int64_t j, int64_t k) {
      y[k] += x[i] * w[j];
      dx[i] += dy[k] * w[j];
      dw[j] += dy[k] * x[i];
    });
    auto got = run_all(s, in.x, in.w, in.dy, *Context::default_context());
    // The operands are small halves: every order of adding up is exact.
    EXPECT_EQ(got[0].to_doubles(), y);
    EXPECT_EQ(got[1].to_doubles(), dx);
    EXPECT_EQ(got[2].to_doubles(), dw);
  }
}

// Values that round, so that an order shows.
Tensor uneven(const Tensor& t, DType dtype) {
  auto v = t.to_doubles();
  for (double& x : v) x = x / 7 + x * x * 1e-3;
  return Tensor::from(DType::f64, t.shape(), v).to(dtype);
}

// SPEC F6
TEST(Convolution, HasTheSameBitsForAnyWorkersAndLayouts) {
  static Context one({.workers = 1}), three({.workers = 3});
  for (const Sizes3& s : shapes) {
    SCOPED_TRACE(to_string(s.x()) + to_string(s.w()));
    Operands in(s);
    for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Tensor x = uneven(in.x, dtype), w = uneven(in.w, dtype), dy = uneven(in.dy, dtype);
      auto want = run_all(s, x, w, dy, one), split = run_all(s, x, w, dy, three);
      auto gaps = run_all(s, scattered(x), scattered(w), scattered(dy), three);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(bitwise_equal(split[i], want[i])) << i << name_of(dtype);
        // A library has other loops for other layouts of volumes.
        const bool library = s.spatial == 3 && s.products() > 1 << 17 && dtype != DType::f64;
        EXPECT_TRUE(library || bitwise_equal(gaps[i], want[i])) << i << name_of(dtype);
      }
    }
  }
}

TEST(Convolution, RoundsSmallFloatsOnce) {
  for (const Sizes3& s : shapes) {
    SCOPED_TRACE(to_string(s.x()) + to_string(s.w()));
    Operands in(s);
    for (DType dtype : {DType::f16, DType::bf16}) {
      // In f32 and bf16 large ones are a library's: tests/ops/convolution_library_test.cpp.
      if (s.products() > 1 << 17) continue;
      Tensor x = uneven(in.x, dtype), w = uneven(in.w, dtype), dy = uneven(in.dy, dtype);
      Context& context = *Context::default_context();
      auto got = run_all(s, x, w, dy, context);
      auto wide = run_all(s, x.to(DType::f32), w.to(DType::f32), dy.to(DType::f32), context);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(bitwise_equal(got[i], wide[i].to(dtype))) << i << name_of(dtype);
    }
  }
}

TEST(Convolution, ReadsExpandedGradients) {
  const Sizes3& s = shapes[3];
  Operands in(s);
  const Sizes y = s.y();
  Tensor one = run_one("expand", {Tensor::scalar(DType::f64, 2)},
                       {ints("shape", std::vector<int64_t>(y.begin(), y.end()))});
  Tensor dense = run_one("clone", {one});
  Context& context = *Context::default_context();
  auto want = run_all(s, in.x, in.w, dense, context), got = run_all(s, in.x, in.w, one, context);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(bitwise_equal(got[i], want[i])) << i;
}

TEST(Convolution, Derivatives) {
  for (const Sizes3& s : shapes) {
    if (numel(s.x()) > 400) continue;
    Operands in(s);
    expect_derivatives("convolution", {in.x, in.w}, s.attributes());
    expect_derivatives("convolution_input", {in.dy, in.w}, s.attributes("size"));
    expect_derivatives("convolution_weight", {in.x, in.dy}, s.attributes("kernel"));
  }
}

const Dim N = Dim::symbol("N"), M = Dim::symbol("M");
Type of(Dims dims, DType dtype = DType::f32) { return Type(dtype, std::move(dims)); }

TEST(Convolution, Types) {
  EXPECT_EQ(types_of("conv1d", {of({N, 4, M}), of({6, 2, 3}), of({6})},
                     {attribute("groups", 2), attribute("padding", 1)}),
            "f32[N, 6, M]");
  EXPECT_EQ(types_of("conv2d", {of({3, 8, M}), of({5, 3, 2, 1})}, {ints("stride", {2, 1})}),
            "f32[5, 4, M]");
  EXPECT_EQ(types_of("conv_transpose2d", {of({N, 3, 4, 4}), of({3, 2, 2, 2})},
                     {attribute("stride", 2), attribute("groups", 3)}),
            "f32[N, 6, 8, 8]");
  EXPECT_EQ(types_of("conv1d", {of({N, M, 4}), of({6, 3, 3})}), "f32[N, 6, 2] if M == 3");
}

std::string refusal(std::string_view op, std::vector<Type> operands,
                    const LiteralList& attributes = {}) {
  return error_of([&] { types_of(op, operands, attributes); });
}

// SPEC P5
TEST(Convolution, SaysWhatIsWrong) {
  auto contains = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  contains(refusal("conv1d", {of({1, 3, 8}), of({2, 4, 3})}), "sizes 3 and 4 differ");
  contains(refusal("conv1d", {of({1, 3, 2}), of({2, 3, 3})}), "larger than the image");
  contains(refusal("conv1d", {of({1, 4, 8}), of({3, 2, 3})}, {attribute("groups", 2)}),
           "'groups' is 2, which does not divide the 3");
  contains(refusal("conv2d", {of({1, 3, 8}), of({2, 3, 3})}), "operand 'w'");
  contains(refusal("conv1d", {of({1, 3, 8}), of({2, 3, 3}, DType::f64)}), "one floating dtype");
  contains(refusal("conv1d", {of({1, 3, 8}, DType::i64), of({2, 3, 3})}), "floating dtype");
  contains(refusal("conv1d", {of({1, 3, 8}), of({2, 3, 3}), of({3})}), "sizes 3 and 2 differ");
  contains(refusal("conv1d", {of({1, 3, 8}), of({2, 3, 3})}, {attribute("stride", 0)}),
           "'stride' is 0");
  contains(refusal("conv1d", {of({1, 3, 8}), of({2, 3, 3})}, {ints("dilation", {1, 1})}),
           "'dilation' lists 2 numbers");
  contains(
      refusal("conv_transpose1d", {of({1, 2, 8}), of({2, 3, 3})}, {attribute("output_padding", 1)}),
      "less than the stride");
  contains(refusal("conv_transpose1d", {of({1, 2, 1}), of({2, 3, 1})}, {attribute("padding", 3)}),
           "leave nothing");
  contains(refusal("convolution_input", {of({1, 2, 9}), of({2, 3, 3})}, {ints("size", {10})}),
           "8 fit");
  contains(refusal("convolution_weight", {of({1, 3, 8}), of({2, 2, 6})}, {ints("kernel", {3})}),
           "sizes 1 and 2 differ");
}

}  // namespace
}  // namespace gradus::ops::test
