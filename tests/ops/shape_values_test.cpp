// Values, types and views of the operators that move elements.
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

using ::testing::Test;

std::vector<double> values(std::string_view op, std::initializer_list<EagerOperand> operands,
                           const LiteralList& attributes = {}) {
  return run_one(op, operands, attributes).to_doubles();
}
using Doubles = std::vector<double>;
const Dim N = Dim::symbol("N"), M = Dim::symbol("M");
Type f64_of(Dims dims) { return Type(DType::f64, std::move(dims)); }

bool shares(const Tensor& a, const Tensor& b) { return a.storage().get() == b.storage().get(); }

TEST(ShapeValues, ViewsWhereStridesAllow) {
  Tensor x = counting({2, 3, 4});
  EXPECT_TRUE(shares(run_one("reshape", {x}, {ints("shape", {6, 4})}), x));
  Tensor turned = run_one("transpose", {x}, {attribute("dim0", 0), attribute("dim1", 2)});
  EXPECT_TRUE(shares(turned, x));
  EXPECT_TRUE(shares(run_one("reshape", {turned}, {ints("shape", {4, 3, 1, 2})}), x));
  Tensor copied = run_one("reshape", {turned}, {ints("shape", {4, 6})});
  EXPECT_FALSE(shares(copied, x));
  EXPECT_TRUE(bitwise_equal(copied, turned.contiguous().view(Layout(DType::f64, {4, 6}), 0)));
  EXPECT_TRUE(shares(run_one("contiguous", {x}), x));
  EXPECT_FALSE(shares(run_one("contiguous", {turned}), x));
  EXPECT_FALSE(shares(run_one("clone", {x}), x));
  EXPECT_TRUE(shares(run_one("slice", {x}, {attribute("dim", 1), attribute("start", 1)}), x));
  EXPECT_TRUE(shares(run_one("pad", {x}, {ints("pad", {-1, -1, 0, -1})}), x));
  EXPECT_FALSE(shares(run_one("flip", {x}, {ints("dims", {0})}), x));
}

TEST(ShapeValues, Reshape) {
  EXPECT_EQ(types_of("reshape", {f64_of({2, 6})}, {ints("shape", {3, -1})}), "f64[3, 4]");
  EXPECT_EQ(types_of("reshape", {f64_of({N, 6})}, {ints("shape", {-1, 2})}), "f64[3*N, 2]");
  LiteralList split{attribute("shape", std::vector<Literal>{N, -1, 2})};
  EXPECT_EQ(types_of("reshape", {f64_of({N, M, 2})}, split), "f64[N, M, 2]");
  LiteralList by_sum{attribute("shape", std::vector<Literal>{N + 1, -1})};
  EXPECT_EQ(types_of("reshape", {f64_of({N + 1, M})}, by_sum), "f64[N + 1, M]");
  EXPECT_EQ(types_of("reshape", {f64_of({N})}, {ints("shape", {2, 3})}), "f64[2, 3] if N == 6");
  EXPECT_EQ(types_of("reshape", {f64_of({N})}, {ints("shape", {-1, 4})}),
            "f64[N // 4, 4] if N == 4*(N // 4)");
  auto refused = [](Dims from, std::vector<int64_t> to) {
    return error_of([&] { types_of("reshape", {f64_of(from)}, {ints("shape", to)}); });
  };
  EXPECT_EQ(refused({2, 3}, {4, 2}),
            "reshape: [2, 3] has 6 elements, the shape [4, 2] has 8; their numbers must agree");
  EXPECT_EQ(refused({2, 3}, {4, -1}),
            "reshape: [2, 3] has 6 elements, which do not fill the shape [4, -1]");
  EXPECT_NE(refused({2, 3}, {-1, -1}).find("only one size"), std::string::npos);
  EXPECT_NE(refused({0, 3}, {0, -1}).find("could be anything"), std::string::npos);
  EXPECT_NE(refused({2}, {-2}).find("negative"), std::string::npos);
  EXPECT_EQ(types_of("reshape", {f64_of({0, 3})}, {ints("shape", {-1, 5})}), "f64[0, 5]");
}

