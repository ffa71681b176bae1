// Rows that are reduced inside a kernel: the reference evaluator gives the operators' bits, and
// compiled nests give the evaluator's.
// SPEC F6
#include "kernels/evaluate.h"
#include "tests/fusion/row_nests.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

cpu::Compiler& compiler() {
  static cpu::Compiler c;
  return c;
}

void expect_same(const Nest& nest, std::span<const Sizes> sizes) {
  static WorkerPool workers(2);
  for (Isa isa : cpu::all_isas) {
    if (!cpu::runs_here(isa)) continue;
    auto kernel = compiler().compile(nest, isa);
    uint64_t seed = 1;
    // Where elements are infinite or NaN, few sums are numbers.
    for (const Sizes& s : sizes)
      for (bool tame : {false, true}) {
        std::string difference = Memory(nest, s, seed++, tame).difference(*kernel, workers);
        EXPECT_EQ(difference, "") << cpu::name_of(isa) << " " << print(nest);
        if (!difference.empty()) return;
      }
  }
}

// The same of kernels that take several rows at a time: some of sizes' rows are fewer than lanes.
void expect_same_side_by_side(Nest nest, std::span<const int64_t> columns) {
  for (int64_t n : columns) {
    nest.row_size = n;
    verify(nest);
    std::vector<Sizes> sizes;
    for (int64_t rows : {1, 3, 4, 7, 8, 9, 16, 37, 300}) {
      Sizes s(static_cast<size_t>(nest.rank), 2);
      s.back() = n;
      s[s.size() - 2] = rows;
      sizes.push_back(s);
    }
    expect_same(nest, sizes);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RowEvaluator, ReducesAsTheOperatorsDo) {
  constexpr std::string_view operators[] = {"sum", "prod", "amax", "amin", "all", "any"};
  for (DType d : all_dtypes)
    for (size_t r = 0; r < std::size(reducers); ++r)
      for (int64_t n : {1, 2, 15, 16, 17, 1000, 1024, 1025, 5000, 70000}) {
        const bool tame = n % 2 == 0;
        Nest nest = parse_nest(
            fmt::format("nest 2 {{ %v0 = load {} [strided, contiguous] %v1 = {} store_row %v1 }}",
                        name_of(d), reduction(reducers[r], "%v0", d)));
        Tensor x = Tensor::of_layout(Layout(d, {3, n}), *Context::default_context());
        auto bytes = values(d, static_cast<size_t>(3 * n), static_cast<uint64_t>(n), tame);
        std::memcpy(x.mutable_data(), bytes.data(), bytes.size());
        Tensor want = ops::evaluate(operators[r], {x}, {{"dim", int64_t{-1}, {}}})[0];
        ASSERT_EQ(want.dtype(), nest.dtype_of(1));
        std::vector<std::byte> got(3 * size_of(want.dtype()));
        std::byte* args[] = {x.mutable_data(), got.data()};
        evaluate(nest, {{3, n}, {{n, 1}}}, args);
        for (size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(same(want.dtype(), &got[i * size_of(want.dtype())],
                           want.data() + i * size_of(want.dtype())))
              << operators[r] << " of " << name_of(d) << ", " << n;
      }
}

class Rows : public testing::TestWithParam<DType> {};

// Every reducer, rows of 1 to 70 elements and of several chunks, lying in every way.
TEST_P(Rows, ReduceInEveryWay) {
  const DType d = GetParam();
  std::vector<Sizes> short_rows, long_rows{{3, 1023},  {2, 1024}, {2, 1025}, {1, 2048}, {3, 3100},
                                           {1, 16385}, {2, 7168}, {0, 5},    {70, 1},   {1, 70001}};
  for (int64_t n = 1; n <= 70; ++n) short_rows.push_back({3, n});
  for (std::string_view walk :
       {"strided, contiguous", "strided, strided", "broadcast, contiguous", "strided, broadcast"})
    for (std::string_view r : reducers) {
      Nest nest = parse_nest(
          fmt::format("nest 2 {{ %v0 = load {} [{}] %v1 = {} store_row %v1 store %v1, %v0 }}",
                      name_of(d), walk, reduction(r, "%v0", d)));
      expect_same(nest, walk.starts_with("strided, c") ? short_rows : std::vector<Sizes>{{2, 33}});
      expect_same(nest, long_rows);
    }
}
INSTANTIATE_TEST_SUITE_P(All, Rows, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

const Sizes several[] = {{5, 1}, {3, 16}, {7, 100}, {2, 1024}, {3, 5000}, {300, 33}};

TEST(RowKernels, OfSoftmaxAndItsDerivative) {
  for (std::string_view d : {"f32", "f64", "f16"}) {
    expect_same(parse_nest(softmax_nest(d)), several);
    expect_same(parse_nest(softmax_derivative_nest(d)), several);
  }
}

// Every reducer of every dtype, rows that lie in every way: pieces of them are turned.
class ShortRows : public testing::TestWithParam<DType> {};

TEST_P(ShortRows, ReduceInEveryWay) {
  const DType d = GetParam();
  std::string text = fmt::format(
      "nest 2 {{ %v0 = load {0} [strided, contiguous] %v1 = load {0} [strided, strided]\n"
      "%v2 = load {0} [broadcast, contiguous] %v3 = load {0} [strided, broadcast]\n",
      name_of(d));
  std::string stored;
  size_t v = 4;
  for (int load = 0; load < 4; ++load)
    for (std::string_view r : reducers) {
      text += fmt::format("%v{} = {}\n", v, reduction(r, fmt::format("%v{}", load), d));
      stored += fmt::format("{}%v{}", v == 4 ? "" : ", ", v);
      ++v;
    }
  const Nest nest = parse_nest(text + "store %v0, %v1, %v3 store_row " + stored + " }");
  constexpr int64_t columns[] = {1, 2, 3, 4, 5, 6, 7, 10, 16, 17, 32};
  expect_same_side_by_side(nest, columns);
}
INSTANTIATE_TEST_SUITE_P(All, ShortRows, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(ShortRowKernels, OfSoftmaxAndItsDerivative) {
  constexpr int64_t columns[] = {2, 3, 10, 17, 31};
  for (std::string_view d : {"f32", "f64", "f16"}) {
    expect_same_side_by_side(parse_nest(softmax_nest(d)), columns);
    expect_same_side_by_side(parse_nest(softmax_derivative_nest(d)), columns);
  }
}

// Several reductions of a level, steps of the row between levels, numbers, mixed dtypes, two outer
// loops, a load that a later level alone needs.
constexpr const char* several_levels =
    "nest 3 { %v0 = load f32 [strided, strided, contiguous]\n"
    "%v1 = load f64 [broadcast, broadcast, contiguous]\n"
    "%v2 = load bf16 [broadcast, strided, broadcast]\n"
    "%v3 = load bool [strided, broadcast, strided]\n"
    "%v4 = number 0.001\n"
    "%v5 = reduce sum(%v0) : f32 in f32\n"
    "%v6 = mul(%v5, %v4) : f32 in f32\n"
    "%v7 = sub(%v0, %v6) : f32 in f32\n"
    "%v8 = square(%v7) : f32 in f32\n"
    "%v9 = reduce sum(%v8) : f32 in f32\n"
    "%v10 = reduce max(%v1) : f64 in f64\n"
    "%v11 = rsqrt(%v9) : f32 in f32\n"
    "%v12 = mul(%v7, %v11) : f32 in f32\n"
    "%v13 = add(%v12, %v2) : f32 in f32\n"
    "%v14 = where(%v3, %v13, %v10) : f64 in f64\n"
    "%v15 = reduce any(%v3) : bool\n"
    "%v16 = reduce min(%v14) : f64 in f64\n"
    "%v17 = convert(%v14) : f16\n"
    "store %v17, %v14 store_row %v15, %v16, %v9, %v2 }";

TEST(RowKernels, OfSeveralLevels) {
  expect_same(parse_nest(several_levels),
              std::vector<Sizes>{{2, 3, 1}, {2, 3, 50}, {1, 4, 1300}, {3, 1, 17}, {2, 2, 2048}});
}

// What is read at an index of the row, of each element and of each place, and of two operands.
TEST(ShortRowKernels, ReadEdges) {
  constexpr int64_t rows = 21, n = 5, table = 7;
  auto indices = [](size_t count) {
    std::vector<int64_t> v(count);
    for (size_t i = 0; i < count; ++i) v[i] = static_cast<int64_t>(i * i % table);
    return v;
  };
  std::vector<float> x(static_cast<size_t>(rows * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 31) * 0.7f - 8;
  auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  auto expect_alike = [&](std::string_view loads, std::string_view of, const Frame& frame,
                          std::vector<std::byte*> args) {
    for (const char* rest : {"%v3 = reduce sum(%v2) : f32 in f32 %v4 = sub(%v2, %v3) : f32 in f32 "
                             "store %v4 store_row %v3 }",
                             "%v3 = exp(%v2) : f32 in f32 store %v3 }"}) {
      Nest nest =
          parse_nest(fmt::format("nest 2 {{ {} %v2 = neg({}) : f32 in f32 {}", loads, of, rest));
      nest.row_size = n;
      if (nest.loads[0].operands > 1 && !nest.reduces()) continue;  // rows would be cut
      verify(nest);
      check_frame(nest, frame);
      std::vector<float> expected(static_cast<size_t>(rows * (n + 1))), got(expected.size());
      static WorkerPool workers(2);
      for (std::vector<float>* y : {&expected, &got}) {
        std::vector<std::byte*> all = args;
        all.push_back(bytes(*y));
        all.push_back(bytes(*y) + rows * n * 4);
        if (y == &expected)
          evaluate(nest, frame, all.data());
        else
          compiler().compile(nest, some_isa)->run(frame, all.data(), workers);
      }
      EXPECT_EQ(got, expected) << print(nest);
    }
  };
  std::vector<int64_t> of_row = indices(rows), of_element = indices(rows * n),
                       of_place = indices(n);
  expect_alike("%v0 = load i64 [strided, broadcast] %v1 = load f32 [broadcast, contiguous] at %v0",
               "%v1", {{rows, n}, {{1, 0}, {0, 1}}, {}, {0, n}}, {bytes(of_row), bytes(x)});
  expect_alike("%v0 = load i64 [strided, contiguous] %v1 = load f32 [broadcast, broadcast] at %v0",
               "%v1", {{rows, n}, {{n, 1}, {0, 0}}, {}, {0, 3}}, {bytes(of_element), bytes(x)});
  expect_alike("%v0 = load i64 [broadcast, contiguous] %v1 = load f32 [strided, broadcast] at %v0",
               "%v1", {{rows, n}, {{0, 1}, {3, 0}}, {}, {0, 2}}, {bytes(of_place), bytes(x)});
  const Frame parts{
      {rows, n}, {{}, {n, 1}}, {{{{0, 0}, {4, n}, {n, 1}}, {{4, 0}, {rows - 4, n}, {n, 1}}}}};
  expect_alike("%v0 = load f32 [strided, contiguous] of 2 %v1 = load f32 [strided, contiguous]",
               "%v0", parts, {bytes(x) + 4 * 7, bytes(x), bytes(x)});
}

// Without a reduction, a result may lie where an operand does.
TEST(ShortRowKernels, OfElementsInPlace) {
  Nest nest = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = load f32 [broadcast, contiguous]\n"
      "%v2 = load f32 [strided, broadcast] %v3 = mul(%v0, %v1) : f32 in f32\n"
      "%v4 = exp(%v2) : f32 in f32 %v5 = add(%v3, %v4) : f32 in f32 store %v5 }");
  constexpr int64_t columns[] = {1, 2, 3, 5, 11, 16, 31};
  expect_same_side_by_side(nest, columns);
  static WorkerPool workers(2);
  for (int64_t n : columns)
    for (int64_t rows : {1, 5, 8, 13, 40}) {
      nest.row_size = n;
      const Frame frame{{rows, n}, {{n, 1}, {0, 1}, {1, 0}}};
      const auto count = static_cast<size_t>(rows * n);
      std::vector<float> x(count), r(static_cast<size_t>(n)), c(static_cast<size_t>(rows)),
          y(count);
      for (std::vector<float>* v : {&x, &r, &c})
        for (float& element : *v) element = static_cast<float>(&element - v->data()) * 0.37f - 1;
      auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
      std::byte *apart[] = {bytes(x), bytes(r), bytes(c), bytes(y)},
                *in_place[] = {bytes(x), bytes(r), bytes(c), bytes(x)};
      auto kernel = compiler().compile(nest, some_isa);
      kernel->run(frame, apart, workers);
      kernel->run(frame, in_place, workers);
      EXPECT_EQ(x, y) << rows << " rows of " << n;
    }
}

TEST(ShortRowKernels, OfSeveralLevels) {
  constexpr int64_t columns[] = {1, 3, 6, 20};
  expect_same_side_by_side(parse_nest(several_levels), columns);
}

// Functions that several runs over a row need wait where results will lie: two of them, of one
// dtype; one with no place of its dtype; one that is a result itself.
TEST(RowKernels, KeepFunctions) {
  expect_same(parse_nest("nest 2 { %v0 = load f32 [strided, contiguous]\n"
                         "%v1 = load f32 [strided, strided]\n"
                         "%v2 = exp(%v0) : f32 in f32\n"
                         "%v3 = tanh(%v1) : f32 in f32\n"
                         "%v4 = reduce sum(%v2) : f32 in f32\n"
                         "%v5 = div(%v2, %v4) : f32 in f32\n"
                         "%v6 = mul(%v5, %v3) : f32 in f32\n"
                         "%v7 = reduce max(%v6) : f32 in f32\n"
                         "%v8 = convert(%v0) : f64\n"
                         "%v9 = sin(%v8) : f64 in f64\n"
                         "%v10 = reduce min(%v9) : f64 in f64\n"
                         "%v11 = sub(%v6, %v7) : f32 in f32\n"
                         "%v12 = mul(%v9, %v10) : f64 in f64\n"
                         "%v13 = convert(%v12) : f32\n"
                         "%v14 = add(%v13, %v3) : f32 in f32\n"
                         "store %v11, %v3, %v14 store_row %v4, %v10 }"),
              several);
}

// A value of a row stored for each element, and alone.
TEST(RowKernels, StoreRowsWithoutReducing) {
  expect_same(parse_nest("nest 2 { %v0 = load f32 [strided, broadcast] %v1 = exp(%v0) : f32 in f32 "
                         "store_row %v1 store %v1 }"),
              std::vector<Sizes>{{4, 9}, {1, 1}, {3, 100}});
  expect_same(parse_nest("nest 1 { %v0 = load i32 [contiguous] %v1 = reduce sum(%v0) : i64 in i64 "
                         "store_row %v1 }"),
              std::vector<Sizes>{{9}, {100000}});
}

// Random rows of steps and reductions, one after another.
TEST(RowKernels, OfRandomSteps) {
  constexpr std::string_view unary[] = {"neg", "exp", "tanh", "relu", "square", "abs"};
  constexpr std::string_view binary[] = {"add", "sub", "mul", "maximum", "minimum"};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const std::string d = seed % 2 ? "f32" : "f64";
    std::string text = fmt::format(
        "nest 2 {{ %v0 = load {0} [strided, contiguous] %v1 = load {0} [broadcast, strided]\n"
        "%v2 = load {0} [strided, broadcast] %v3 = number 0.25\n",
        d);
    size_t v = 4;
    for (size_t k = 0; k < 12; ++k, ++v) {
      auto operand = [&] { return fmt::format("%v{}", below(v)); };
      if (below(3) == 0)
        text += fmt::format("%v{} = reduce {}({}) : {} in {}\n", v, reducers[below(4)],
                            fmt::format("%v{}", v - 1 == 3 ? 0 : v - 1), d, d);
      else if (below(2))
        text += fmt::format("%v{} = {}({}) : {} in {}\n", v, unary[below(std::size(unary))],
                            operand(), d, d);
      else
        text += fmt::format("%v{} = {}({}, {}) : {} in {}\n", v, binary[below(std::size(binary))],
                            operand(), operand(), d, d);
    }
    Nest nest = parse_nest(text + fmt::format("store %v{}, %v{} }}", v - 1, v - 2));
    const RowFacts facts = row_facts(nest);
    for (ValueNumber x = 4; x < v; ++x)
      if (facts.of_row[x]) nest.row_stores.push_back(x);
    verify(nest);
    expect_same(nest, std::vector<Sizes>{{3, 7}, {4, 1}, {2, 1029}, {1, 64}});
    const int64_t columns[] = {static_cast<int64_t>(1 + below(32))};
    expect_same_side_by_side(nest, columns);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradus::fusion::test
