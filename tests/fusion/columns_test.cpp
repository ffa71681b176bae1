// Columns that are reduced inside a kernel: the reference evaluator gives the operators' bits, and
// compiled nests give the evaluator's, however the work is cut.
// SPEC F6
#include "kernels/evaluate.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

constexpr std::string_view reducers[] = {"sum", "prod", "max", "min", "all", "any"};

void expect_same(const Nest& nest, std::span<const Sizes> sizes) {
  static cpu::Compiler compiler;
  static WorkerPool workers(2);
  for (Isa isa : cpu::all_isas) {
    if (!cpu::runs_here(isa)) continue;
    auto kernel = compiler.compile(nest, isa);
    uint64_t seed = 1;
    for (const Sizes& s : sizes)
      for (bool tame : {false, true}) {
        std::string difference = Memory(nest, s, seed++, tame).difference(*kernel, workers);
        EXPECT_EQ(difference, "") << cpu::name_of(isa) << " " << print(nest);
        if (!difference.empty()) return;
      }
  }
}

std::string column_reduction(std::string_view reducer, std::string_view x, DType d) {
  const bool logical = reducer == "all" || reducer == "any";
  const bool adds = reducer == "sum" || reducer == "prod";
  const DType result = logical ? DType::boolean : adds && !is_floating(d) ? DType::i64 : d;
  std::string s = fmt::format("reduce_columns {}({}) : {}", reducer, x, name_of(result));
  return logical ? s : s + fmt::format(" in {}", name_of(dtype_of(compute_of(d))));
}

