// Softmax, norms, losses, sorting and pooling: types, layouts, small floats, errors.
#include <algorithm>
#include <cmath>

#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

using Doubles = std::vector<double>;
const Dim N = Dim::symbol("N"), M = Dim::symbol("M"), C = Dim::symbol("C");
Type of(Dims dims, DType dtype = DType::f32) { return Type(dtype, std::move(dims)); }
NamedLiteral dim(int64_t d) { return attribute("dim", d); }
NamedLiteral reduction(const char* how) { return attribute("reduction", how); }

std::string refusal(std::string_view op, std::vector<Type> operands,
                    const LiteralList& attributes = {}) {
  return error_of([&] { types_of(op, operands, attributes); });
}
void contains(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}
Tensor tensor(std::initializer_list<int64_t> shape, const Doubles& values,
              DType dtype = DType::f64) {
  return Tensor::from(DType::f64, Sizes(shape), values).to(dtype);
}

TEST(Softmax, Types) {
  EXPECT_EQ(types_of("softmax", {of({N, 3})}, {dim(-1)}), "f32[N, 3]");
  EXPECT_EQ(types_of("log_softmax", {of({}, DType::f16)}, {dim(0)}), "f16[]");
  contains(refusal("softmax", {of({2, 3})}, {dim(2)}), "dimension 2 is out of range");
  contains(refusal("log_softmax", {of({2, 3}, DType::i64)}, {dim(0)}),
           "must have a floating dtype");
  contains(refusal("softmax", {of({2, 3})}), "dim");
}

// Sums of powers are kept in f32: 4096 ones are no 2048.
TEST(Softmax, AddsSmallFloatsUpWide) {
  Tensor x = Tensor::zeros(DType::f16, Sizes{4096});
  EXPECT_EQ(run_one("softmax", {x}, {dim(0)}).to_doubles()[7], 1.0 / 4096);
  double log = run_one("log_softmax", {x}, {dim(0)}).to_doubles()[7];
  EXPECT_NEAR(log, -std::log(4096.0), 4e-3);
}

TEST(Norms, Types) {
  EXPECT_EQ(types_of("layer_norm", {of({N, 3, M}), of({3, M})},
                     {attribute("normalized_shape", Literal::list(Dims{3, M}))}),
            "f32[N, 3, M]");
  EXPECT_EQ(types_of("standardize", {of({N, 3}, DType::bf16)}, {ints("dim", {1})}),
            "bf16[N, 3] f32[N, 1]");
  EXPECT_EQ(types_of("group_norm", {of({N, C, M})}, {attribute("groups", 2)}),
            "f32[N, C, M] if C*M == 2*(C // 2)*M if 2*(C // 2)*M == C*M");
  contains(refusal("layer_norm", {of({N, 3})}, {ints("normalized_shape", {4})}),
           "sizes 3 and 4 differ");
  contains(refusal("layer_norm", {of({N, 3}), of({2})}, {ints("normalized_shape", {3})}),
           "dimension 0 of 'w'");
  contains(refusal("layer_norm", {of({N, 3})}, {ints("normalized_shape", {})}),
           "must name the last sizes");
  contains(refusal("group_norm", {of({N, 5, 2})}, {attribute("groups", 2)}),
           "does not divide the channels");
  contains(refusal("batch_norm_train", {of({3})}), "at least 2 dimensions");
  contains(refusal("batch_norm_train", {of({N, 3}), of({1})}), "sizes 1 and 3 differ");
  contains(refusal("batch_norm_eval", {of({N, 3}), of({3})}), "operand 'var' is missing");
  contains(refusal("instance_norm", {of({N, 3})}), "at least 3 dimensions");
}

// In 16-bit floats the statistics, and all up to the result, are worked out in f32.
TEST(Norms, RoundSmallFloatsOnce) {
  Tensor x = random_tensor({3, 40}, 1, DType::bf16), w = random_tensor({40}, 2, DType::bf16);
  LiteralList shape{ints("normalized_shape", {40})};
  Tensor wide = run_one("layer_norm", {x.to(DType::f32), w.to(DType::f32)}, shape);
  EXPECT_TRUE(bitwise_equal(run_one("layer_norm", {x, w}, shape), wide.to(DType::bf16)));
}

