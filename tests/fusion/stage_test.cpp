// Functions of whole stages: loops, products, sums, copies and calls for known sizes, with the
// reference's bits.
// SPEC F6
#include <numeric>
#include <utility>

#include <sys/mman.h>

#include "gradus/registry.h"
#include "kernels/gemm.h"
#include "kernels/reduce.h"
#include "tests/fusion/calls.h"
#include "tests/fusion/row_nests.h"
#include "tests/fusion/support.h"

namespace gradus::fusion::test {
namespace {

using cpu::Isa;

class Stages : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu::runs_here(GetParam())) GTEST_SKIP() << "no such instructions here";
  }
  std::shared_ptr<const StageKernel> compile(const StageProgram& p) {
    return compiler_.compile(p, GetParam());
  }
  // The nests for all of the sizes, by one function; each of its items has its own pointers.
  void expect_same(const std::vector<Nest>& nests, const std::vector<Sizes>& sizes,
                   bool tame = false) {
    StageProgram p;
    std::vector<Memory> memories;
    for (const Nest& nest : nests)
      for (const Sizes& s : sizes) {
        memories.emplace_back(nest, s, 7 + p.pieces.size(), tame);
        p.items.push_back({static_cast<uint32_t>(p.pieces.size()), 0, {}});
        p.pieces.push_back(work::Loops{nest, memories.back().frame});
      }
    auto code = compile(p);
    for (size_t i = 0; i < memories.size(); ++i)
      EXPECT_EQ(memories[i].difference([&](std::byte* const* args) { code->loops(i)(args); }), "")
          << describe(p.pieces[i]);
  }
  cpu::Compiler compiler_;
  WorkerPool workers_{1};
};

TEST_P(Stages, LoopsOfEveryOperator) {
  constexpr std::string_view walks[] = {"contiguous"};
  for (const ir::Operator* op : ops::all()) {
    if (!op->pointwise) continue;
    for (const std::string& attributes : attributes_of(*op)) {
      std::vector<Nest> nests;
      for (DType d : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::u8})
        nests.push_back(parse_nest(call_text(*op, d, attributes, 1, walks)));
      expect_same(nests, {{1}, {5}, {16}, {37}});
    }
  }
}

TEST_P(Stages, LoopsThatWalkInEveryWay) {
  std::vector<Nest> nests;
  for (std::string_view d : {"f32", "f64", "f16", "i32", "bool"})
    for (std::string_view last : {"contiguous", "strided", "broadcast"})
      for (std::string_view outer : {"strided, strided", "broadcast, strided"})
        nests.push_back(parse_nest(fmt::format(
            "nest 3 {{ %v0 = load {0} [{1}, {2}] %v1 = load f32 [strided, broadcast, contiguous] "
            "%v2 = maximum(%v0, %v1) : f32 in f32 store %v2, %v0 }}",
            d, outer, last)));
  expect_same(nests, {{1, 1, 3}, {2, 3, 5}, {2, 1, 32}, {1, 4, 1}});
}

TEST_P(Stages, LoopsThatReduceRows) {
  std::vector<Nest> nests;
  for (std::string_view d : {"f32", "f64", "bf16"}) {
    nests.push_back(parse_nest(softmax_nest(d)));
    nests.push_back(parse_nest(softmax_derivative_nest(d)));
  }
  for (std::string_view r : reducers)
    for (DType d : {DType::f32, DType::i32})
      nests.push_back(parse_nest(
          fmt::format("nest 2 {{ %v0 = load {} [strided, contiguous]\n%v1 = {} store_row %v1 }}",
                      name_of(d), reduction(r, "%v0", d))));
  expect_same(nests, {{1, 1}, {3, 5}, {2, 16}, {1, 40}, {2, 1100}}, true);
}

