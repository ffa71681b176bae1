// Reductions of rows in groups: what joins, what does not, and the same bits.
#include "gradus/passes.h"
#include "tests/corpus/fused.h"
#include "tests/interpreter/support.h"

namespace gradus {
namespace {

using namespace test;

const std::shared_ptr<Context>& fusing() {
  static const auto context = [] {
    ContextOptions options;
    options.workers = 2;
    auto c = std::make_shared<Context>(options);
    set_kernel_options(*c, {.always = true});
    return c;
  }();
  return context;
}

Tensor wave(const Sizes& shape, int seed) {
  Tensor t = Tensor::zeros(DType::f32, shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_as<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i * 7 + seed)));
  return t;
}

// Runs all stages fused and not on random inputs of these sizes; "0 1 2, 5 6" for each stage.
std::string groups_of(const std::string& text, std::optional<int> order, const Sizes& sizes) {
  if (!corpus::has_kernels()) return "no kernels here";
  ir::Module module = ir::parse(text);
  auto code = Code::compile(order ? ir::differentiate(module.program(), {.order = *order})
                                  : module.program());
  State plain(code, Context::default_context(), {.fusion = FusionMode::off}),
      fused(code, fusing(), {.fusion = FusionMode::first});
  std::string shown;
  for (size_t stage = 0; stage < code->stages(); ++stage) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < code->inputs(stage); ++i) {
      Sizes shape;
      for (const ir::Dim& d : code->input_type(stage, i).dims)
        shape.push_back(d.is_constant() ? d.value() : sizes[d.to_string() == "N" ? 0 : 1]);
      inputs.push_back(wave(shape, static_cast<int>(stage * 10 + i)));
    }
    auto expected = run(plain, inputs), results = run(fused, inputs);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(expected[i].defined(), results[i].defined());
      if (expected[i].defined()) {
        EXPECT_TRUE(bitwise_equal(expected[i], results[i])) << stage << ", " << i;
      }
    }
    for (const FusedGroup& g : fused.groups()) {
      if (g.stage != stage) continue;
      if (!shown.empty()) shown += ", ";
      for (size_t k = 0; k < g.instructions.size(); ++k)
        shown += fmt::format("{}{}", k ? " " : "", g.instructions[k]);
    }
    shown += ";";
  }
  return shown;
}

class FusedRows : public testing::Test {
  void SetUp() override {
    if (!corpus::has_kernels()) GTEST_SKIP() << "no kernels here";
  }
};

std::string one_stage(const std::string& inputs, const std::string& body) {
  return "graph g {\n stage 0 (" + inputs + ") {\n" + body + "\n }\n}\n";
}

TEST_F(FusedRows, SoftmaxIsOneKernelInEachStage) {
  const std::string text = one_stage("%x: f32[N, M]", "%y = softmax(%x) {dim = -1}\nreturn %y");
  for (Sizes sizes : {Sizes{5, 70}, Sizes{3, 1500}, Sizes{300, 16}})
    EXPECT_EQ(groups_of(text, 1, sizes), "0 1 2 3 4;, 0 1 2 3;");
  // What repeats a row's sum for each element is no end of a group.
  EXPECT_EQ(groups_of(text, 2, {5, 70}), "0 1 2 3 4;, 0 1 2 3;, 0 1 2 3 5 6 7 8 9 10 11 12;");
}

TEST_F(FusedRows, StepsOfRowsJoin) {
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M], %w: f32[M]",
                                "%s = sum(%x) {dim = [1], keepdim = true}\n%m = div(%s, 7)\n"
                                "%c = sub(%x, %m)\n%q = mul(%c, %c)\n"
                                "%v = sum(%q) {dim = [1], keepdim = true}\n%r = rsqrt(%v)\n"
                                "%n = mul(%c, %r)\n%y = mul(%n, %w)\nreturn %y, %r, %m"),
                      {}, {4, 33}),
            "0 1 2 3 4 5 6 7;");
}

// A sum without its dimension has no place in the loops: it ends where it is read.
TEST_F(FusedRows, ADroppedDimensionIsReadByNobody) {
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1]}\n%l = log(%s)\n"
                                "%k = neg(%l)\nreturn %k"),
                      {}, {6, 40}),
            "0 1, 2 3;");
  // Where both sizes agree as well.
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M], %c: f32[M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1]}\n%l = mul(%s, %c)\n"
                                "%k = mul(%e, %l)\nreturn %k, %l"),
                      {}, {40, 40}),
            "0 1;");
}

// What is reduced to one number broadcasts as it is.
TEST_F(FusedRows, ANumberOfAllIsReadByItsGroup) {
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e)\n%y = div(%e, %s)\n%l = log(%s)\n"
                                "return %y, %l"),
                      {}, {6, 40}),
            "0 1 2;");
}

TEST_F(FusedRows, OfOtherRowsStayApart) {
  // Over a dimension that is neither first nor last, and over both.
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, 3, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1], keepdim = true}\n"
                                "%y = div(%e, %s)\n%z = neg(%y)\nreturn %z"),
                      {}, {6, 40}),
            "2 3;");
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1], keepdim = true}\n"
                                "%t = sum(%e) {dim = [0, 1], keepdim = true}\n"
                                "%y = div(%e, %s)\n%z = neg(%y)\nreturn %z, %t"),
                      {}, {6, 40}),
            "0 1 3 4;");
  // A whole tensor is a row as well, of any number of dimensions.
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M, 3], %t: f32[N, M, 3]",
                                "%d = sub(%x, %t)\n%q = mul(%d, %d)\n%s = sum(%q)\nreturn %s"),
                      {}, {6, 40}),
            "0 1 2;");
}

