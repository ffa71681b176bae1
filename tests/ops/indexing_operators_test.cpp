// Reading and writing at indices: values, types, errors, order, derivatives.
#include "tests/ops/shape_support.h"

namespace gradus::ops::test {
namespace {

using Doubles = std::vector<double>;
const Dim N = Dim::symbol("N"), M = Dim::symbol("M");
Type f64_of(Dims dims) { return Type(DType::f64, std::move(dims)); }
Type i64_of(Dims dims) { return Type(DType::i64, std::move(dims)); }
NamedLiteral dim(int64_t d) { return attribute("dim", d); }

std::vector<double> values(std::string_view op, std::initializer_list<EagerOperand> operands,
                           const LiteralList& attributes = {}) {
  return run_one(op, operands, attributes).to_doubles();
}

Tensor random_indices(std::initializer_list<int64_t> shape, int64_t below, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<double> v(static_cast<size_t>(numel(Sizes(shape))));
  for (double& x : v) x = static_cast<double>(generator() % static_cast<uint64_t>(below));
  return Tensor::from(DType::i64, Sizes(shape), v);
}

TEST(Indexing, GatherAndScatter) {
  Tensor x = counting({2, 3}), index = indices({2, 2}, {2, 0, 1, 1});
  EXPECT_EQ(values("gather", {x, index}, {dim(1)}), (Doubles{2, 0, 4, 4}));
  EXPECT_EQ(values("gather", {x, indices({1, 3}, {1, 0, 1})}, {dim(0)}), (Doubles{3, 1, 5}));
  EXPECT_EQ(values("gather", {x, indices({1, 1}, {2}, DType::i32)}, {dim(-1)}), Doubles{2});
  Tensor src = Tensor::from(DType::f64, Sizes{2, 2}, Doubles{10, 20, 30, 40});
  EXPECT_EQ(values("scatter_add", {x, index, src}, {dim(1)}), (Doubles{20, 1, 12, 3, 74, 5}));
  // Of two writes to one place the last one stays.
  EXPECT_EQ(values("scatter", {x, index, src}, {dim(1)}), (Doubles{20, 1, 10, 3, 40, 5}));
  EXPECT_EQ(values("scatter", {x, index, ir::Number::of(-1.0)}, {dim(1)}),
            (Doubles{-1, 1, -1, 3, -1, 5}));
  EXPECT_EQ(values("scatter_add", {x, index, ir::Number::of(int64_t{1})}, {dim(1)}),
            (Doubles{1, 1, 3, 3, 6, 5}));
  // A larger source is read where the index reaches.
  EXPECT_EQ(values("scatter_add", {x, indices({1, 1}, {2}), src}, {dim(1)}),
            (Doubles{0, 1, 12, 3, 4, 5}));
  EXPECT_EQ(
      values("gather", {Tensor::scalar(DType::f64, 7), Tensor::scalar(DType::i64, 0)}, {dim(0)}),
      Doubles{7});
}

// More elements than a kernel takes at once, in short rows: operands that lie without gaps, rows
// apart from each other, the index of one row for all.
TEST(Indexing, ManyShortRows) {
  const int64_t blocks = 7, rows = 130, wide = 5;
  const Tensor source = counting({blocks, rows, wide});
  const Tensor whole = random_indices({blocks, rows, 3}, wide, 1);
  const Tensor apart =
      random_indices({blocks, rows, 4}, wide, 2)
          .view(Layout(DType::i64, Sizes{blocks, rows, 3}, Sizes{rows * 4, 4, 1}), 1);
  const Tensor one = random_indices({blocks, 1, 3}, wide, 3)
                         .view(Layout(DType::i64, Sizes{blocks, rows, 3}, Sizes{3, 0, 1}), 0);
  for (const Tensor& index : {whole, apart, one}) {
    const Tensor found = run_one("gather", {source, index}, {dim(2)});
    const Tensor added = run_one("scatter_add", {source, index, found}, {dim(2)});
    const auto at = index.to_doubles(), got = found.to_doubles();
    Doubles expected = source.to_doubles(), read;
    for (size_t i = 0; i < at.size(); ++i) {
      const size_t place = i / 3 * wide + static_cast<size_t>(at[i]);
      read.push_back(static_cast<double>(place));
      expected[place] += read.back();
    }
    EXPECT_EQ(got, read);
    EXPECT_EQ(added.to_doubles(), expected);
  }
  // Along a dimension before the last one.
  const Tensor middle = random_indices({blocks, 200, wide}, rows, 4);
  const auto found = values("gather", {source, middle}, {dim(1)}), at = middle.to_doubles();
  for (size_t i = 0; i < at.size(); ++i)
    ASSERT_EQ(found[i], (static_cast<double>(i / (200 * wide)) * rows + at[i]) * wide +
                            static_cast<double>(i % wide));
}

TEST(Indexing, WholeSlabs) {
  Tensor x = counting({2, 3}), index = indices({3}, {2, 0, 2});
  EXPECT_EQ(values("index_select", {x, index}, {dim(1)}), (Doubles{2, 0, 2, 5, 3, 5}));
  EXPECT_EQ(values("index_select", {x, indices({}, {1})}, {dim(0)}), (Doubles{3, 4, 5}));
  Tensor src = Tensor::from(DType::f64, Sizes{2, 3}, Doubles{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values("index_add", {x, index, src}, {dim(1)}), (Doubles{2, 1, 6, 8, 4, 15}));
  EXPECT_EQ(values("index_add", {x, index, src}, {dim(1), attribute("alpha", -0.5)}),
            (Doubles{-1, 1, 0, 0.5, 4, 0}));
  EXPECT_EQ(values("index_copy", {x, index, src}, {dim(1)}), (Doubles{2, 1, 3, 5, 4, 6}));
  EXPECT_EQ(values("index_fill", {x, index}, {dim(1), attribute("value", 9)}),
            (Doubles{9, 1, 9, 9, 4, 9}));
  EXPECT_EQ(
      values("index_add",
             {counting({3}, DType::u8), indices({2}, {0, 0}), indices({2}, {200, 100}, DType::u8)},
             {dim(0)}),
      (Doubles{44, 1, 2}));
  EXPECT_EQ(values("embedding", {x, indices({2, 1}, {1, 0})}), (Doubles{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(values("take", {x, indices({2, 1}, {-1, 1})}), (Doubles{5, 1}));
}

TEST(Indexing, MaskedScatter) {
  Tensor x = counting({2, 3}), mask = indices({3}, {1, 0, 1}, DType::boolean);
  Tensor src = Tensor::from(DType::f64, Sizes{5}, Doubles{10, 20, 30, 40, 50});
  EXPECT_EQ(values("masked_scatter", {x, mask, src}), (Doubles{10, 1, 20, 30, 4, 40}));
  error_of([&] { run_one("masked_scatter", {x, mask, counting({3})}); });
  error_of([&] { run_one("masked_scatter", {x, x, src}); });
  expect_derivatives("masked_scatter", {x, mask, src});
}

TEST(Indexing, SeveralIndices) {
  Tensor x = counting({2, 3, 4});
  Tensor i = indices({2}, {1, -2}), j = indices({2, 1}, {0, 2});
  EXPECT_EQ(values("index", {x, i, j, indices({}, {3})}), (Doubles{15, 3, 23, 11}));
  EXPECT_EQ(types_of("index", {f64_of({N, M}), i64_of({3, 1}), i64_of({2})}), "f64[3, 2]");
  // Adjacent indices stand where they are, others in front.
  Tensor middle = evaluate("index", {x, std::monostate(), indices({2}, {2, 0})})[0];
  EXPECT_EQ(to_string(middle.shape()), "[2, 2, 4]");
  EXPECT_EQ(middle.item(0), 8);
  EXPECT_EQ(middle.item(15), 15);
  Tensor front = evaluate("index", {x, i, std::monostate(), indices({2}, {3, 0})})[0];
  EXPECT_EQ(to_string(front.shape()), "[2, 3]");
  EXPECT_EQ(front.to_doubles(), (Doubles{15, 19, 23, 0, 4, 8}));
  Tensor put = evaluate("index_put", {x, ir::Number::of(-1.0), std::monostate(), std::monostate(),
                                      indices({1}, {3})})[0];
  EXPECT_EQ(put.item(3), -1);
  EXPECT_EQ(put.item(23), -1);
  EXPECT_EQ(put.item(22), 22);
  Tensor flat = counting({3});
  LiteralList add{attribute("accumulate", true)};
  EXPECT_EQ(values("index_put", {flat, counting({3}), indices({3}, {1, 1, 1})}, add),
            (Doubles{0, 4, 2}));
  EXPECT_EQ(values("index_put", {flat, counting({3}), indices({3}, {1, 1, 1})}),
            (Doubles{0, 2, 2}));
  EXPECT_EQ(values("index_put", {flat, Tensor::scalar(DType::f64, 5), indices({2}, {0, -1})}, add),
            (Doubles{5, 1, 7}));
}

TEST(Indexing, Types) {
  EXPECT_EQ(types_of("gather", {f64_of({N, 3}), i64_of({M, 2})}, {dim(1)}), "f64[M, 2]");
  EXPECT_EQ(types_of("index_select", {f64_of({N, 3}), i64_of({M})}, {dim(0)}), "f64[M, 3]");
  EXPECT_EQ(types_of("index_add", {f64_of({N, 3}), i64_of({M}), f64_of({4, 3})}, {dim(0)}),
            "f64[N, 3] if 4 == M");
  EXPECT_EQ(types_of("embedding", {f64_of({N, 3}), i64_of({M, 2})}), "f64[M, 2, 3]");
}

TEST(Indexing, Refusals) {
  Tensor x = counting({2, 3});
  EXPECT_EQ(error_of([&] {
              run_one("gather", {x, indices({1, 1}, {3})}, {dim(1)});
            }),
            "gather: an index of 3 is out of range; dimension 1 takes 0 to 2");
  error_of([&] { run_one("gather", {x, indices({1, 1}, {-1})}, {dim(1)}); });
  error_of([&] { run_one("index_select", {x, indices({2}, {0, 2})}, {dim(0)}); });
  EXPECT_EQ(error_of([&] {
              run_one("index", {x, indices({2}, {0, -3})});
            }),
            "index: an index of -3 is out of range; dimension 0 takes -2 to 1");
  error_of([&] {
    run_one("index_put", {x, ir::Number::of(0.0), indices({1}, {INT64_MIN * 1.0})});
  });
  EXPECT_NE(error_of([&] {
              run_one("index_select", {Tensor::zeros(DType::f64, Sizes{0, 3}), indices({1}, {0})},
                      {dim(0)});
            }).find("size of 0"),
            std::string::npos);
  auto wrong = [](std::string_view op, std::vector<Type> in, const LiteralList& a) {
    return error_of([&] { types_of(op, in, a); });
  };
  wrong("gather", {f64_of({2, 3}), f64_of({2, 3})}, {dim(0)});
  wrong("gather", {f64_of({2, 3}), i64_of({2})}, {dim(0)});
  wrong("gather", {f64_of({2, 3}), i64_of({2, 4})}, {dim(0)});
  wrong("gather", {f64_of({2, 3}), i64_of({2, 3})}, {dim(2)});
  wrong("scatter_add", {f64_of({2, 3}), i64_of({2, 3}), f64_of({2, 2})}, {dim(0)});
  wrong("scatter_add", {f64_of({2}), i64_of({2}), Type(DType::f32, {2})}, {dim(0)});
  wrong("index_select", {f64_of({2}), i64_of({2, 2})}, {dim(0)});
  wrong("index_select", {f64_of({}), i64_of({2})}, {dim(0)});
  wrong("index_select", {f64_of({}), i64_of({0})}, {dim(0)});
  wrong("index_add", {f64_of({}), i64_of({1}), f64_of({1})}, {dim(0)});
  wrong("index_copy", {f64_of({}), i64_of({2}), f64_of({})}, {dim(0)});
  wrong("index_add", {f64_of({2, 3}), i64_of({2}), f64_of({3, 3})}, {dim(0)});
  wrong("index", {f64_of({2}), i64_of({2}), i64_of({2})}, {});
  wrong("index", {f64_of({2, 2}), i64_of({2}), i64_of({3})}, {});
  wrong("index", {f64_of({2, 2})}, {});
  wrong("index_put", {f64_of({2, 2}), f64_of({3}), i64_of({2})}, {});
  wrong("embedding", {f64_of({2, 2}), i64_of({2})}, {attribute("padding_idx", 2)});
  EXPECT_NE(wrong("index", {f64_of({2}), Type(DType::boolean, {2})}, {}).find("masked_fill"),
            std::string::npos);
}

TEST(Indexing, EveryLayoutAndDtype) {
  Tensor x = random_tensor({4, 5, 3}, 1), src = random_tensor({2, 5, 3}, 2);
  Tensor index = indices({2}, {3, 1}), at = random_indices({2, 4, 3}, 4, 3);
  expect_all_layouts("gather", {x, at}, {dim(0)});
  expect_all_layouts("gather", {x, random_indices({3, 2, 3}, 5, 4)}, {dim(1)});
  expect_all_layouts("gather", {x, random_indices({3, 2, 7}, 3, 4)}, {dim(2)});
  expect_all_layouts("scatter", {x, at, src}, {dim(0)});
  expect_all_layouts("index_select", {x, index}, {dim(0)});
  expect_all_layouts("index_select", {x, index}, {dim(1)});
  expect_all_layouts("index_copy", {x, index, src}, {dim(0)});
  expect_all_layouts("index_put", {x, src, index});
  expect_all_layouts("index", {x, index, std::monostate(), indices({2}, {2, -3})});
  expect_all_layouts("index",
                     {x, std::monostate(), std::monostate(), random_indices({3, 2}, 3, 9)});
  expect_all_layouts("embedding", {random_tensor({4, 6}, 5), at});
  expect_all_layouts("take", {x, random_indices({3, 2}, 60, 9)});
}

TEST(Indexing, SumsInEveryDtype) {
  // Small integers, so that every dtype (but bool) holds the sums exactly.
  auto small = [](std::initializer_list<int64_t> shape, uint64_t seed) {
    return run_one("cast", {random_indices(shape, 3, seed)}, {attribute("dtype", DType::f64)});
  };
  Tensor x = small({4, 5}, 1), src = small({6, 5}, 2), index = random_indices({6}, 4, 3);
  Tensor at = random_indices({6, 5}, 4, 4);
  for (int d = 0; d < dtype_count; ++d) {
    DType dtype = static_cast<DType>(d);
    if (dtype == DType::boolean) continue;
    for (bool strided : {false, true}) {
      auto lay = [&](const Tensor& t) { return strided ? scattered(t) : t; };
      Tensor a = lay(x.to(dtype)), b = lay(src.to(dtype));
      EXPECT_TRUE(bitwise_equal(
          run_one("index_add", {a, lay(index), b}, {dim(0), attribute("alpha", 2)}),
          run_one("index_add", {x, index, src}, {dim(0), attribute("alpha", 2)}).to(dtype)));
      EXPECT_TRUE(bitwise_equal(run_one("scatter_add", {a, lay(at), b}, {dim(0)}),
                                run_one("scatter_add", {x, at, src}, {dim(0)}).to(dtype)));
      LiteralList add{attribute("accumulate", true)};
      EXPECT_TRUE(bitwise_equal(run_one("index_put", {a, b, lay(index)}, add),
                                run_one("index_put", {x, src, index}, add).to(dtype)));
    }
  }
  Tensor yes = indices({2}, {1, 1}, DType::boolean);
  EXPECT_EQ(values("scatter_add", {indices({2}, {0, 0}, DType::boolean), indices({2}, {1, 1}), yes},
                   {dim(0)}),
            (Doubles{0, 1}));
}

TEST(Indexing, HalvesAddInF32) {
  std::vector<double> many(1025, 1);
  many[0] = 2048;
  Tensor src = Tensor::from(DType::f16, Sizes{1025}, many),
         zero = Tensor::zeros(DType::f16, Sizes{2});
  Tensor at = Tensor::zeros(DType::i64, Sizes{1025});
  EXPECT_EQ(values("scatter_add", {zero, at, src}, {dim(0)}), (Doubles{3072, 0}));
  EXPECT_EQ(values("index_add", {zero, at, src}, {dim(0)}), (Doubles{3072, 0}));
  EXPECT_EQ(values("index_put", {zero, src, at}, {attribute("accumulate", true)}),
            (Doubles{3072, 0}));
}

// Sums are added in index order, whatever the number of workers: f32 rounding would tell.
void expect_one_order(int64_t columns) {
  const int64_t rows = 700, places = 5;
  std::mt19937_64 generator(1);
  std::vector<double> v(static_cast<size_t>(rows * columns));
  for (double& x : v) x = static_cast<double>(generator() % 1000003) / 977;
  Tensor src = Tensor::from(DType::f32, Sizes{rows, columns}, v);
  Tensor x = Tensor::zeros(DType::f32, Sizes{places, columns});
  Tensor index = random_indices({rows}, places, 2);
  Tensor want = Tensor::zeros(DType::f32, Sizes{places, columns});
  float* w = want.mutable_data_as<float>();
  auto rows_at = index.to_int64s();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      w[rows_at[r] * columns + c] += src.data_as<float>()[r * columns + c];
  Tensor wide = run_one("expand", {run_one("unsqueeze", {index}, {dim(1)})},
                        {ints("shape", {rows, columns})});
  const Tensor each = wide.contiguous();  // an index for each element
  auto turned = [](const Tensor& t) {
    return run_one("transpose", {t}, {attribute("dim0", 0), attribute("dim1", 1)});
  };
  for (int workers : {1, 2, 3, 4, 7}) {
    auto context =
        std::make_shared<Context>(ContextOptions{.workers = workers, .allocator = {}, .log = {}});
    auto run = [&](std::string_view op, std::vector<EagerOperand> in, LiteralList a) {
      const Operator* o = find(op);
      return evaluate(*o, o->read(a), in, *context)[0];
    };
    EXPECT_TRUE(bitwise_equal(run("index_add", {x, index, src}, {dim(0)}), want));
    EXPECT_TRUE(bitwise_equal(run("scatter_add", {x, wide, src}, {dim(0)}), want));
    EXPECT_TRUE(bitwise_equal(run("scatter_add", {x, each, src}, {dim(0)}), want));
    EXPECT_TRUE(
        bitwise_equal(run("index_put", {x, src, index}, {attribute("accumulate", true)}), want));
    EXPECT_TRUE(bitwise_equal(run("scatter_add", {turned(x), turned(wide), turned(src)}, {dim(1)}),
                              turned(want).contiguous()));
    Tensor picked = run("index_select", {want, index}, {dim(0)});
    EXPECT_TRUE(bitwise_equal(picked, run("gather", {want, wide}, {dim(0)})));
    EXPECT_TRUE(bitwise_equal(picked, run("index", {want, index}, {})));
    EXPECT_EQ(picked.item(columns * 3 + 7), want.item(rows_at[3] * columns + 7));
  }
}

TEST(Indexing, OneOrderForAnyNumberOfWorkers) {
  for (const int64_t columns : {2100, 333, 131}) expect_one_order(columns);
}

// SPEC D1, D3
TEST(Indexing, Derivatives) {
  Tensor x = random_tensor({4, 5}, 1), src = random_tensor({3, 5}, 2),
         index = indices({3}, {2, 0, 2});
  Tensor at = random_indices({3, 5}, 4, 3), few = random_indices({2, 3}, 4, 4);
  expect_derivatives("gather", {x, at}, {dim(0)});
  expect_derivatives("gather", {x, random_indices({2, 7}, 5, 5)}, {dim(1)});
  expect_derivatives("gather", {x, random_indices({0, 5}, 4, 5)}, {dim(0)});
  expect_derivatives("scatter_add", {x, at, src}, {dim(0)});
  expect_derivatives("scatter_add", {x, few, src}, {dim(0)});  // a part of the source
  expect_derivatives("scatter", {x, indices({1, 3}, {3, 1, 0}), src}, {dim(0)});
  expect_derivatives("scatter", {x, at, ir::Number::of(2.0)}, {dim(0)});
  expect_derivatives("index_select", {x, index}, {dim(0)});
  expect_derivatives("index_select", {x, indices({}, {1})}, {dim(-1)});
  expect_derivatives("index_add", {x, index, src}, {dim(0), attribute("alpha", -1.5)});
  expect_derivatives("index_copy", {x, indices({3}, {2, 0, 3}), src}, {dim(0)});
  expect_derivatives("index_fill", {x, index}, {dim(1), attribute("value", 2.0)});
  expect_derivatives("index", {x, index, indices({3}, {-1, 4, 1})});
  expect_derivatives("index", {x, std::monostate(), random_indices({2, 2}, 5, 6)});
  expect_derivatives("index", {random_tensor({2, 3, 4}, 7), indices({2}, {1, 1}), std::monostate(),
                               indices({2, 1}, {3, 0})});
  expect_derivatives("index_put", {x, src, index}, {attribute("accumulate", true)});
  expect_derivatives("index_put", {x, random_tensor({5}, 8), index},
                     {attribute("accumulate", true)});
  expect_derivatives("index_put", {x, random_tensor({}, 8), index},
                     {attribute("accumulate", true)});
  expect_derivatives("index_put", {x, random_tensor({2, 5}, 8), indices({2}, {3, 0})});
  expect_derivatives("take", {x, indices({2, 2}, {0, -1, 7, 7})});
  expect_derivatives("embedding", {x, indices({2, 2}, {0, 3, 3, 1})});
}

TEST(Indexing, PaddingRowHasNoGradient) {
  Tensor weight = random_tensor({4, 2}, 1), index = indices({3}, {1, 3, 1});
  for (int64_t padding : {1, -3}) {
    Program p("embedding", {weight, index}, {attribute("padding_idx", padding)}, 2);
    Tensor ct = random_tensor({3, 2}, 2), v = random_tensor({4, 2}, 3);
    auto r = p.run({p.inputs(), {ct}, {v}});
    EXPECT_EQ(r[0][0].to_doubles(), values("embedding", {weight, index}));
    auto c = ct.to_doubles(), d = v.to_doubles();
    EXPECT_EQ(r[1][0].to_doubles(), (Doubles{0, 0, 0, 0, 0, 0, c[2], c[3]}));
    EXPECT_EQ(r[2].back().to_doubles(), (Doubles{0, 0, d[6], d[7], 0, 0}));
  }
}

}  // namespace
}  // namespace gradus::ops::test
