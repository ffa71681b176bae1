// `differentiate`: structural zeros, and cotangents and values that are not there.
#include "tests/passes/support.h"

namespace gradus {
namespace {

using namespace test;

// SPEC D2
TEST(Differentiate, StructuralZerosAreDecidedByRules) {
  ir::Graph g = derived(R"(
graph f {
  stage 0 (%x: f64[2], %w: f64[2], %d: f64[2], %r: f64[2], %z: f64[2], %unused: f64[2]) {
    %detached = detach(%d)
    %rounded = round(%r)
    %zero = mul(%z, 0.0)
    %a = add(%x, %w)
    %b = add(%a, %detached)
    %c = add(%b, %rounded)
    %y = add(%c, %zero)
    return %y
  }
}
)",
                        {.order = 2});
  // A product with 0.0 is no structural zero: nobody looks at numbers.
  EXPECT_EQ(signature(g, 1),
            "ct1_y: f64[2] -> d1_x: f64[2], d1_w: f64[2], d1_d = none, d1_r = none, d1_z: f64[2], "
            "d1_unused = none");
  EXPECT_EQ(signature(g, 2),
            "ct2_d1_x: f64[2], ct2_d1_w: f64[2], ct2_d1_d: f64[2], ct2_d1_r: f64[2], ct2_d1_z: "
            "f64[2], ct2_d1_unused: f64[2] -> d2_x = none, d2_w = none, d2_d = none, d2_r = none, "
            "d2_z = none, d2_unused = none, d2_ct1_y: f64[2]");
  // No optimisation changes what is `none`.
  ir::Graph low = lowered(g);
  for (size_t s = 0; s < 3; ++s)
    for (size_t i = 0; i < g.stages[s].results.size(); ++i)
      EXPECT_EQ(low.stages[s].results[i].value == ir::no_value,
                g.stages[s].results[i].value == ir::no_value);
}

// Every combination of absent cotangents in every stage is what zeros are.
// SPEC D2
TEST(Differentiate, AbsentCotangentsAreZeros) {
  ir::Graph g = derived(R"(
graph f {
  stage 0 (%x: f64[2, 3], %w: f64[3]) {
    %a = mul(%x, %w)
    %t = transpose(%a) {dim0 = 0, dim1 = 1}
    %e = exp(%t)
    %m = matmul(%a, %e)
    %s = sum(%m)
    %l = logsumexp(%a) {dim = 1}
    return t = %t, m = %m, s = %s, l = %l
  }
}
)",
                        {.order = 3});
  std::mt19937_64 random(11);
  std::vector<std::vector<Tensor>> full;
  auto code = Code::compile(g);
  for (size_t s = 0; s < 4; ++s) {
    full.emplace_back();
    for (size_t i = 0; i < code->inputs(s); ++i) {
      Sizes shape;
      for (const ir::Dim& d : code->input_type(s, i).dims) shape.push_back(d.value());
      full.back().push_back(normal(shape, random));
    }
  }
  for (int round = 0; round < 300; ++round) {
    State absent(code), zero(code);
    for (size_t s = 0; s < 4; ++s) {
      std::vector<Tensor> with_absent = full[s], with_zeros = full[s];
      for (size_t i = 0; s > 0 && i < full[s].size(); ++i)
        // Round 0 has all absent.
        if (round == 0 || random() % 2) {
          with_absent[i] = Tensor();
          with_zeros[i] = Tensor::zeros(DType::f64, full[s][i].shape());
        }
      auto a = absent.run(with_absent), z = zero.run(with_zeros);
      for (size_t i = 0; i < a.size(); ++i) {
        if (!a[i].defined() && z[i].defined())
          for (double v : z[i].to_doubles()) EXPECT_EQ(v, 0);
        else
          EXPECT_TRUE(same_values(a[i], z[i])) << "round " << round << " stage " << s << " " << i;
      }
    }
  }
}