TEST(ColumnEvaluator, ReducesAsTheOperatorsDo) {
  constexpr std::string_view operators[] = {"sum", "prod", "amax", "amin", "all", "any"};
  for (DType d : all_dtypes)
    for (size_t r = 0; r < std::size(reducers); ++r)
      for (int64_t n : {1, 2, 15, 16, 17, 1000, 1025, 5000}) {
        Nest nest = parse_nest(fmt::format(
            "nest 2 {{ %v0 = load {} [strided, contiguous] %v1 = {} store_column %v1 }}",
            name_of(d), column_reduction(reducers[r], "%v0", d)));
        Tensor x = Tensor::of_layout(Layout(d, {n, 3}), *Context::default_context());
        auto bytes = values(d, static_cast<size_t>(3 * n), static_cast<uint64_t>(n), n % 2 == 0);
        std::memcpy(x.mutable_data(), bytes.data(), bytes.size());
        Tensor want = ops::evaluate(operators[r], {x}, {{"dim", int64_t{0}, {}}})[0];
        ASSERT_EQ(want.dtype(), nest.dtype_of(1));
        std::vector<std::byte> got(3 * size_of(want.dtype()));
        std::byte* args[] = {x.mutable_data(), got.data()};
        evaluate(nest, {{n, 3}, {{3, 1}}}, args);
        for (size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(same(want.dtype(), &got[i * size_of(want.dtype())],
                           want.data() + i * size_of(want.dtype())))
              << operators[r] << " of " << name_of(d) << ", " << n;
      }
}

class Columns : public testing::TestWithParam<DType> {};

// Every reducer; rows that end within a vector; less than a chunk of them, a whole one, many;
// blocks of one chunk and of several; lanes and columns shared out.
TEST_P(Columns, ReduceInEveryWay) {
  const DType d = GetParam();
  std::vector<Sizes> sizes{{1024, 5},  {1025, 33}, {2049, 4}, {16384, 3},  {16385, 2},
                           {40000, 3}, {100, 700}, {3, 5000}, {1024, 256}, {1, 70}};
  for (int64_t n = 1; n <= 40; ++n) sizes.push_back({n, 41 - n});
  for (std::string_view walk :
       {"strided, contiguous", "strided, strided", "broadcast, contiguous", "strided, broadcast"})
    for (std::string_view r : reducers) {
      Nest nest = parse_nest(
          fmt::format("nest 2 {{ %v0 = load {} [{}] %v1 = {} store %v0 store_column %v1 }}",
                      name_of(d), walk, column_reduction(r, "%v0", d)));
      if (walk.starts_with("strided, c"))
        expect_same(nest, sizes);
      else
        expect_same(nest, std::vector<Sizes>{{33, 20}, {2000, 3}});
    }
}
INSTANTIATE_TEST_SUITE_P(All, Columns, testing::ValuesIn(all_dtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// No loop but the row's; rows of several outer loops, which end within sixteen.
TEST(ColumnKernels, OfOtherRanks) {
  expect_same(parse_nest("nest 1 { %v0 = load f32 [contiguous]\n"
                         "%v1 = reduce_columns sum(%v0) : f32 in f32 store_column %v1 }"),
              std::vector<Sizes>{{1}, {100}, {5000}});
  expect_same(parse_nest("nest 4 { %v0 = load f32 [strided, strided, strided, contiguous]\n"
                         "%v1 = load f32 [broadcast, strided, broadcast, strided]\n"
                         "%v2 = mul(%v0, %v1) : f32 in f32\n"
                         "%v3 = reduce_columns sum(%v2) : f32 in f32\n"
                         "%v4 = reduce_columns max(%v1) : f32 in f32 store_column %v4, %v3 }"),
              std::vector<Sizes>{{1, 1, 1, 9}, {2, 3, 5, 40}, {7, 11, 13, 33}, {3, 700, 9, 16}});
}

// Rows and columns in one: what rows give is in what columns reduce; several, of other dtypes.
TEST(ColumnKernels, BesideRows) {
  const Nest nest = parse_nest(
      "nest 3 { %v0 = load f32 [strided, strided, contiguous]\n"
      "%v1 = load bf16 [broadcast, broadcast, contiguous]\n"
      "%v2 = load f64 [strided, strided, broadcast]\n"
      "%v3 = number 0.001\n"
      "%v4 = reduce_columns sum(%v0) : f32 in f32\n"
      "%v5 = reduce sum(%v0) : f32 in f32\n"
      "%v6 = mul(%v5, %v3) : f32 in f32\n"
      "%v7 = sub(%v0, %v6) : f32 in f32\n"
      "%v8 = mul(%v7, %v1) : f32 in f32\n"
      "%v9 = reduce_columns sum(%v8) : f32 in f32\n"
      "%v10 = exp(%v7) : f32 in f32\n"
      "%v11 = reduce max(%v10) : f32 in f32\n"
      "%v12 = add(%v10, %v2) : f64 in f64\n"
      "%v13 = reduce_columns prod(%v12) : f64 in f64\n"
      "%v14 = lt(%v8, %v11) : bool in f32\n"
      "%v15 = reduce_columns any(%v14) : bool\n"
      "%v16 = reduce_columns min(%v2) : f64 in f64\n"
      "%v17 = convert(%v12) : i32\n"
      "%v18 = reduce_columns sum(%v17) : i64 in i64\n"
      "store %v8, %v12 store_row %v6, %v11 store_column %v18, %v4, %v9, %v13, %v15, %v16 }");
  expect_same(nest, std::vector<Sizes>{{1, 1, 1},
                                       {1, 2, 50},
                                       {2, 9, 17},
                                       {5, 7, 100},
                                       {3, 400, 33},
                                       {2, 9000, 5},
                                       {2, 512, 1024},
                                       {1, 1030, 777}});
}

// One worker and many: the same, whoever adds up which lanes.
TEST(ColumnKernels, DoNotDependOnWorkers) {
  if (!cpu::runs_here(some_isa)) GTEST_SKIP() << "no such instructions here";
  cpu::Compiler compiler;
  const Nest nest = parse_nest(
      "nest 2 { %v0 = load f32 [strided, contiguous] %v1 = exp(%v0) : f32 in f32\n"
      "%v2 = reduce_columns sum(%v1) : f32 in f32 store %v1 store_column %v2 }");
  auto kernel = compiler.compile(nest, some_isa);
  for (const Sizes& sizes :
       {Sizes{1000, 640}, Sizes{3000, 200}, Sizes{2105, 700}, Sizes{70000, 16}})
    for (int n : {1, 2, 3, 8}) {
      WorkerPool workers(n);
      EXPECT_EQ(Memory(nest, sizes, 5, true).difference(*kernel, workers), "")
          << to_string(sizes) << ", " << n;
    }
}

}  // namespace
}  // namespace gradus::fusion::test