// Sums over leading dimensions join, beside rows too, and whoever reads one ends the group.
TEST_F(FusedRows, ColumnsJoin) {
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [0], keepdim = true}\n"
                                "%y = div(%e, %s)\n%z = neg(%y)\nreturn %z"),
                      {}, {6, 40}),
            "0 1, 2 3;");
  const std::string norm =
      one_stage("%x: f32[N, M], %w: f32[M], %b: f32[M]",
                "%y = layer_norm(%x, %w, %b) {normalized_shape = [M]}\nreturn %y");
  EXPECT_EQ(groups_of(norm, 1, {50, 70}), "0 1 2 3 4 5 6 7 8 9 10;, 0 1 2 3 4 5 6 7 8 9 10 11 12;");
  // Rows and columns are all dimensions, each once.
  EXPECT_EQ(groups_of(one_stage("%x: f32[3, N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [0]}\n"
                                "%t = sum(%e) {dim = [2]}\nreturn %s, %t"),
                      {}, {6, 40}),
            "0 1;");
  EXPECT_EQ(groups_of(one_stage("%x: f32[3, N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [0]}\n"
                                "%t = sum(%e) {dim = [1, 2]}\nreturn %s, %t"),
                      {}, {6, 40}),
            "0 1 2;");
  // A column's value as one of each row is not what a row has.
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [0], keepdim = true}\n"
                                "%v = expand(%s) {shape = [N, M]}\n%y = div(%e, %v)\n"
                                "%z = neg(%y)\nreturn %z"),
                      {}, {6, 40}),
            "0 1, 3 4;");
}

// Without elements there is nothing to run over: rows and columns are what sums of nothing are.
TEST_F(FusedRows, OfNoElements) {
  const std::string rows = one_stage("%x: f32[N, M]",
                                     "%s = sum(%x) {dim = [1]}\n%p = prod(%x) {dim = 1}\n"
                                     "return %s, %p");
  EXPECT_EQ(groups_of(rows, {}, {3, 0}), ";");
  const std::string columns = one_stage("%x: f32[N, M]",
                                        "%s = sum(%x) {dim = [0]}\n%p = prod(%x) {dim = 0}\n"
                                        "return %s, %p");
  EXPECT_EQ(groups_of(columns, {}, {0, 3}), ";");
  EXPECT_EQ(groups_of(columns, {}, {2, 3}), "0 1;");
}

// Where the rows of operands are no single loop, a group is cut until they are.
TEST_F(FusedRows, RowsThatDoNotJoinAreCut) {
  const std::string transposed = "%t = transpose(%x) {dim0 = 1, dim1 = 2}\n%e = exp(%t)\n";
  const std::string rest = "%y = div(%e, %s)\nreturn %y";
  EXPECT_EQ(
      groups_of(one_stage("%x: f32[3, N, M]",
                          transposed + "%s = sum(%e) {dim = [1, 2], keepdim = true}\n" + rest),
                {}, {6, 40}),
      "2 3;");
  EXPECT_EQ(groups_of(one_stage("%x: f32[3, N, M]",
                                transposed + "%q = mul(%e, %e)\n" +
                                    "%s = sum(%q) {dim = [1, 2], keepdim = true}\n" + rest),
                      {}, {6, 40}),
            "1 2, 3 4;");
}

// A view of a row's value that leaves, or that moves along the row, ends the group.
TEST_F(FusedRows, ViewsThatSayMoreEndAGroup) {
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1], keepdim = true}\n"
                                "%v = expand(%s) {shape = [N, M]}\n%y = div(%e, %v)\n%z = neg(%y)\n"
                                "return %z, %v"),
                      {}, {6, 40}),
            "0 1, 3 4;");
  EXPECT_EQ(groups_of(one_stage("%x: f32[N, M]",
                                "%e = exp(%x)\n%s = sum(%e) {dim = [1], keepdim = true}\n"
                                "%v = transpose(%s) {dim0 = 0, dim1 = 1}\n%y = div(%e, %v)\n"
                                "%z = neg(%y)\nreturn %z"),
                      {}, {40, 40}),
            "0 1, 3 4;");
}

// One element of a row, none at all, and rows of several chunks; losses and norms at order two.
TEST_F(FusedRows, GiveTheSameBits) {
  const std::pair<const char*, const char*> programs[] = {
      {"%x: f32[N, M], %w: f32[M], %b: f32[M]",
       "%y = layer_norm(%x, %w, %b) {normalized_shape = [M]}\nreturn %y"},
      {"%x: f32[N, M]", "%y = log_softmax(%x) {dim = -1}\nreturn %y"},
      {"%x: f32[N, M], %w: f32[M]",
       "%a = mul(%x, %w)\n%e = tanh(%a)\n%s = sum(%e) {dim = [0]}\n%y = mul(%s, %s)\nreturn %y"},
      {"%x: f32[N, M], %t: f32[N, M]", "%y = mse_loss(%x, %t)\nreturn %y"},
      {"%x: f32[N, M]", "%y = amax(%x) {dim = [1]}\n%z = mul(%y, %y)\nreturn %z"},
      {"%x: f32[N, M]", "%y = logsumexp(%x) {dim = [1]}\nreturn %y"}};
  for (auto [inputs, body] : programs)
    for (Sizes sizes : {Sizes{4, 1}, Sizes{1, 9}, Sizes{7, 40}, Sizes{2, 2100}, Sizes{0, 5},
                        Sizes{1100, 6}, Sizes{260, 200}})
      groups_of(one_stage(inputs, body), 2, sizes);
}

}  // namespace
}  // namespace gradus
