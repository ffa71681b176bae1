// What reductions and scans give: dtypes, empty and 0-d tensors, NaN, ties, and what they refuse.
#include <cmath>

#include "tests/ops/pointwise_support.h"

namespace gradus::ops::test {
namespace {

constexpr double inf = INFINITY, nan = NAN;

Tensor matrix(std::initializer_list<double> values, int64_t columns, DType dtype = DType::f64) {
  Sizes shape{static_cast<int64_t>(values.size()) / columns, columns};
  return Tensor::from(DType::f64, shape, std::vector<double>(values)).to(dtype);
}
std::vector<double> values(std::string_view op, const Tensor& x, const LiteralList& a = {}) {
  return run_one(op, {x}, a).to_doubles();
}
NamedLiteral dim(int64_t d) { return attribute("dim", d); }
NamedLiteral keep() { return attribute("keepdim", true); }

TEST(Reductions, ReduceChosenDimensions) {
  Tensor x = counting({2, 3, 4});
  expect_same(values("sum", x, {ints("dim", {0, 2})}), {60, 92, 124});
  EXPECT_EQ(Sizes(run_one("sum", {x}, {ints("dim", {-1, 0}), keep()}).shape()), (Sizes{1, 3, 1}));
  expect_same(values("sum", x), {276});
  expect_same(values("sum", x, {ints("dim", {})}), {276});
  expect_same(values("mean", x, {dim(1)}), {4, 5, 6, 7, 16, 17, 18, 19});
  expect_same(values("prod", x, {dim(0)}), {0, 13, 28, 45, 64, 85, 108, 133, 160, 189, 220, 253});
  expect_same(values("amax", x, {ints("dim", {0, 1})}), {20, 21, 22, 23});
  expect_same(values("amin", x, {ints("dim", {1, 2})}), {0, 12});
  expect_same(values("max_all", x), {23});
  expect_same(values("min_all", x), {0});
  expect_same(values("var", x, {ints("dim", {2})}), std::vector<double>(6, 5.0 / 3));
  expect_same(values("std", x, {ints("dim", {0}), attribute("correction", int64_t{0})}),
              std::vector<double>(12, 6));
}

TEST(Reductions, HaveTheDtypesOfATen) {
  auto f = [](std::string_view op, DType d) { return types_of(op, {Type(d, {2, 3})}); };
  for (auto op : {"sum", "prod"}) {
    EXPECT_EQ(f(op, DType::boolean), "i64[]");
    EXPECT_EQ(f(op, DType::u8), "i64[]");
    EXPECT_EQ(f(op, DType::bf16), "bf16[]");
  }
  EXPECT_EQ(f("amax", DType::i8), "i8[]");
  EXPECT_EQ(f("all", DType::f32), "bool[]");
  EXPECT_EQ(f("argmax", DType::u8), "i64[]");
  EXPECT_EQ(f("logsumexp", DType::i64), "f32[]");
  EXPECT_EQ(types_of("max_dim", {Type(DType::i32, {Dim::symbol("N"), 3})}, {dim(-1)}),
            "i32[N] i64[N]");
  EXPECT_EQ(types_of("mean", {Type(DType::f16, {Dim::symbol("N"), 3})}, {dim(0), keep()}),
            "f16[1, 3]");
  // 16-bit floats add up in f32: 4096 ones would stop at 256 in bf16.
  Tensor ones =
      run_one("full", {},
              {ints("shape", {4097}), attribute("value", 1.0), attribute("dtype", DType::bf16)});
  EXPECT_EQ(run_one("sum", {ones}).item(), 4096);
  EXPECT_EQ(run_one("mean", {ones}).item(), 1);
  Tensor large = run_one("mul", {ones.to(DType::f16), number(20000)});
  EXPECT_EQ(run_one("mean", {large}).item(), 20000);
  EXPECT_EQ(run_one("norm", {run_one("slice", {large}, {attribute("end", int64_t{4})})}).item(),
            40000);
  // Integers wrap, as ATen's do.
  Tensor most =
      run_one("full", {},
              {ints("shape", {2}), attribute("value", INT64_MAX), attribute("dtype", DType::i64)});
  EXPECT_EQ(run_one("sum", {most}).to_int64s()[0], -2);
}

TEST(Reductions, OfEveryDtypeAndLayout) {
  Tensor x = random_tensor({3, 5, 4}, 4);
  for (auto op : {"sum", "amax", "amin", "any", "all"})
    for (int64_t d : {0, 1, 2}) expect_all_layouts(op, {x}, {dim(d)}, false);
  for (DType d : {DType::i64, DType::i32, DType::i8, DType::u8, DType::boolean, DType::f16}) {
    Tensor y = matrix({1, 0, 3, 1, 1, 0}, 3, d);
    bool b = d == DType::boolean;
    expect_same(values("sum", y, {dim(1)}), {b ? 2.0 : 4, 2});
    expect_same(values("prod", y, {dim(0)}), {1, 0, 0});
    expect_same(values("amax", y, {dim(1)}), {b ? 1.0 : 3, 1});
    expect_same(values("any", y, {dim(0)}), {1, 1, 1});
    expect_same(values("all", y, {dim(0)}), {1, 0, 0});
    if (!b) expect_same(values("cumsum", y, {dim(1)}), {1, 1, 4, 1, 2, 2});
  }
}

TEST(Reductions, OfNothing) {
  Tensor x = Tensor::zeros(DType::f64, Sizes{0, 3});
  expect_same(values("sum", x, {dim(0)}), {0, 0, 0});
  expect_same(values("prod", x, {dim(0)}), {1, 1, 1});
  expect_same(values("mean", x, {dim(0)}), {nan, nan, nan});
  expect_same(values("var", x, {dim(0)}), {nan, nan, nan});
  expect_same(values("logsumexp", x, {dim(0)}), {-inf, -inf, -inf});
  expect_same(values("norm", x, {dim(0)}), {0, 0, 0});
  expect_same(values("all", x), {1});
  expect_same(values("any", x), {0});
  EXPECT_EQ(run_one("amax", {x}, {dim(1)}).numel(), 0);
  for (auto op : {"amax", "amin", "argmax", "argmin", "max_dim", "min_dim"}) {
    EXPECT_NE(error_of([&] { run_one(op, {x}, {dim(0)}); }).find("no elements to choose from"),
              std::string::npos);
    // Where only the run knows the size.
    EXPECT_FALSE(types_of(op, {Type(DType::f64, {Dim::symbol("N"), 3})}, {dim(0)}).empty());
  }
  EXPECT_NE(error_of([&] { run_one("max_all", {x}); }), "");
}

TEST(Reductions, OfOneElement) {
  Tensor x = Tensor::scalar(DType::f64, -3);
  for (auto op : {"sum", "mean", "prod", "logsumexp", "max_all", "min_all"})
    EXPECT_EQ(run_one(op, {x}).item(), -3) << op;
  EXPECT_EQ(run_one("amax", {x}, {dim(-1)}).item(), -3);
  EXPECT_EQ(run_one("argmax", {x}).item(), 0);
  EXPECT_EQ(run_one("norm", {x}).item(), 3);
  EXPECT_TRUE(std::isnan(run_one("var", {x}).item()));
  EXPECT_EQ(run_one("cumsum", {x}, {dim(0)}).item(), -3);
}

TEST(Reductions, RefuseWhatTheyCannotDo) {
  Tensor x = counting({2, 3});
  auto refused = [&](std::string_view op, const Tensor& t, const LiteralList& a, const char* why) {
    std::string message = error_of([&] { run_one(op, {t}, a); });
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_NE(message.find(op), std::string::npos) << message;
  };
  for (auto op : {"sum", "mean", "amax", "var", "logsumexp", "norm", "cumsum", "max_dim"})
    refused(op, x, {dim(2)}, "out of range");
  for (auto op : {"sum", "var", "norm"}) refused(op, x, {ints("dim", {1, -1})}, "given twice");
  for (auto op : {"mean", "var", "std", "norm", "logcumsumexp"})
    refused(op, x.to(DType::i64),
            op == std::string_view("logcumsumexp") ? LiteralList{dim(0)} : LiteralList{},
            "floating");
  refused("norm", x, {attribute("p", NAN)}, "NaN");
}

TEST(Extrema, TakeTheFirstOfEqualOnesAndNaNFirst) {
  Tensor x = matrix({1, 3, 3, 2, 5, nan, 7, nan, 2, 2, 2, 2, -inf, -inf, -inf, -inf}, 4);
  for (DType d : {DType::f64, DType::f32, DType::bf16})
    for (bool across : {false, true}) {
      Tensor t = x.to(d);
      if (across)
        t = run_one("transpose", {t},
                    {attribute("dim0", int64_t{0}), attribute("dim1", int64_t{1})});
      int64_t over = across ? 0 : 1;
      auto most = evaluate("max_dim", {t}, {dim(over)}),
           least = evaluate("min_dim", {t}, {dim(over)});
      expect_same(most[0].to_doubles(), {3, nan, 2, -inf});
      expect_same(most[1].to_doubles(), {1, 1, 0, 0});
      expect_same(least[0].to_doubles(), {1, nan, 2, -inf});
      expect_same(least[1].to_doubles(), {0, 1, 0, 0});
      expect_same(values("argmax", t, {dim(over)}), {1, 1, 0, 0});
    }
  expect_same(values("argmax", x), {5});
  expect_same(values("argmin", matrix({3, 1, 2, 1}, 2)), {1});
  expect_same(values("argmax", matrix({3, 1, 7, 1}, 2, DType::u8)), {2});
}

TEST(Extrema, AreFoundFarIn) {
  for (int64_t n : {1500, 5000}) {
    for (int64_t at : {int64_t{0}, int64_t{1023}, int64_t{1024}, n - 1}) {
      Tensor x = Tensor::zeros(DType::f32, Sizes{2, n});
      x.mutable_data_as<float>()[n + at] = 5;
      expect_same(values("argmax", x, {dim(1)}), {0, static_cast<double>(at)});
      expect_same(values("argmax", x), {static_cast<double>(n + at)});
      expect_same(evaluate("max_dim", {scattered(x)}, {dim(1)})[1].to_doubles(),
                  {0, static_cast<double>(at)});
      x.mutable_data_as<float>()[at] = NAN;
      expect_same(values("argmin", x, {dim(1)}), {static_cast<double>(at), at == 0 ? 1.0 : 0.0});
    }
  }
}

TEST(Norms, OfEveryOrder) {
  Tensor x = matrix({3, -4, 0, 0, 0, 0, nan, 1, 2, inf, -1, 0}, 3);
  auto norm = [&](double p) { return values("norm", x, {attribute("p", p), dim(1)}); };
  expect_same(norm(0), {2, 0, 3, 2});
  expect_same(norm(1), {7, 0, nan, inf});
  expect_same(norm(2), {5, 0, nan, inf});
  expect_same(norm(inf), {4, 0, nan, inf});
  expect_same(norm(-inf), {0, 0, nan, 0});
  EXPECT_NEAR(norm(3)[0], std::cbrt(91.0), 1e-15);
  EXPECT_NEAR(norm(0.5)[0], std::pow(std::sqrt(3.0) + 2, 2), 1e-14);
}

TEST(LogSumExp, NeitherOverflowsNorLosesInfinities) {
  Tensor x = matrix({-inf, -inf, inf, 0, 1000, 1000, -1000, -1001, nan, 0}, 2);
  auto y = values("logsumexp", x, {dim(1)});
  EXPECT_EQ(y[0], -inf);
  EXPECT_EQ(y[1], inf);
  EXPECT_NEAR(y[2], 1000 + std::log(2), 1e-12);
  EXPECT_NEAR(y[3], -1000 + std::log1p(std::exp(-1)), 1e-12);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST(Scans, RunBothWaysInclusiveAndExclusive) {
  Tensor x = matrix({1, 2, 3, 4, 5, 6}, 3);
  auto scan = [&](const char* op, int64_t d, bool exclusive, bool reverse) {
    LiteralList a{dim(d), attribute("exclusive", exclusive), attribute("reverse", reverse)};
    auto y = values(op, x, a);
    expect_same(values(op, scattered(x), a), y);
    return y;
  };
  expect_same(scan("cumsum", 1, false, false), {1, 3, 6, 4, 9, 15});
  expect_same(scan("cumsum", 1, true, false), {0, 1, 3, 0, 4, 9});
  expect_same(scan("cumsum", 1, false, true), {6, 5, 3, 15, 11, 6});
  expect_same(scan("cumsum", 1, true, true), {5, 3, 0, 11, 6, 0});
  expect_same(scan("cumsum", 0, false, false), {1, 2, 3, 5, 7, 9});
  expect_same(scan("cumprod", 1, false, false), {1, 2, 6, 4, 20, 120});
  expect_same(scan("cumprod", 0, true, true), {4, 5, 6, 1, 1, 1});
  expect_same(values("cumsum", matrix({1, inf, -inf, 1}, 4), {dim(1)}), {1, inf, nan, nan});
  Tensor y = run_one("linear_recurrence",
                     {x, run_one("full", {},
                                 {ints("shape", {2, 3}), attribute("value", 1.0),
                                  attribute("dtype", DType::f64)})},
                     {dim(1)});
  expect_same(y.to_doubles(), {0, 1, 3, 0, 1, 6});
}

TEST(Scans, OfLongRowsAndManyColumns) {
  for (int64_t n : {255, 256, 257, 600})
    for (bool across : {false, true})
      for (bool reverse : {false, true}) {
        Sizes shape = across ? Sizes{n, 300} : Sizes{3, n};
        Tensor x = run_one("full", {},
                           {{"shape", Literal::list(shape), {}},
                            attribute("value", 1.0),
                            attribute("dtype", DType::f32)});
        Tensor y = run_one("cumsum", {x}, {dim(across ? 0 : 1), attribute("reverse", reverse)});
        auto got = y.to_doubles();
        for (int64_t r = 0; r < shape[0]; ++r)
          for (int64_t c = 0; c < shape[1]; ++c) {
            int64_t i = across ? r : c;
            ASSERT_EQ(got[static_cast<size_t>(r * shape[1] + c)],
                      static_cast<double>(reverse ? n - i : i + 1));
          }
      }
}

TEST(Scans, GreatestSoFar) {
  auto y = evaluate("cummax", {matrix({1, 3, 3, 2, nan, 4, nan, 0}, 8)}, {dim(1)});
  expect_same(y[0].to_doubles(), {1, 3, 3, 3, nan, nan, nan, nan});
  expect_same(y[1].to_doubles(), {0, 1, 2, 2, 4, 4, 6, 6});
  auto z = values("logcumsumexp", matrix({-inf, 0, 0, 1000, inf, 1}, 6), {dim(1)});
  EXPECT_EQ(z[0], -inf);
  EXPECT_NEAR(z[2], std::log(2), 1e-15);
  expect_same({z[3], z[4], z[5]}, {1000, inf, inf});
}

}  // namespace
}  // namespace gradus::ops::test