// SPEC D2
TEST(Differentiate, AbsentValuesMeetAddReturnAndTheRest) {
  const char* text = R"(
graph f {
  stage 0 (%x: f64[2]) {
    return %x
  }
  stage 1 (%a: f64[2], %b: f64[2]) {
    %sum = add(%a, %b)
    %weighted = add(%a, %b) {alpha = 2.0}
    %wide = add(%a, 1.0)
    %product = mul(%a, %x)
    %view = reshape(%a) {shape = [2, 1]}
    %u = undefined() {dtype = f64, shape = [2]}
    %v = add(%u, %b)
    %w = add(%sum, %u)
    return sum = %sum, weighted = %weighted, wide = %wide, product = %product,
      view = %view, a = %a, u = %u, v = %v, w = %w
  }
  stage 2 () {
    %later = add(%a, %x)
    %none = add(%u, %a)
    return later = %later, nothing = %none, a = %a
  }
}
)";
  auto run_with = [&](Tensor a, Tensor b) {
    return run_all(graph_of(text), {{f64({5, 6})}, {a, b}, {}});
  };
  auto values = [](const Tensor& t) {
    return t.defined() ? t.to_doubles() : std::vector<double>{-1};
  };
  using D = std::vector<double>;
  const D absent{-1};
  auto r = run_with(Tensor(), f64({1, 2}));
  EXPECT_EQ(values(r[1][0]), (D{1, 2}));
  EXPECT_EQ(values(r[1][1]), (D{2, 4}));
  EXPECT_EQ(values(r[1][2]), (D{1, 1}));
  EXPECT_EQ(values(r[1][3]), (D{0, 0}));
  EXPECT_EQ(values(r[1][4]), (D{0, 0}));
  EXPECT_EQ(values(r[1][5]), absent);
  EXPECT_EQ(values(r[1][6]), absent);
  EXPECT_EQ(values(r[1][7]), (D{1, 2}));
  EXPECT_EQ(values(r[1][8]), (D{1, 2}));
  EXPECT_EQ(values(r[2][0]), (D{5, 6}));
  EXPECT_EQ(values(r[2][1]), absent);
  EXPECT_EQ(values(r[2][2]), absent);
  r = run_with(Tensor(), Tensor());
  EXPECT_EQ(values(r[1][0]), absent);
  EXPECT_EQ(values(r[1][1]), (D{0, 0}));
  EXPECT_EQ(values(r[1][8]), absent);
  r = run_with(f64({3, 4}), Tensor());
  EXPECT_EQ(values(r[1][0]), (D{3, 4}));
  EXPECT_EQ(values(r[1][1]), (D{3, 4}));
  EXPECT_EQ(values(r[1][7]), absent);
  EXPECT_EQ(values(r[2][1]), (D{3, 4}));
  // What types cannot prove equal is a sum all the same.
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[N], %w: f64[M]) {
    %a = mul(%x, %w)
    %b = mul(%w, %a)
    return %a, %b
  }
}
)",
                      1);
  State state(code);
  run(state, {f64({1, 2}), f64({3, 4})});
  auto g = run(state, {Tensor(), Tensor()});
  for (const Tensor& t : g)
    for (double v : t.to_doubles()) EXPECT_EQ(v, 0);
}

// Absent inputs are cotangents; what is counted cannot be one.
// SPEC D2, I6
TEST(Differentiate, OnlyFloatingInputsMayBeAbsent) {
  auto code = compile(R"(
graph f {
  stage 0 (%x: f64[3]) {
    return %x
  }
  stage 1 (%i: i64[2]) {
    %y = index_select(%x, %i) {dim = 0}
    return %y
  }
}
)");
  State state(code);
  run(state, {f64({1, 2, 3})});
  std::string message = error_of([&] { run(state, {Tensor()}); });
  EXPECT_NE(message.find("stage 1: input 'i' is undefined"), std::string::npos) << message;
  EXPECT_FALSE(state.poisoned());
}

}  // namespace
}  // namespace gradus