// Rows side by side: whole vectors of them, fewer, and some that are left.
TEST_P(Stages, LoopsOfShortRows) {
  for (std::string_view d : {"f32", "f64", "bf16"}) {
    std::vector<Nest> nests{parse_nest(softmax_nest(d)), parse_nest(softmax_derivative_nest(d))};
    nests.push_back(parse_nest(fmt::format(
        "nest 2 {{ %v0 = load {0} [strided, contiguous] %v1 = load {0} [strided, broadcast]\n"
        "%v2 = mul(%v0, %v1) : {0} in {1} store %v2 }}",
        d, d == "f64" ? "f64" : "f32")));
    for (Nest& nest : nests) nest.row_size = 3;
    expect_same(nests, {{1, 3}, {5, 3}, {16, 3}, {37, 3}}, true);
  }
}

// Bytes that end where a page ends that nobody may read.
class Fenced {
 public:
  explicit Fenced(std::span<const std::byte> bytes) : size_((bytes.size() / page + 2) * page) {
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<std::byte*>(memory);
    data_ = first_ + size_ - page - bytes.size();
    std::ranges::copy(bytes, data_);
    mprotect(first_ + size_ - page, page, PROT_NONE);
  }
  Fenced(Fenced&& other) noexcept
      : size_(other.size_), first_(std::exchange(other.first_, nullptr)), data_(other.data_) {}
  ~Fenced() {
    if (first_) munmap(first_, size_);
  }
  std::byte* data() const { return data_; }
  const std::byte& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr size_t page = 4096;
  size_t size_;
  std::byte* first_;
  std::byte* data_;
};

work::Gemm product(DType d, int64_t m, int64_t k, int64_t n, int64_t a_row, int64_t a_column,
                   int64_t b_row, int64_t b_column) {
  work::Gemm g;
  g.dtype = d;
  g.m = m, g.k = k, g.n = n;
  g.a_row = a_row, g.a_column = a_column, g.b_row = b_row, g.b_column = b_column;
  return g;
}

work::Work inline_product(DType d, int64_t m, int64_t k, int64_t n, int64_t a_row, int64_t a_column,
                          int64_t b_row, int64_t b_column) {
  return work::Product{product(d, m, k, n, a_row, a_column, b_row, b_column)};
}

int64_t extent(int64_t rows, int64_t row, int64_t columns, int64_t column) {
  return (rows - 1) * row + (columns - 1) * column + 1;
}

