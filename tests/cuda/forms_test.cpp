// Kernels of single instructions on a simulated device: several shapes and dtypes, operands that
// lie otherwise, values at the edges. The bits are the CPU's, and the host does nothing.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "devices/cuda/kernels.h"
#include "gradus/state.h"
#include "gradus/text.h"
#include "tests/cuda/corpus.h"
#include "tests/cuda/device.h"
#include "tests/cuda/needs.h"

namespace gradus::fusion::test {
namespace {

class Forms : public testing::Test {
 public:
  void SetUp() override {
    GRADUS_NEEDS_NVRTC();
    context_->replace_part<Kernels>(std::make_shared<cuda::CudaKernels>(
        std::make_shared<InterpretedDevice>(), KernelOptions{.folder = kernel_folder()}, nullptr));
  }

  void check(std::string stage, std::string_view dtype, const std::vector<Tensor>& inputs) {
    for (size_t at; (at = stage.find("DTYPE")) != std::string::npos;) stage.replace(at, 5, dtype);
    const auto code = Code::compile(ir::parse("graph g { stage 0 " + stage + " }").program());
    State there(code, context_, {.fusion = FusionMode::first});
    State here(code, Context::default_context(), {.fusion = FusionMode::off});
    const std::vector<Tensor> got = there.run(inputs), expected = here.run(inputs);
    for (size_t r = 0; r < got.size(); ++r)
      EXPECT_TRUE(bitwise_equal(got[r], expected[r])) << stage << " result " << r;
    EXPECT_TRUE(there.host_instructions().empty()) << stage;
  }

  Tensor random(DType d, const Sizes& shape, std::initializer_list<double> among = {}) {
    std::vector<double> v(static_cast<size_t>(numel(shape)));
    std::uniform_int_distribution<size_t> one_of(0, 9);
    for (double& x : v) {
      x = is_floating(d) ? std::normal_distribution<double>()(engine_)
                         : std::uniform_int_distribution<int>(-9, 9)(engine_);
      if (const size_t k = one_of(engine_); k < among.size()) x = among.begin()[k];
    }
    return Tensor::from(d, shape, v);
  }
  // The same elements, with the last two dimensions the other way in memory.
  static Tensor turned(const Tensor& t) {
    Sizes shape = t.layout().shape, strides = t.layout().strides;
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    std::swap(strides[shape.size() - 1], strides[shape.size() - 2]);
    return t.view(Layout(t.dtype(), shape, strides), 0);
  }

 private:
  const std::shared_ptr<Context> context_ = std::make_shared<Context>(ContextOptions{});
  std::mt19937 engine_{7};
};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

TEST_F(Forms, MaxPool) {
  const char* two =
      "(%x: DTYPE[N, C, H, W]) { %v, %i = max_pool(%x) {kernel = [3, 2], stride = [2, 1],"
      " padding = [1, 0], dilation = [1, 2]} return %v, %i }";
  for (DType d : {DType::f64, DType::f32, DType::bf16}) {
    const Tensor x = random(d, {2, 3, 7, 6}, {not_a_number, -infinity, 0, -0.0, 1});
    check(two, name_of(d), {x});
    check(two, name_of(d), {turned(x)});
  }
  for (DType d : {DType::i64, DType::i8}) check(two, name_of(d), {random(d, {1, 2, 5, 9})});
  check("(%x: DTYPE[N, C, W]) { %v, %i = max_pool(%x) {kernel = 4} return %i }", "f32",
        {random(DType::f32, {3, 1, 50})});
  check(
      "(%x: DTYPE[N, C, D, H, W]) { %v, %i = max_pool(%x) {kernel = 2, padding = 1, stride = 2}"
      " return %v, %i }",
      "f16", {random(DType::f16, {1, 2, 3, 4, 5}, {not_a_number})});
}

TEST_F(Forms, PlacesOfExtrema) {
  for (DType d : {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i8}) {
    const Tensor x = random(d, {3, 50, 7}, {0, 1, -0.0}),
                 rare = is_floating(d) ? random(d, {3, 50, 7}, {not_a_number, infinity, -infinity})
                                       : x;
    for (int dim : {0, 1, 2})
      for (const char* op : {"max_dim", "min_dim"}) {
        const std::string stage = fmt::format(
            "(%x: DTYPE[A, B, C]) {{ %v, %i = {}(%x) {{dim = {}}} return %v, %i }}", op, dim);
        check(stage, name_of(d), {x});
        check(stage, name_of(d), {rare});
        check(stage, name_of(d), {turned(x)});
      }
    for (const char* op : {"argmax", "argmin"})
      check(fmt::format("(%x: DTYPE[A, B, C]) {{ %i = {0}(%x) %j = {0}(%x) {{dim = 1}} "
                        "return %i, %j }}",
                        op),
            name_of(d), {rare});
  }
}

// Rows of 1, of powers of two and beside them, of several blocks; ties, which keep their order.
TEST_F(Forms, RowsInOrder) {
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i8}) {
    const Tensor x = random(d, {4, 37, 4}, {0, 1, -0.0, -3}),
                 rare = is_floating(d) ? random(d, {4, 37, 4}, {not_a_number, infinity, -infinity})
                                       : x;
    for (int dim : {0, 1, 2})
      for (const char* how : {"true", "false"}) {
        const std::string sort = fmt::format(
            "(%x: DTYPE[A, B, C]) {{ %v, %i = sort(%x) {{dim = {}, descending = {}}} "
            "return %v, %i }}",
            dim, how);
        const std::string topk = fmt::format(
            "(%x: DTYPE[A, B, C]) {{ %v, %i = topk(%x) {{k = 3, dim = {}, largest = {}}} "
            "return %v, %i }}",
            dim, how);
        for (const std::string& stage : {sort, topk}) {
          check(stage, name_of(d), {x});
          check(stage, name_of(d), {rare});
          check(stage, name_of(d), {turned(x)});
        }
      }
  }
  for (int64_t n : {1, 2, 3, 8, 255, 256, 257, 2000})
    check("(%x: DTYPE[A, B]) { %v, %i = sort(%x) return %v, %i }", "f32",
          {random(DType::f32, {2, n}, {1, 2, 3, not_a_number})});
  check("(%x: DTYPE[]) { %v, %i = sort(%x) return %v, %i }", "f32", {random(DType::f32, {})});
  check("(%x: DTYPE[A]) { %v, %i = topk(%x) {k = 0} return %v, %i }", "f32",
        {random(DType::f32, {5})});
  check("(%x: DTYPE[A, B]) { %y = gt(%x, 0) %v, %i = sort(%y) {dim = 0} return %v, %i }", "f32",
        {random(DType::f32, {9, 5})});
}

