// Operands that several small products read across their rows are copied once, with the same bits.
#include "interpreter/plan.h"
#include "kernels/evaluate.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

constexpr const char* program = R"(
graph g {
  stage 0 (%a: f32[M, K], %w: f32[N, K], %c: f32[L, K]) {
    %p = matmul(%a, %w) {transpose_b = true}
    %u = tanh(%p)
    %q = matmul(%c, %w) {transpose_b = true}
    %t = transpose(%w) {dim0 = 0, dim1 = 1}
    %r = matmul(%a, %t)
    %v = add(%w, 1)
    %s = matmul(%c, %v) {transpose_b = true}
    return %u, %q, %r, %s
  }
}
)";

Tensor wave(int64_t rows, int64_t columns, int seed) {
  Tensor t = Tensor::zeros(DType::f32, Sizes{rows, columns});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_as<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i * 7 + seed)));
  return t;
}

// How many steps a plan has.
size_t steps(const Code& code, std::span<const Tensor> inputs) {
  std::vector<int64_t> key;
  for (const Tensor& t : inputs) interpreter::append_input_key(t, key);
  return interpreter::make_plan(code, 0, nullptr, inputs, key, {})->steps.size();
}

TEST(SharedPackings, GiveTheBitsOfEachProductAlone) {
  auto code = compile(program);
  CancelToken never;
  for (auto [m, l, n, k] : {std::array<int64_t, 4>{1, 2, 64, 16},
                            {3, 1, 5, 7},
                            {12, 7, 17, 100},
                            {1, 1, 2, 2},
                            {2, 3, 300, 40},
                            {1, 40, 8, 8}}) {
    const Tensor a = wave(m, k, 1), w = wave(n, k, 2), c = wave(l, k, 3);
    const Tensor p = ops::evaluate("matmul", {a, w}, {{"transpose_b", true, {}}})[0];
    const Tensor q = ops::evaluate("matmul", {c, w}, {{"transpose_b", true, {}}})[0];
    for (bool watched : {false, true}) {
      State state(code);
      RunOptions options;
      if (watched) options.cancel = &never;
      auto y = run(state, {a, w, c}, options);
      EXPECT_TRUE(bitwise_equal(y[0], ops::evaluate("tanh", {p})[0])) << m << " " << n << " " << k;
      EXPECT_TRUE(bitwise_equal(y[1], q)) << l << " " << n << " " << k;
      EXPECT_TRUE(bitwise_equal(y[2], p)) << m << " " << n << " " << k;
    }
  }
}

TEST(SharedPackings, AreOneStepMore) {
  auto code = compile(program);
  // Four products, tanh and add. The first two share a copy; the view lies otherwise.
  EXPECT_EQ(steps(*code, std::array{wave(1, 16, 1), wave(64, 16, 2), wave(2, 16, 3)}), 7u);
  // Two of many rows: one is left that would, which has nobody to share with.
  EXPECT_EQ(steps(*code, std::array{wave(40, 16, 1), wave(64, 16, 2), wave(2, 16, 3)}), 6u);
}

}  // namespace
}  // namespace gradus