TEST_P(Stages, Products) {
  StageProgram p;
  for (DType d : {DType::f32, DType::f64})
    for (auto [m, k, n] : {std::array{1, 1, 1},
                           {1, 16, 64},
                           {16, 1, 64},
                           {3, 5, 7},
                           {6, 17, 33},
                           {1, 128, 40},
                           {9, 3, 1},
                           {1, 3, 9},
                           {12, 20, 2},
                           {13, 128, 1}})
      for (bool a_turned : {false, true})
        for (bool b_turned : {false, true})
          for (int64_t gap : {0, 3})
            if (auto g = product(d, m, k, n, a_turned ? 1 : k + gap, a_turned ? m + gap : 1,
                                 b_turned ? 1 : n + gap, b_turned ? k + gap : 1);
                is_inline(work::Product{g}))
              p.pieces.push_back(work::Product{g});
  EXPECT_GT(p.pieces.size(), 120u);  // of 160: not where what is a vector would have gaps
  for (uint32_t n = 0; n < p.pieces.size(); ++n) p.items.push_back({n, 3 * n, {}});
  std::vector<Fenced> operands;
  std::vector<std::vector<std::byte>> results;
  std::vector<std::byte*> args;
  for (size_t n = 0; n < p.pieces.size(); ++n) {
    const work::Gemm& g = std::get<work::Product>(p.pieces[n]).gemm;
    auto count = [&](int64_t e) { return static_cast<size_t>(e); };
    operands.emplace_back(values(g.dtype, count(extent(g.m, g.a_row, g.k, g.a_column)), n, n % 2));
    operands.emplace_back(values(g.dtype, count(extent(g.k, g.b_row, g.n, g.b_column)), ~n, n % 2));
    results.emplace_back(count(g.m * g.n) * size_of(g.dtype) + 64, std::byte{0xa5});
    args.insert(args.end(),
                {operands[2 * n].data(), operands[2 * n + 1].data(), results[n].data()});
  }
  size_t item = 0;
  compile(p)->run_once(args.data(), {}, workers_, nullptr, item);
  EXPECT_EQ(item, p.items.size());
  for (size_t n = 0; n < p.pieces.size(); ++n) {
    const work::Gemm& g = std::get<work::Product>(p.pieces[n]).gemm;
    const size_t bytes = results[n].size() - 64, size = size_of(g.dtype);
    std::vector<std::byte> expected(bytes), scratch(kernels::gemm_scratch_bytes(g) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    kernels::gemm(g, operands[2 * n].data(), operands[2 * n + 1].data(), expected.data(), aligned,
                  workers_);
    for (size_t e = 0; e < bytes; e += size)
      ASSERT_TRUE(same(g.dtype, &results[n][e], &expected[e]))
          << print(p.pieces[n]) << " element " << e / size;
    for (size_t e = bytes; e < results[n].size(); ++e) ASSERT_EQ(results[n][e], std::byte{0xa5});
  }
}

TEST_P(Stages, ProductsThatAreNoCodeOfTheirs) {
  EXPECT_TRUE(is_inline(inline_product(DType::f32, 1, 16, 64, 16, 1, 64, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f16, 1, 16, 64, 16, 1, 64, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f32, 1, 0, 64, 16, 1, 64, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f32, 64, 64, 64, 64, 1, 64, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f32, 1, 300, 1, 1, 1, 1, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f32, 1, int64_t{1} << 62, 1 << 20, 1, 1, 1, 1)));
  EXPECT_FALSE(is_inline(inline_product(DType::f32, 4, 4, 4, 4, 1, 8, 2)));  // gaps either way
  work::Gemm batch = product(DType::f32, 2, 2, 2, 2, 1, 2, 1);
  batch.batch.push_back({3, 4, 4});
  EXPECT_FALSE(is_inline(work::Product{batch}));
}

work::Reduce sum_of(DType d, work::Axes kept, work::Axes reduced) {
  work::Reduce r{work::Reducer::sum, d, d, kept, reduced};
  for (const work::Axis& a : kept) r.outputs *= a.size;
  for (const work::Axis& a : reduced) r.count *= a.size;
  return r;
}

TEST_P(Stages, Sums) {
  StageProgram p;
  for (DType d : {DType::f32, DType::f64}) {
    for (int64_t n : {1, 3, 16, 64, 77})
      for (int64_t count : {1, 2, 15, 16, 17, 26})
        p.pieces.push_back(sum_of(d, {{n, 1}}, {{count, n + 2}}));
    p.pieces.push_back(sum_of(d, {{9, 1}}, {{5, 40}, {6, 10}}));  // of a middle dimension, too
    p.pieces.push_back(sum_of(d, {{1, 7}}, {{50, 1}}));
  }
  std::vector<Fenced> operands;
  std::vector<std::vector<std::byte>> results;
  std::vector<std::byte*> args;
  for (uint32_t n = 0; n < p.pieces.size(); ++n) {
    const auto& r = std::get<work::Reduce>(p.pieces[n]);
    ASSERT_TRUE(is_inline(r));
    p.items.push_back({n, 2 * n, {}});
    auto last = [](const work::Axes& axes) {
      int64_t at = 0;
      for (const work::Axis& a : axes) at += (a.size - 1) * a.stride;
      return at;
    };
    const auto elements = static_cast<size_t>(last(r.kept) + last(r.reduced) + 1);
    operands.emplace_back(values(r.in, elements, n, n % 2));
    results.emplace_back(static_cast<size_t>(r.outputs) * size_of(r.in) + 64, std::byte{0xa5});
    args.insert(args.end(), {operands[n].data(), results[n].data()});
  }
  size_t item = 0;
  compile(p)->run_once(args.data(), {}, workers_, nullptr, item);
  for (size_t n = 0; n < p.pieces.size(); ++n) {
    const auto& r = std::get<work::Reduce>(p.pieces[n]);
    const size_t size = size_of(r.in);
    const auto count = static_cast<size_t>(r.count);
    for (size_t o = 0; o < static_cast<size_t>(r.outputs); ++o) {
      std::vector<std::byte> terms(count * size), expected(size);
      for (size_t t = 0; t < count; ++t) {
        const auto inner = static_cast<size_t>(r.reduced.back().size);
        size_t at = o + t % inner * static_cast<size_t>(r.reduced.back().stride);
        if (r.reduced.size() > 1) at += t / inner * static_cast<size_t>(r.reduced[0].stride);
        std::memcpy(&terms[t * size], &operands[n][at * size], size);
      }
      kernels::reduce_run(work::Reducer::sum, compute_of(r.in), terms.data(), r.count,
                          expected.data());
      ASSERT_TRUE(same(r.in, &results[n][o * size], expected.data())) << print(r) << o;
    }
    for (size_t e = static_cast<size_t>(r.outputs) * size; e < results[n].size(); ++e)
      ASSERT_EQ(results[n][e], std::byte{0xa5});
  }
  EXPECT_FALSE(is_inline(sum_of(DType::f32, {{4, 2}}, {{3, 8}})));
  EXPECT_FALSE(is_inline(sum_of(DType::f16, {{4, 1}}, {{3, 4}})));
  EXPECT_FALSE(is_inline(sum_of(DType::f32, {{4, 1}}, {{65, 4}})));
  EXPECT_FALSE(is_inline(sum_of(DType::f32, {{0, 1}}, {{3, 4}})));
}

TEST_P(Stages, Copies) {
  auto window = [](int argument, DType d, Sizes strides, int64_t offset = 0) {
    return work::Window{argument, d, std::move(strides), offset};
  };
  StageProgram p;
  work::Move joined, turned, single;
  // rows of 3 and 70 joined, then a fill
  joined.copies.push_back(
      {{2, 3}, window(0, DType::f32, {5, 1}, 1), window(1, DType::f32, {75, 1}), false, {}});
  joined.copies.push_back(
      {{2, 70}, window(0, DType::f32, {70, 1}, 9), window(1, DType::f32, {75, 1}, 3), false, {}});
  joined.copies.push_back({{2, 2},
                           {},
                           window(1, DType::f32, {75, 1}, 73),
                           true,
                           work::pattern_of(ir::Number::of(0.25), DType::f32)});
  turned.copies.push_back(
      {{4, 6}, window(0, DType::u8, {1, 4}), window(1, DType::u8, {6, 1}), false, {}});
  single.copies.push_back(
      {{}, window(0, DType::f64, {}, 2), window(1, DType::f64, {}, 1), false, {}});
  p.pieces = {joined, turned, single};
  for (uint32_t n = 0; n < 3; ++n) {
    ASSERT_TRUE(is_inline(p.pieces[n]));
    p.items.push_back({n, 2 * n, {}});
  }
  const auto from = values(DType::f32, 200, 1);
  std::vector<std::byte> a(150 * 4 + 64, std::byte{0xa5}), b(24 + 64, std::byte{0xa5}),
      c(16 + 64, std::byte{0xa5});
  auto* source = const_cast<std::byte*>(from.data());
  std::byte* args[] = {source, a.data(), source, b.data(), source, c.data()};
  size_t item = 0;
  compile(p)->run_once(args, {}, workers_, nullptr, item);
  auto element = [](const std::vector<std::byte>& of, size_t at, size_t size) {
    return std::vector<std::byte>(of.begin() + static_cast<long>(at * size),
                                  of.begin() + static_cast<long>((at + 1) * size));
  };
  const float quarter = 0.25f;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 3; ++j)
      EXPECT_EQ(element(a, i * 75 + j, 4), element(from, i * 5 + j + 1, 4));
    for (size_t j = 0; j < 70; ++j)
      EXPECT_EQ(element(a, i * 75 + j + 3, 4), element(from, i * 70 + j + 9, 4));
    for (size_t j = 73; j < 75; ++j) EXPECT_EQ(std::memcmp(&a[(i * 75 + j) * 4], &quarter, 4), 0);
  }
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 6; ++j) EXPECT_EQ(b[i * 6 + j], from[i + j * 4]);
  EXPECT_EQ(element(c, 1, 8), element(from, 2, 8));
  EXPECT_EQ(c[0], std::byte{0xa5});
  for (auto [of, end] : {std::pair(&a, 600), {&b, 24}, {&c, 16}})
    for (size_t e = static_cast<size_t>(end); e < of->size(); ++e)
      EXPECT_EQ((*of)[e], std::byte{0xa5});
  work::Move converts = single;
  converts.copies[0].source.dtype = DType::f32;
  EXPECT_FALSE(is_inline(converts));
  work::Move large = joined;
  large.copies[1].shape = {2, 1000};
  EXPECT_FALSE(is_inline(large));
}