TEST_F(Forms, ColumnsOfImages) {
  const char* unfold =
      "(%x: DTYPE[N, C, H, W]) { %y = unfold_im2col(%x) {kernel = [2, 3], dilation = [2, 1],"
      " padding = [1, 2], stride = [1, 2]} return %y }";
  const char* fold =
      "(%x: DTYPE[N, 12, L]) { %y = fold_col2im(%x) {output_size = [5, 6], kernel = [2, 3],"
      " dilation = [2, 1], padding = [1, 2], stride = [1, 2]} return %y }";
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    check(unfold, name_of(d), {random(d, {2, 2, 5, 6})});
    check(unfold, name_of(d), {turned(random(d, {1, 3, 8, 4}))});
    check(fold, name_of(d), {random(d, {2, 12, 20}, {-0.0})});
    check(fold, name_of(d), {turned(random(d, {1, 20, 12}))});
  }
}

TEST_F(Forms, TriangularSolve) {
  for (const char* how :
       {"", "{upper = true}", "{transpose = true}", "{upper = true, transpose = true}"})
    for (DType d : {DType::f64, DType::f32, DType::bf16}) {
      const std::string one = fmt::format(
          "(%a: DTYPE[K, K], %b: DTYPE[K, M]) {{ %y = triangular_solve(%a, %b) {} "
          "return %y }}",
          how);
      const std::string many = fmt::format(
          "(%a: DTYPE[P, Q, K, K], %b: DTYPE[P, Q, K, M]) {{ %y = triangular_solve(%a, %b) {} "
          "return %y }}",
          how);
      check(one, name_of(d), {random(d, {6, 6}), random(d, {6, 1})});
      check(one, name_of(d), {turned(random(d, {5, 5})), turned(random(d, {40, 5}))});
      check(many, name_of(d), {random(d, {2, 3, 4, 4}), random(d, {2, 3, 4, 7}, {0})});
    }
}

TEST_F(Forms, RandomBits) {
  for (int n : {1, 3, 4, 1023, 5000})
    check(
        fmt::format("(%k: DTYPE[2]) {{ %y = random_bits(%k) {{shape = [{}]}} return %y }}", n),
        "i64",
        {Tensor::from(DType::i64, Sizes{2}, std::vector<double>{-1234567890123.0, 98765432109.0})});
  check("(%k: i64[2]) { %y = random_bits(%k) {shape = [11], by_block = true} return %y }", "i64",
        {Tensor::from(DType::i64, Sizes{2}, std::vector<double>{-5, 4294967294.0})});
  check(
      "(%k: i64[K, 2]) { %y = random_bits(%k) {shape = [5]} return %y }", "i64",
      {Tensor::from(DType::i64, Sizes{3, 2}, std::vector<double>{-5, 1, 42, -1, 7, 98765432109})});
  check("(%k: i64[2]) { %u = normal(%k) {shape = [7, 5]} return %u }", "i64",
        {Tensor::from(DType::i64, Sizes{2}, std::vector<double>{1, 2})});
}

TEST_F(Forms, DivisionsOfIntegers) {
  for (const char* op : {"floor_divide", "remainder", "fmod"}) {
    const std::string stage = fmt::format(
        "(%x: DTYPE[A, 1, B], %y: DTYPE[C, B]) {{ %z = {0}(%x, %y) %w = {0}(%z, -3) return %z, %w "
        "}}",
        op);
    for (DType d : {DType::i64, DType::i32, DType::i8}) {
      Tensor y = random(d, {3, 40});
      std::vector<double> v = y.to_doubles();
      for (double& e : v) e = e == 0 ? -1 : e;
      y = Tensor::from(d, Sizes{3, 40}, v);
      const double least = d == DType::i8 ? -128 : d == DType::i32 ? -2147483648.0 : -0x1p63;
      check(stage, name_of(d), {random(d, {4, 1, 40}, {least, 0}), y});
    }
  }
}

}  // namespace
}  // namespace gradus::fusion::test