// The reference gives mean and var no gradient.
TEST(Norms, MeanAndVarianceAreConstants) {
  Tensor x = random_tensor({3, 2}, 1), mean = random_tensor({2}, 2), var = counting({2});
  Program p("batch_norm_eval", {x, mean, var}, {}, 1);
  auto results = p.run({p.inputs(), {x}});
  ASSERT_EQ(results[1].size(), 3u);
  EXPECT_TRUE(results[1][0].defined());
  EXPECT_FALSE(results[1][1].defined() || results[1][2].defined());
}

TEST(Losses, SayWhatIsWrong) {
  Type x = of({N, 3}), classes = of({N}, DType::i64);
  contains(refusal("mse_loss", {x, x}, {reduction("average")}), "\"mean\", \"sum\" or \"none\"");
  contains(refusal("mse_loss", {x, of({N, 3}, DType::i64)}), "must have a floating dtype");
  contains(refusal("nll_loss", {x, of({N})}), "classes are i64 or i32");
  contains(refusal("nll_loss", {x, of({N, 3}, DType::i64)}), "[N, C, ..] and [N, ..]");
  contains(refusal("nll_loss", {of({4, 3}), of({5}, DType::i64)}), "sizes 5 and 4 differ");
  contains(refusal("nll_loss", {x, classes, of({2})}), "'weight' and the classes");
  contains(refusal("cross_entropy", {x, of({N})}), "probabilities have x's shape");
  contains(refusal("cross_entropy", {x, classes}, {attribute("label_smoothing", 1.5)}),
           "from 0 to 1");
  contains(error_of([&] { run_one("nll_loss", {counting({2, 3}), indices({2}, {0, 3})}); }), "3");
}

TEST(Losses, OfNothingAndOfNoneThatCount) {
  Tensor logp = counting({2, 3}), target = indices({2}, {1, 1});
  LiteralList ignore{attribute("ignore_index", 1)};
  EXPECT_TRUE(std::isnan(run_one("nll_loss", {logp, target}, ignore).item()));
  ignore.push_back(reduction("sum"));
  EXPECT_EQ(run_one("nll_loss", {logp, target}, ignore).item(), 0);
  Tensor none = Tensor::zeros(DType::f64, Sizes{0, 3});
  EXPECT_TRUE(std::isnan(run_one("mse_loss", {none, none}).item()));
  EXPECT_EQ(run_one("mse_loss", {none, none}, {reduction("sum")}).item(), 0);
  // One sample without a batch, and indices of 32 bits.
  EXPECT_EQ(run_one("nll_loss", {counting({3}), indices({}, {2}, DType::i32)}).item(), -2);
}

TEST(Sorting, Types) {
  EXPECT_EQ(types_of("sort", {of({N, 3})}), "f32[N, 3] i64[N, 3]");
  EXPECT_EQ(types_of("topk", {of({N, M})}, {attribute("k", Dim(2)), dim(0)}),
            "f32[2, M] i64[2, M]");
  EXPECT_EQ(types_of("sort", {of({}, DType::boolean)}), "bool[] i64[]");
  contains(refusal("topk", {of({N, 3})}, {attribute("k", 4)}), "'k' is 4");
  contains(refusal("topk", {of({})}, {attribute("k", 2), dim(0)}), "'k' is 2");
  contains(refusal("sort", {of({2, 3})}, {dim(2)}), "out of range");
  contains(error_of([&] { run_one("topk", {counting({2})}, {attribute("k", 3)}); }), "'k' is 3");
}