// Adds its number to a float, and throws where that was negative.
struct Adder {
  float number;
  static void run(const void* self, std::byte* const* args, work::KernelScope& scope) {
    auto& x = *reinterpret_cast<float*>(args[0]);
    if (x < 0) throw Error("{} is negative", x);
    x += static_cast<const Adder*>(self)->number;
    if (scope.scratch) *reinterpret_cast<float*>(scope.scratch) = x;
  }
};

TEST_P(Stages, CallsInTheirPlaceAndWhatTheyThrow) {
  const Nest twice = parse_nest(
      "nest 1 { %v0 = load f32 [contiguous] %v1 = add(%v0, %v0) : f32 in f32 store %v1 }");
  StageProgram p;
  p.pieces.push_back(work::Loops{twice, {{1}, {{1}}}});
  p.items = {{StageProgram::call, 0, {}}, {0, 0, {}}, {StageProgram::call, 0, {}}};
  const Adder one{1}, ten{10};
  alignas(64) float scratch[32] = {};
  const OuterCall calls[] = {{Adder::run, &one, 0, 0}, {Adder::run, &ten, 1, 64}};
  float x = 3, y = 0;
  std::byte* args[] = {reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&y)};
  auto code = compile(p);
  size_t item = 0;
  auto run = [&] {
    code->run_once(args, calls, workers_, reinterpret_cast<std::byte*>(scratch), item);
  };
  run();
  EXPECT_EQ(x, 4);
  EXPECT_EQ(y, 18);
  EXPECT_EQ(item, 3u);
  EXPECT_EQ(scratch[0], 4);
  EXPECT_EQ(scratch[16], 18);
  x = -5;
  y = 1;
  EXPECT_THROW(run(), Error);
  EXPECT_EQ(item, 0u);
  EXPECT_EQ(y, 1);  // nothing after it has run
  x = 1;
  run();
  EXPECT_EQ(y, 14);
  x = -0.5f;  // -0.5 + 1 is 0.5, so that nothing is negative after the first
  EXPECT_THROW(run(), Error);
  p.items[0].piece = 0;  // y = 2 x, then what the last call does
  p.items.erase(p.items.begin() + 1);
  code = compile(p);
  x = -2;
  const OuterCall last[] = {{Adder::run, &ten, 1, 64}};
  EXPECT_THROW(code->run_once(args, last, workers_, reinterpret_cast<std::byte*>(scratch), item),
               Error);
  EXPECT_EQ(item, 1u);
  EXPECT_EQ(y, -4);
}