TEST(ShapeValues, OnlyTheConstantOneIsSqueezed) {
  EXPECT_EQ(types_of("squeeze", {f64_of({1, N, 1})}), "f64[N]");
  EXPECT_EQ(types_of("squeeze", {f64_of({1, N})}, {attribute("dim", 1)}), "f64[1, N]");
  EXPECT_EQ(types_of("unsqueeze", {f64_of({N})}, {attribute("dim", -1)}), "f64[N, 1]");
  EXPECT_EQ(types_of("flatten", {f64_of({2, N, M})}, {attribute("start_dim", 1)}), "f64[2, M*N]");
  EXPECT_EQ(types_of("flatten", {f64_of({})}), "f64[1]");
}

// SPEC P7
TEST(ShapeValues, ExpandIsDecidedByTypes) {
  LiteralList to{attribute("shape", std::vector<Literal>{4, M})};
  EXPECT_EQ(types_of("expand", {f64_of({1, M})}, to), "f64[4, M]");
  EXPECT_EQ(types_of("expand", {f64_of({N})}, to), "f64[4, M] if N == M");
  EXPECT_EQ(types_of("expand", {f64_of({N})}, {ints("shape", {2, -1})}), "f64[2, N]");
  EXPECT_EQ(types_of("expand", {f64_of({N})}, {ints("shape", {3})}), "f64[3] if N == 3");
  EXPECT_EQ(error_of([] { types_of("expand", {f64_of({2})}, {ints("shape", {3})}); }),
            "expand: dimension 0 of f64[2] cannot become 3: only a size of 1 can be expanded");
  error_of([] { types_of("expand", {f64_of({2, 2})}, {ints("shape", {2})}); });
  error_of([] { types_of("expand", {f64_of({2})}, {ints("shape", {-1, 2})}); });
  Tensor y = run_one("expand", {counting({3, 1})}, {ints("shape", {2, -1, 2})});
  EXPECT_EQ(y.to_doubles(), (Doubles{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(y.strides()[0], 0);
}

TEST(ShapeValues, SliceClampsAsATen) {
  Tensor x = counting({6});
  auto cut = [&](Literal start, Literal end, int64_t step = 1) {
    return values("slice", {x},
                  {attribute("start", start), attribute("end", end), attribute("step", step)});
  };
  EXPECT_EQ(cut(1, 4), (Doubles{1, 2, 3}));
  EXPECT_EQ(cut(-4, -1), (Doubles{2, 3, 4}));
  EXPECT_EQ(cut(-100, 100, 2), (Doubles{0, 2, 4}));
  EXPECT_EQ(cut(4, 2), Doubles{});
  EXPECT_EQ(cut(6, 9), Doubles{});
  EXPECT_EQ(cut({}, {}, 5), (Doubles{0, 5}));
  EXPECT_EQ(cut(int64_t{INT64_MIN}, int64_t{INT64_MAX}, INT64_MAX), Doubles{0});
  error_of([&] { cut(0, 6, 0); });
  error_of([&] { values("slice", {Tensor::scalar(DType::f64, 1)}); });
  auto type = [](Literal start, Literal end, int64_t step = 1) {
    return types_of("slice", {f64_of({N})},
                    {attribute("start", start), attribute("end", end), attribute("step", step)});
  };
  EXPECT_EQ(type(0, {}), "f64[N]");
  EXPECT_EQ(type(0, int64_t{INT64_MAX}), "f64[N]");
  EXPECT_EQ(type(1, {}), "f64[max(0, N - 1)]");
  EXPECT_EQ(type(0, -1), "f64[max(0, N - 1)]");
  EXPECT_EQ(type(2, -1), "f64[max(0, N - 3)]");
  EXPECT_EQ(type(-3, {}), "f64[min(3, N)]");
  EXPECT_EQ(type(-3, -1), "f64[max(0, N - 1) - max(0, N - 3)]");
  EXPECT_EQ(type(0, N - 1), "f64[max(0, N - 1)]");
  EXPECT_EQ(type(0, 3), "f64[min(3, N)]");
  EXPECT_EQ(type(0, {}, 2), "f64[(N - 1) // 2 + 1]");
  // A part of a joined dimension keeps its exact size.
  EXPECT_EQ(types_of("slice", {f64_of({N + M})}, {attribute("start", N), attribute("end", N + M)}),
            "f64[M]");
}

TEST(ShapeValues, PartsOutOfRange) {
  Tensor x = counting({2, 3});
  EXPECT_EQ(values("select", {x}, {attribute("dim", 1), attribute("index", -1)}), (Doubles{2, 5}));
  EXPECT_EQ(error_of([&] {
              values("select", {x}, {attribute("dim", 1), attribute("index", 3)});
            }),
            "select: index 3 is out of range for dimension 1 of f64[2, 3]");
  error_of([&] { values("select", {x}, {attribute("dim", 2), attribute("index", 0)}); });
  EXPECT_EQ(
      values("narrow", {x}, {attribute("dim", 1), attribute("start", -2), attribute("length", 2)}),
      (Doubles{1, 2, 4, 5}));
  error_of([&] {
    values("narrow", {x}, {attribute("dim", 1), attribute("start", 2), attribute("length", 2)});
  });
  EXPECT_EQ(types_of("narrow", {f64_of({N})},
                     {attribute("dim", 0), attribute("start", 1), attribute("length", 3)}),
            "f64[3]");
  EXPECT_EQ(values("diagonal", {x}, {attribute("offset", 1)}), (Doubles{1, 5}));
  EXPECT_EQ(values("diagonal", {x}, {attribute("offset", -5)}), Doubles{});
  EXPECT_EQ(types_of("diagonal", {f64_of({N, N})}), "f64[N]");
}

TEST(ShapeValues, SplitAndChunk) {
  EXPECT_EQ(types_of("split", {f64_of({6, N})}, {ints("sizes", {1, 0, 5})}),
            "f64[1, N] f64[0, N] f64[5, N]");
  EXPECT_EQ(types_of("split", {f64_of({N})}, {ints("sizes", {2, 3})}), "f64[2] f64[3] if 5 == N");
  error_of([] { types_of("split", {f64_of({6})}, {ints("sizes", {1, 2})}); });
  EXPECT_EQ(types_of("chunk", {f64_of({7})}, {attribute("chunks", 4)}),
            "f64[2] f64[2] f64[2] f64[1]");
  EXPECT_EQ(types_of("chunk", {f64_of({5})}, {attribute("chunks", 4)}), "f64[2] f64[2] f64[1]");
  EXPECT_EQ(types_of("chunk", {f64_of({0})}, {attribute("chunks", 2)}), "f64[0] f64[0]");
  EXPECT_EQ(types_of("chunk", {f64_of({N * Dim(4)})}, {attribute("chunks", 2)}),
            "f64[2*N] f64[2*N]");
  EXPECT_NE(
      error_of([] { types_of("chunk", {f64_of({N})}, {attribute("chunks", 2)}); }).find("2*K"),
      std::string::npos);
  EXPECT_NE(error_of([] { types_of("unbind", {f64_of({N})}); }).find("symbolic"),
            std::string::npos);
  error_of([] { types_of("chunk", {f64_of({4})}, {attribute("chunks", int64_t{0})}); });
}

TEST(ShapeValues, StridedStaysInside) {
  Tensor x = counting({12});
  EXPECT_EQ(values("as_strided", {x},
                   {ints("size", {3, 2}), ints("stride", {2, 1}), attribute("offset", 1)}),
            (Doubles{1, 2, 3, 4, 5, 6}));
  for (LiteralList bad :
       {LiteralList{ints("size", {3, 4}), ints("stride", {4, 1}), attribute("offset", 1)},
        LiteralList{ints("size", {2}), ints("stride", {INT64_MAX})},
        LiteralList{ints("size", {2}), ints("stride", {-1})},
        LiteralList{ints("size", {1}), ints("stride", {1}), attribute("offset", -1)},
        LiteralList{ints("size", {1}), ints("stride", {1}), attribute("offset", 12)},
        LiteralList{ints("size", {1, 1}), ints("stride", {1})}})
    error_of([&] { run_one("as_strided", {x}, bad); });
  // Overlapping reads add up.
  EXPECT_EQ(
      values("as_strided_sum", {Tensor::from(DType::f64, Sizes{2, 3}, Doubles{1, 2, 3, 4, 5, 6})},
             {ints("shape", {4}), ints("stride", {1, 1})}),
      (Doubles{1, 6, 8, 6}));
  EXPECT_EQ(values("unfold", {counting({5})},
                   {attribute("dim", 0), attribute("size", 3), attribute("step", 2)}),
            (Doubles{0, 1, 2, 2, 3, 4}));
  error_of([] {
    run_one("unfold", {counting({5})},
            {attribute("dim", 0), attribute("size", 6), attribute("step", 1)});
  });
}

TEST(ShapeValues, SumsOfHalvesAreKeptInF32) {
  // 2048 + 1 is not a half: rounded once, 1024 ones more make 3072.
  std::vector<double> many(1025, 1);
  many[0] = 2048;
  Tensor x = Tensor::from(DType::f16, Sizes{1025}, many);
  EXPECT_EQ(values("as_strided_sum", {x}, {ints("shape", {1}), ints("stride", {0})}),
            Doubles{3072});
}

TEST(ShapeValues, Cat) {
  Tensor a = counting({2, 2}), b = counting({2, 1}, DType::i32);
  EXPECT_EQ(values("cat", {a, b}, {attribute("dim", 1)}), (Doubles{0, 1, 0, 2, 3, 1}));
  EXPECT_EQ(types_of("cat", {f64_of({N, 2}), f64_of({3, 2}), f64_of({M, 2})}), "f64[M + N + 3, 2]");
  EXPECT_EQ(types_of("cat", {f64_of({2, N}), f64_of({3, M})}), "f64[5, N] if N == M");
  EXPECT_EQ(types_of("cat", {Type(DType::f16, {2}), Type(DType::bf16, {2})}), "f32[4]");
  EXPECT_EQ(types_of("cat", {f64_of({0}), f64_of({2, 3})}, {attribute("dim", 1)}), "f64[2, 3]");
  EXPECT_EQ(values("cat", {Tensor::zeros(DType::f64, Sizes{0}), a}, {attribute("dim", 1)}),
            (Doubles{0, 1, 2, 3}));
  error_of([] { types_of("cat", {}); });
  error_of([] { types_of("cat", {f64_of({})}); });
  error_of([] { types_of("cat", {f64_of({2}), f64_of({2, 2})}); });
  EXPECT_EQ(
      error_of([] {
        types_of("cat", {f64_of({2, 2}), f64_of({2, 3})});
      }),
      "cat: operand 1 of 'x' is f64[2, 3], another one is f64[2, 2]; only dimension 0 may differ");
  EXPECT_EQ(types_of("stack", {f64_of({N}), f64_of({N})}, {attribute("dim", -1)}), "f64[N, 2]");
}

TEST(ShapeValues, Repeats) {
  Tensor x = counting({2, 2});
  EXPECT_EQ(values("repeat", {x}, {ints("repeats", {2, 2})}),
            (Doubles{0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(
      types_of("repeat", {f64_of({N, 2})}, {attribute("repeats", std::vector<Literal>{M, 2, 3})}),
      "f64[M, 2*N, 6]");
  error_of([] { types_of("repeat", {f64_of({2, 2})}, {ints("repeats", {2})}); });
  EXPECT_EQ(values("repeat_interleave", {x}, {attribute("repeats", 2), attribute("dim", 1)}),
            (Doubles{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(values("tile", {x}, {ints("dims", {2})}), (Doubles{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(ShapeValues, Turns) {
  Tensor x = counting({2, 3});
  EXPECT_EQ(values("flip", {x}, {ints("dims", {1})}), (Doubles{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(values("flip", {x}, {ints("dims", {0, -1})}), (Doubles{5, 4, 3, 2, 1, 0}));
  error_of([&] { values("flip", {x}, {ints("dims", {1, -1})}); });
  EXPECT_EQ(values("roll", {x}, {ints("shifts", {1}), ints("dims", {1})}),
            (Doubles{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(values("roll", {x}, {ints("shifts", {-1, 3}), ints("dims", {1, 0})}),
            (Doubles{4, 5, 3, 1, 2, 0}));
  EXPECT_EQ(values("roll", {x}, {ints("shifts", {1, 1, -2}), ints("dims", {1, 1, 1})}),
            x.to_doubles());
  EXPECT_EQ(values("roll", {scattered(x)}, {attribute("shifts", 2)}), (Doubles{4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(values("roll", {Tensor::zeros(DType::f64, Sizes{0})}, {attribute("shifts", 2)}),
            Doubles{});
}

TEST(ShapeValues, Triangles) {
  Tensor x = run_one("add", {counting({2, 3}), ir::Number::of(1.0)});
  auto lower = [&](int64_t d) { return values("tril", {x}, {attribute("diagonal", d)}); };
  auto upper = [&](int64_t d) { return values("triu", {x}, {attribute("diagonal", d)}); };
  EXPECT_EQ(lower(0), (Doubles{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(lower(-1), (Doubles{0, 0, 0, 4, 0, 0}));
  EXPECT_EQ(lower(INT64_MAX), x.to_doubles());
  EXPECT_EQ(lower(INT64_MIN), Doubles(6, 0));
  EXPECT_EQ(upper(1), (Doubles{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(upper(INT64_MIN), x.to_doubles());
  EXPECT_EQ(upper(INT64_MAX), Doubles(6, 0));
  // Zeros, whatever was there.
  Tensor inf = run_one("full", {}, {ints("shape", {2, 2}), attribute("value", "inf")});
  EXPECT_EQ(values("tril", {inf}, {attribute("diagonal", -2)}), Doubles(4, 0));
}

TEST(ShapeValues, Pads) {
  Tensor x = counting({4});
  auto pad = [&](std::vector<int64_t> amounts, const char* mode, double value = 0) {
    return values("pad", {x},
                  {ints("pad", amounts), attribute("mode", mode), attribute("value", value)});
  };
  EXPECT_EQ(pad({1, 2}, "constant", -1), (Doubles{-1, 0, 1, 2, 3, -1, -1}));
  EXPECT_EQ(pad({-1, -2}, "constant"), (Doubles{1}));
  EXPECT_EQ(pad({-5, 3}, "constant", 7), (Doubles{7, 7}));
  EXPECT_EQ(pad({5, -6}, "constant", 7), (Doubles{7, 7, 7}));
  EXPECT_EQ(pad({2, 3}, "reflect"), (Doubles{2, 1, 0, 1, 2, 3, 2, 1, 0}));
  EXPECT_EQ(pad({2, 1}, "replicate"), (Doubles{0, 0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(pad({2, 4}, "circular"), (Doubles{2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  error_of([&] { pad({4, 0}, "reflect"); });
  error_of([&] { pad({5, 0}, "circular"); });
  error_of([&] { pad({-1, 0}, "replicate"); });
  error_of([&] { pad({-3, -2}, "constant"); });
  error_of([&] { pad({1}, "constant"); });
  error_of([&] { pad({1, 1, 1, 1}, "constant"); });
  error_of([&] { pad({1, 1}, "mirror"); });
  error_of([&] { pad({INT64_MIN, INT64_MAX}, "constant"); });
  Tensor box = counting({2, 2});
  EXPECT_EQ(values("pad", {box}, {ints("pad", {1, 0, 0, 1}), attribute("value", 9)}),
            (Doubles{9, 0, 1, 9, 2, 3, 9, 9, 9}));
  EXPECT_EQ(types_of("pad", {f64_of({N, 4})}, {attribute("pad", std::vector<Literal>{0, 0, M, 1})}),
            "f64[M + N + 1, 4]");
  EXPECT_EQ(types_of("pad", {f64_of({N})}, {ints("pad", {2, 1}), attribute("mode", "reflect")}),
            "f64[N + 3]");
}

TEST(ShapeValues, WritingIntoParts) {
  Tensor x = counting({2, 4}), src = random_tensor({2, 2}, 1);
  auto s = src.to_doubles();
  EXPECT_EQ(values("slice_scatter", {x, src},
                   {attribute("dim", 1), attribute("start", 1), attribute("step", 2)}),
            (Doubles{0, s[0], 2, s[1], 4, s[2], 6, s[3]}));
  EXPECT_EQ(values("slice_scatter", {x, src},
                   {attribute("dim", 1), attribute("start", 1), attribute("end", 3)}),
            (Doubles{0, s[0], s[1], 3, 4, s[2], s[3], 7}));
  error_of([&] { values("slice_scatter", {x, src}, {attribute("dim", 1)}); });
  error_of([&] {
    values("slice_scatter", {x, src.to(DType::f32)}, {attribute("dim", 1), attribute("start", 2)});
  });
  EXPECT_EQ(
      values("select_scatter", {x, counting({2})}, {attribute("dim", 1), attribute("index", -1)}),
      (Doubles{0, 1, 2, 0, 4, 5, 6, 1}));
  EXPECT_EQ(values("diag_embed", {counting({2})}, {attribute("offset", 1)}),
            (Doubles{0, 0, 0, 0, 0, 1, 0, 0, 0}));
}

TEST(ShapeValues, NewTensors) {
  EXPECT_EQ(types_of("full", {}, {ints("shape", {2}), attribute("value", 3)}), "i64[2]");
  EXPECT_EQ(types_of("full", {}, {ints("shape", {}), attribute("value", 3.0)}), "f32[]");
  EXPECT_EQ(types_of("full", {}, {attribute("shape", N), attribute("value", true)}), "bool[N]");
  EXPECT_EQ(types_of("full_like", {Type(DType::f16, {N})}, {attribute("value", 1)}), "f16[N]");
  error_of([] { types_of("full", {}, {ints("shape", {-1}), attribute("value", 3)}); });
  error_of([] { types_of("full", {}, {ints("shape", {1}), attribute("value", "three")}); });
  Tensor big =
      run_one("full", {}, {ints("shape", {1}), attribute("value", int64_t{(1LL << 53) + 1})});
  EXPECT_EQ(big.to_int64s()[0], (1LL << 53) + 1);
  EXPECT_EQ(values("arange", {}, {attribute("end", 5)}), (Doubles{0, 1, 2, 3, 4}));
  EXPECT_EQ(
      values("arange", {}, {attribute("start", 5), attribute("end", 0), attribute("step", -2)}),
      (Doubles{5, 3, 1}));
  EXPECT_EQ(values("arange", {}, {attribute("end", 1.0), attribute("step", 0.25)}),
            (Doubles{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(types_of("arange", {}, {attribute("end", 1.0)}), "f32[1]");
  EXPECT_EQ(types_of("arange", {}, {attribute("end", N), attribute("dtype", DType::f64)}),
            "f64[N]");
  EXPECT_EQ(types_of("arange", {}, {attribute("start", 1), attribute("end", N)}),
            "i64[max(0, N - 1)]");
  error_of([] { types_of("arange", {}, {attribute("end", 5), attribute("step", int64_t{0})}); });
  error_of([] { types_of("arange", {}, {attribute("end", -5)}); });
  error_of([] { types_of("arange", {}, {attribute("end", "inf")}); });
  error_of([] { types_of("arange", {}, {attribute("end", 1e300)}); });
  error_of([] { types_of("arange", {}, {attribute("start", 0.5), attribute("end", N)}); });
  EXPECT_EQ(
      values("linspace", {}, {attribute("start", 0), attribute("end", 1), attribute("steps", 5)}),
      (Doubles{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(
      values("linspace", {}, {attribute("start", 3), attribute("end", 1), attribute("steps", 1)}),
      Doubles{3});
  EXPECT_EQ(values("eye", {}, {attribute("n", 2), attribute("m", 3)}), (Doubles{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values("one_hot", {indices({2}, {2, 0})}, {attribute("classes", 3)}),
            (Doubles{0, 0, 1, 1, 0, 0}));
  error_of([] { run_one("one_hot", {indices({1}, {3})}, {attribute("classes", 3)}); });
}

TEST(ShapeValues, CastsBetweenAllDtypes) {
  Tensor x = Tensor::from(DType::f64, Sizes{7}, Doubles{-2.5, -1, 0, 0.5, 3.75, 127, 300});
  for (int a = 0; a < dtype_count; ++a)
    for (int b = 0; b < dtype_count; ++b) {
      Tensor from = x.to(static_cast<DType>(a));
      LiteralList to{attribute("dtype", static_cast<DType>(b))};
      EXPECT_TRUE(bitwise_equal(run_one("cast", {from}, to), from.to(static_cast<DType>(b))));
      EXPECT_TRUE(
          bitwise_equal(run_one("cast", {scattered(from)}, to), from.to(static_cast<DType>(b))));
    }
  EXPECT_TRUE(shares(run_one("cast", {x}, {attribute("dtype", DType::f64)}), x));
}

TEST(ShapeValues, EveryLayoutAndDtype) {
  Tensor x = random_tensor({3, 5, 4}, 20), y = random_tensor({3, 2, 4}, 21);
  // Eight-bit and bool results agree because the values are moved, not computed with.
  expect_all_layouts("clone", {x});
  expect_all_layouts("reshape", {x}, {ints("shape", {4, 15})});
  expect_all_layouts("cat", {x, y}, {attribute("dim", 1)});
  expect_all_layouts("stack", {y, y}, {attribute("dim", -1)});
  expect_all_layouts("repeat", {x}, {ints("repeats", {2, 1, 2})});
  expect_all_layouts("flip", {x}, {ints("dims", {2, 0})});
  expect_all_layouts("roll", {x}, {ints("shifts", {2, 1}), ints("dims", {1, 2})});
  expect_all_layouts("roll", {x}, {attribute("shifts", 7)});
  expect_all_layouts("tril", {x});
  expect_all_layouts("triu", {x}, {attribute("diagonal", 1)});
  expect_all_layouts("pad", {x}, {ints("pad", {1, -1, 2, 0}), attribute("value", 1)});
  expect_all_layouts("pad", {x}, {ints("pad", {2, 1, 2, 2}), attribute("mode", "reflect")});
  expect_all_layouts("slice_scatter", {x, y},
                     {attribute("dim", 1), attribute("start", 1), attribute("step", 3)});
  expect_all_layouts("diag_embed", {y}, {attribute("offset", -1)});
  expect_all_layouts("diagonal", {x}, {attribute("dim1", 2), attribute("dim2", 0)});
  expect_all_layouts("unfold", {x},
                     {attribute("dim", 1), attribute("size", 2), attribute("step", 1)});
  expect_all_layouts("as_strided", {x},
                     {ints("size", {2, 3}), ints("stride", {1, 2}), attribute("offset", 4)});
}

// Large copies go through blocks and chunks.
TEST(ShapeValues, LargeTransposesAndCasts) {
  for (DType dtype : {DType::f64, DType::f32, DType::f16, DType::u8}) {
    Tensor x = random_tensor({5, 131, 257}, 30, dtype);
    Tensor turned = run_one("transpose", {x}, {attribute("dim0", 1), attribute("dim1", 2)});
    Tensor copied = run_one("contiguous", {turned});
    bool same = true;
    for (int64_t i = 0; i < 5; ++i)
      for (int64_t j = 0; j < 257; ++j)
        for (int64_t k = 0; k < 131; ++k)
          same = same && copied.item((i * 257 + j) * 131 + k) == x.item((i * 131 + k) * 257 + j);
    EXPECT_TRUE(same) << name_of(dtype);
    Tensor cast = run_one("cast", {turned}, {attribute("dtype", DType::i32)});
    EXPECT_TRUE(bitwise_equal(cast, copied.to(DType::i32)));
    EXPECT_TRUE(bitwise_equal(run_one("tril", {turned}), run_one("tril", {copied})));
  }
}

TEST(WindowSums, AddInRowMajorOrder) {
  auto uneven = [](const Sizes& shape) {
    auto v = random_tensor(shape, 6).to_doubles();
    for (double& e : v) e = e / 7 + e * e * 1e-3;
    return Tensor::from(DType::f64, shape, v).to(DType::f32);
  };
  auto naive = [](const Tensor& x, const Sizes& shape, const Sizes& strides) {
    Tensor y = Tensor::zeros(DType::f32, shape);
    auto* to = reinterpret_cast<float*>(y.mutable_data());
    const auto* from = x.data_as<float>();
    Sizes index(x.shape().size(), 0);
    for (int64_t i = 0; i < x.numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
      to[at] += from[i];
      for (size_t d = index.size(); d-- > 0 && ++index[d] == x.shape()[d];) index[d] = 0;
    }
    return y;
  };
  auto sum = [](const Tensor& x, int64_t length, int64_t dim, int64_t step) {
    return run_one("unfold_sum", {x},
                   {attribute("length", length), attribute("dim", dim), attribute("step", step)});
  };
  Tensor x = uneven({2, 3, 10, 9, 3});
  EXPECT_TRUE(bitwise_equal(sum(x, 12, 2, 1), naive(x, {2, 3, 12, 9}, {324, 108, 9, 1, 9})));
  EXPECT_TRUE(bitwise_equal(sum(x, 21, 2, 2), naive(x, {2, 3, 21, 9}, {567, 189, 18, 1, 9})));
  Tensor z = uneven({2, 9, 8, 3, 3});
  EXPECT_TRUE(bitwise_equal(sum(z, 10, 2, 1), naive(z, {2, 9, 10, 3}, {270, 30, 3, 1, 3})));
  // Rows that others run into: dimension 1 moves half a row of dimension 0.
  Tensor w = uneven({20, 9, 3});
  EXPECT_TRUE(bitwise_equal(
      run_one("as_strided_sum", {w}, {ints("shape", {420}), ints("stride", {18, 9, 1})}),
      naive(w, {420}, {18, 9, 1})));
  EXPECT_TRUE(bitwise_equal(
      run_one("as_strided_sum", {w}, {ints("shape", {400}), ints("stride", {4, 2, 1})}),
      naive(w, {400}, {4, 2, 1})));
}

// SPEC F6
TEST(WindowSums, HaveTheSameBitsForAnyWorkers) {
  static Context one({.workers = 1}), two({.workers = 2}), eight({.workers = 8});
  auto run = [](std::string_view op, const Tensor& x, const LiteralList& attributes, Context& c) {
    const Operator* o = find(op);
    EagerOperand in[]{x};
    return evaluate(*o, o->read(attributes), in, c)[0];
  };
  auto expect_equal = [&](std::string_view op, const Tensor& x, const LiteralList& attributes) {
    Tensor want = run(op, x, attributes, one);
    EXPECT_TRUE(bitwise_equal(run(op, x, attributes, two), want)) << op;
    EXPECT_TRUE(bitwise_equal(run(op, x, attributes, eight), want)) << op;
  };
  for (DType dtype : {DType::f32, DType::bf16}) {
    auto uneven = [&](const Sizes& shape) {
      auto v = random_tensor(shape, 5).to_doubles();
      for (double& e : v) e = e / 7 + e * e * 1e-3;
      return Tensor::from(DType::f64, shape, v).to(dtype);
    };
    // Overlaps stay within an index of the first two dimensions, or run through all of them.
    expect_equal("unfold_sum", uneven({6, 50, 30, 7, 3}),
                 {attribute("length", int64_t{32}), attribute("dim", int64_t{2}),
                  attribute("step", int64_t{1})});
    expect_equal("unfold_sum", uneven({90000, 3}),
                 {attribute("length", int64_t{90002}), attribute("dim", int64_t{0}),
                  attribute("step", int64_t{1})});
    expect_equal("as_strided_sum", uneven({300, 400}),
                 {ints("shape", {1000}), ints("stride", {2, 1})});
    expect_equal("as_strided_sum", uneven({300, 400}),
                 {ints("shape", {120000}), ints("stride", {400, 1})});
  }
}

}  // namespace
}  // namespace gradus::ops::test