TEST(Sorting, EveryLayoutAndDtype) {
  Tensor x = tensor({3, 4}, {3, 0, 2, 1, 1, 5, 0, 7, 2, 2, 9, 0});
  for (int64_t d : {0, 1})
    for (bool descending : {false, true}) {
      expect_all_layouts("sort", {x}, {dim(d), attribute("descending", descending)}, false);
      expect_all_layouts("topk", {x}, {dim(d), attribute("k", 2), attribute("largest", descending)},
                         false);
    }
  for (int d = 0; d < dtype_count; ++d) {
    auto dtype = static_cast<DType>(d);
    auto sorted = evaluate("sort", {tensor({4}, {1, 0, 1, 0}, dtype)}, {});
    EXPECT_EQ(sorted[0].to_doubles(), (Doubles{0, 0, 1, 1})) << name_of(dtype);
    EXPECT_EQ(sorted[1].to_doubles(), (Doubles{1, 3, 0, 2})) << name_of(dtype);
  }
  Tensor large = tensor({3}, {200, 3, 255}, DType::u8);
  EXPECT_EQ(run_one("sort", {large}).to_doubles(), (Doubles{3, 200, 255}));
}

// Long rows against a stable sort; all ways that topk may take.
TEST(Sorting, LongRows) {
  std::mt19937_64 generator(3);
  Doubles values(3 * 5000);
  for (double& v : values) v = static_cast<double>(generator() % 700);
  for (int i = 0; i < 20; ++i) values[generator() % values.size()] = std::nan("");
  Tensor x = tensor({3, 5000}, values, DType::f32);
  auto less = [](double a, double b) { return a < b || (b != b && a == a); };
  for (bool descending : {false, true}) {
    Doubles want;
    for (int64_t row = 0; row < 3; ++row) {
      std::vector<int64_t> at(5000);
      for (int64_t i = 0; i < 5000; ++i) at[i] = i;
      auto key = [&](int64_t i) { return values[row * 5000 + i]; };
      std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) {
        return descending ? less(key(b), key(a)) : less(key(a), key(b));
      });
      want.insert(want.end(), at.begin(), at.end());
    }
    auto sorted = evaluate("sort", {x}, {attribute("descending", descending)});
    EXPECT_EQ(sorted[1].to_doubles(), want);
    for (int64_t k : {0, 1, 100, 2000, 4999, 5000}) {
      auto top = evaluate("topk", {x}, {attribute("k", k), attribute("largest", descending)});
      Doubles best;
      for (int64_t row = 0; row < 3; ++row)
        best.insert(best.end(), want.begin() + row * 5000, want.begin() + row * 5000 + k);
      EXPECT_EQ(top[1].to_doubles(), best) << k;
    }
  }
}

TEST(Pooling, TypesAndErrors) {
  LiteralList two{attribute("kernel", 2)};
  EXPECT_EQ(types_of("max_pool2d", {of({N, 3, 7, M})}, two), "f32[N, 3, 3, (M - 2) // 2 + 1]");
  EXPECT_EQ(types_of("max_pool2d_idx", {of({3, 4, 4})}, two), "f32[3, 2, 2] i64[3, 2, 2]");
  EXPECT_EQ(
      types_of("avg_pool1d", {of({N, 3, 8})},
               {attribute("kernel", 3), attribute("stride", 2), attribute("ceil_mode", true)}),
      "f32[N, 3, 4]");
  EXPECT_EQ(types_of("adaptive_avg_pool2d", {of({N, 3, M, 4})}, {ints("output_size", {2, 3})}),
            "f32[N, 3, 2, 3]");
  contains(refusal("max_pool2d", {of({1, 1, 1, 4})}, two), "does not fit a size of 1");
  contains(refusal("max_pool2d", {of({4, 4})}, two), "must have 4 dimensions, or 3");
  contains(
      refusal("avg_pool2d", {of({1, 1, 4, 4})}, {attribute("kernel", 2), ints("padding", {2})}),
      "at most half");
  contains(refusal("avg_pool2d", {of({1, 1, 4, 4})}, {attribute("kernel", 0)}), "'kernel' is 0");
  contains(refusal("adaptive_avg_pool2d", {of({1, 1, 0, 4})}, {ints("output_size", {1})}),
           "windows of nothing");
  contains(refusal("unfold_im2col", {of({1, 1, 2, 2})}, {attribute("kernel", 3)}), "does not fit");
  contains(refusal("fold_col2im", {of({1, 4, 5})},
                   {attribute("kernel", 2), ints("output_size", {3, 3})}),
           "sizes 5 and 4 differ");
  contains(refusal("pixel_shuffle", {of({1, 6, 2, 2})}, {attribute("r", 2)}), "multiple of 4");
  contains(refusal("upsample_nearest2d", {of({1, 6, 2, 2})}, {attribute("scale", 0)}),
           "'scale' is 0");
  // The gaps of a window skip the image.
  contains(error_of([&] {
             run_one("max_pool1d", {counting({1, 1, 2})},
                     {attribute("kernel", 2), attribute("padding", 1), attribute("dilation", 3)});
           }),
           "nothing but padding");
}