// A running sum: the sum goes from one place to the other and back, terms are neighbours.
TEST_P(Stages, RoundsMovePointersInTurns) {
  const Nest sum = parse_nest(
      "nest 1 { %v0 = load f32 [contiguous] %v1 = load f32 [contiguous] %v2 = add(%v0, %v1) : f32 "
      "in f32 store %v2 }");
  StageProgram p;
  p.pieces.push_back(work::Loops{sum, {{1}, {{1}, {1}}}});
  p.items = {{0, 0, {}}, {StageProgram::call, 2, {}}};
  const Adder none{0};
  const OuterCall calls[] = {{Adder::run, &none, 0, 0}};
  float terms[] = {1, 2, 3, 4, 5, 6}, places[] = {10, 0};
  auto bytes = [](float* x) { return reinterpret_cast<std::byte*>(x); };
  std::byte* args[] = {bytes(terms), bytes(places), bytes(places + 1)};
  PointerMove moves[] = {{0, 4, 4}, {1, 4, -4}, {2, -4, 4}};
  auto code = compile(p);
  Rounds rounds{5, moves};
  size_t item = 0;
  code->run(args, rounds, calls, workers_, nullptr, item);
  EXPECT_EQ(rounds.left, 0);
  EXPECT_EQ(item, 2u);
  EXPECT_EQ(places[0], 20);
  EXPECT_EQ(places[1], 25);
  EXPECT_EQ(args[0], bytes(terms + 4));

  // Until the sum is negative.
  args[0] = bytes(terms);
  args[1] = bytes(places);
  args[2] = bytes(places + 1);
  terms[2] = -100;
  rounds.left = 5;
  EXPECT_THROW(code->run(args, rounds, calls, workers_, nullptr, item), Error);
  EXPECT_EQ(rounds.left, 3);
  EXPECT_EQ(item, 1u);
  EXPECT_EQ(args[0], bytes(terms + 2));
}

// Objects are kept for other processes: nothing of this one is in them.
TEST_P(Stages, LoadFromObjects) {
  StageProgram p;
  p.pieces.push_back(inline_product(DType::f32, 2, 3, 4, 3, 1, 4, 1));
  p.items = {{0, 0, {}}, {StageProgram::call, 0, {}}};
  cpu::CompileTimes times;
  const std::string object = compiler_.object(p, GetParam(), times);
  cpu::Compiler other;
  auto code = other.load(p, object);
  std::vector<float> a(6), b(12), c(8);
  std::iota(a.begin(), a.end(), 1.0f);
  std::iota(b.begin(), b.end(), 1.0f);
  std::byte* args[] = {reinterpret_cast<std::byte*>(a.data()),
                       reinterpret_cast<std::byte*>(b.data()),
                       reinterpret_cast<std::byte*>(c.data())};
  const Adder one{1};
  const OuterCall calls[] = {{Adder::run, &one, 2, 0}};
  size_t item = 0;
  code->run_once(args, calls, workers_, nullptr, item);
  EXPECT_EQ(c, (std::vector<float>{39, 44, 50, 56, 83, 98, 113, 128}));
  EXPECT_THROW(other.load(p, object.substr(0, object.size() / 2)), ResourceError);
  EXPECT_NE(cpu::Compiler::key(p, GetParam()), cpu::Compiler::key(StageProgram{}, GetParam()));
}

TEST(StageProgramTest, PrintsWhatItsCodeDependsOn) {
  StageProgram p;
  p.pieces.push_back(
      work::Loops{parse_nest("nest 1 { %v0 = load f32 [contiguous] %v1 = exp(%v0) : f32 in f32 "
                             "store %v1 }"),
                  {{16}, {{1}}}});
  p.pieces.push_back(inline_product(DType::f64, 2, 3, 4, 3, 1, 1, 3));
  p.items = {{0, 0, {}}, {1, 2, {}}, {StageProgram::call, 5, {}}};
  EXPECT_EQ(print(p),
            "stage {\n"
            "0: nest 1 {\n  %v0 = load f32 [contiguous]\n  %v1 = exp(%v0) : f32 in f32\n"
            "  store %v1\n}\n"
            "at {sizes = [16], strides = [[1]], parts = [], index_steps = []}\n"
            "1: product {gemm = {dtype = f64, m = 2, n = 4, k = 3, a_row = 3, a_column = 1, "
            "b_row = 1, b_column = 3, batch = []}, adds_row = false}\n"
            "0 at 0\n1 at 2\ncall at 5\n}\n");
}

INSTANTIATE_TEST_SUITE_P(Widths, Stages, testing::Values(Isa::avx2, Isa::avx512),
                         [](const auto& info) {
                           return info.param == Isa::avx2 ? "avx2" : "avx512";
                         });

}  // namespace
}  // namespace gradus::fusion::test