TEST(Pooling, EveryLayoutAndDtype) {
  Tensor x = random_tensor({2, 3, 5, 6}, 4);
  LiteralList attributes{attribute("kernel", 3), attribute("stride", 2), attribute("padding", 1)};
  expect_all_layouts("max_pool", {x}, attributes, false);
  expect_all_layouts("unfold_im2col", {x}, attributes, false);
  Tensor columns = run_one("unfold_im2col", {x}, attributes);
  LiteralList fold = attributes;
  fold.push_back(ints("output_size", {5, 6}));
  expect_all_layouts("fold_col2im", {columns}, fold, false);
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Tensor wide = run_one("fold_col2im", {columns}, fold);
    EXPECT_TRUE(bitwise_equal(run_one("fold_col2im", {columns.to(dtype)}, fold), wide.to(dtype)));
    EXPECT_TRUE(
        bitwise_equal(run_one("unfold_im2col", {x.to(dtype)}, attributes), columns.to(dtype)));
    EXPECT_TRUE(bitwise_equal(run_one("max_pool2d", {x.to(dtype)}, attributes),
                              run_one("max_pool2d", {x}, attributes).to(dtype)));
  }
  // Integers have no -inf to begin with.
  EXPECT_EQ(run_one("max_pool1d", {tensor({1, 1, 2}, {-5, -7}, DType::i32)},
                    {attribute("kernel", 2), attribute("padding", 1), attribute("stride", 1)})
                .to_doubles(),
            (Doubles{-5, -5, -7}));
}

TEST(Pooling, Derivatives) {
  Tensor x = random_tensor({1, 2, 5, 4}, 4);
  LiteralList attributes{attribute("kernel", 2), attribute("padding", 1), attribute("stride", 2)};
  expect_derivatives("unfold_im2col", {x}, attributes);
  Tensor columns = run_one("unfold_im2col", {x}, attributes);
  LiteralList fold = attributes;
  fold.push_back(ints("output_size", {5, 4}));
  expect_derivatives("fold_col2im", {columns}, fold);
  expect_derivatives("avg_pool2d", {x}, attributes);
  expect_derivatives("adaptive_avg_pool2d", {x}, {ints("output_size", {3, 3})});
  expect_derivatives("upsample_nearest2d", {x}, {attribute("scale", 2)});
}

// SPEC F6
TEST(Pooling, HasTheSameBitsForAnyWorkers) {
  static Context one({.workers = 1}), three({.workers = 3});
  Tensor x = random_tensor({4, 9, 40, 30}, 4, DType::bf16);
  LiteralList attributes{attribute("kernel", 3), attribute("stride", 2)};
  LiteralList fold = attributes;
  fold.push_back(ints("output_size", {40, 30}));
  auto run = [&](const char* op, const Tensor& operand, const LiteralList& list, Context& context) {
    const Operator* o = find(op);
    std::vector<EagerOperand> in{operand};
    return evaluate(*o, o->read(list), in, context);
  };
  for (const char* op : {"max_pool", "unfold_im2col"}) {
    auto a = run(op, x, attributes, one), b = run(op, x, attributes, three);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i])) << op;
  }
  Tensor columns = run("unfold_im2col", x, attributes, one)[0];
  EXPECT_TRUE(bitwise_equal(run("fold_col2im", columns, fold, one)[0],
                            run("fold_col2im", columns, fold, three)[0]));
  auto a = run("sort", x, {dim(2)}, one), b = run("sort", x, {dim(2)}, three);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(bitwise_equal(a[i], b[i]));
}

}  // namespace
}  // namespace gradus::ops::test
