// Derivatives along directions: their interfaces, their values against differences, their cost, and
// what is refused. tests/property/directions_test.cpp holds every operator against its vjp.
// SPEC D8
#include <cmath>

#include "gradus/passes.h"
#include "tests/functions.h"
#include "tests/passes/support.h"

namespace gradus::test {
namespace {

const std::string two_results = R"(
graph p {
  stage 0 (%x: f64[3], %w: f64[3, 2], %n: i64[]) {
    %h = matmul(%x, %w)
    %u = tanh(%h)
    %s = mul(%x, %x)
    %v = sum(%s)
    %k = floor(%x)
    return %u, %v, %k
  }
}
)";

const std::string energy = R"(
graph e {
  stage 0 (%x: f64[3, 2], %c: f64[2]) {
    %d = sub(%x, %c)
    %q = square(%d)
    %g = sin(%x)
    %m = mul(%q, %g)
    %t = exp(%m)
    %e = sum(%t)
    return %e
  }
}
)";

Tensor make(std::initializer_list<int64_t> shape, double start) {
  std::vector<double> values;
  for (int64_t i = 0; i < numel(Sizes(shape)); ++i)
    values.push_back(0.9 * std::sin(start + 1.7 * static_cast<double>(i)));
  return Tensor::from(DType::f64, Sizes(shape), values);
}

std::map<std::string, Tensor> run(const ir::Graph& g, const std::vector<Tensor>& inputs) {
  ir::verify(g);
  State state(Code::compile(g));
  auto results = state.run(inputs);
  std::map<std::string, Tensor> by_name;
  for (size_t i = 0; i < results.size(); ++i) by_name[g.stages[0].results[i].name] = results[i];
  return by_name;
}

Tensor moved(const Tensor& x, int64_t at, double by) {
  auto v = x.to_doubles();
  v[static_cast<size_t>(at)] += by;
  return Tensor::from(x.dtype(), Sizes(x.shape()), v);
}

// d result / d element `at` of input i, by central differences.
std::vector<double> slope(const ir::Graph& g, std::vector<Tensor> inputs, const std::string& result,
                          size_t i, int64_t at) {
  constexpr double h = 1e-5;
  Tensor x = inputs[i];
  inputs[i] = moved(x, at, h);
  auto up = run(g, inputs)[result].to_doubles();
  inputs[i] = moved(x, at, -h);
  auto down = run(g, inputs)[result].to_doubles();
  for (size_t k = 0; k < up.size(); ++k) up[k] = (up[k] - down[k]) / (2 * h);
  return up;
}

void expect_near(double a, double b) { EXPECT_NEAR(a, b, 1e-7 * std::max(1.0, std::fabs(b))); }

TEST(Directions, NameWhatTheyAdd) {
  ir::Graph g = graph_of(two_results);
  EXPECT_EQ(signature(ir::jvp(g), 0),
            "x: f64[3], w: f64[3, 2], n: i64[], t_x: f64[3], t_w: f64[3, 2] -> u: f64[2], v: f64[],"
            " k: f64[3], t_u: f64[2], t_v: f64[], t_k = none");
  EXPECT_EQ(signature(ir::jvp(g, {.wrt = {{"w"}}}), 0),
            "x: f64[3], w: f64[3, 2], n: i64[], t_w: f64[3, 2] -> u: f64[2], v: f64[], k: f64[3],"
            " t_u: f64[2], t_v = none, t_k = none");
  EXPECT_EQ(signature(ir::jacobian(g, {.wrt = {{"x"}}}), 0),
            "x: f64[3], w: f64[3, 2], n: i64[] -> u: f64[2], v: f64[], k: f64[3], jacobian_u_x: "
            "f64[2, 3], jacobian_v_x: f64[3], jacobian_k_x = none");
  ir::Graph e = graph_of(energy);
  EXPECT_EQ(signature(ir::hvp(e), 0),
            "x: f64[3, 2], c: f64[2], t_x: f64[3, 2], t_c: f64[2] -> e: f64[], hvp_x: f64[3, 2], "
            "hvp_c: f64[2]");
  EXPECT_EQ(signature(ir::laplacian(e, {.wrt = {{"x"}}}), 0),
            "x: f64[3, 2], c: f64[2] -> e: f64[], laplacian_x: f64[]");
  EXPECT_EQ(signature(ir::hessian(e), 0),
            "x: f64[3, 2], c: f64[2] -> e: f64[], hessian_x_x: f64[3, 2, 3, 2], hessian_x_c: f64[3,"
            " 2, 2], hessian_c_x: f64[2, 3, 2], hessian_c_c: f64[2, 2]");
}

TEST(Directions, JvpAndJacobianAreSlopes) {
  ir::Graph g = graph_of(two_results);
  std::vector<Tensor> inputs{make({3}, 0.3), make({3, 2}, 1.1), Tensor::scalar(DType::i64, 2)};
  auto whole = run(ir::jacobian(g), inputs);
  std::vector<Tensor> with_tangents = inputs;
  with_tangents.push_back(make({3}, 2.0));
  with_tangents.push_back(make({3, 2}, 3.0));
  auto along = run(ir::jvp(g), with_tangents);
  for (const char* y : {"u", "v"}) {
    auto t = along[std::string("t_") + y].to_doubles();
    std::vector<double> sum(t.size());
    for (size_t i = 0; i < 2; ++i) {
      const char* x = i == 0 ? "x" : "w";
      const Tensor& j = whole[fmt::format("jacobian_{}_{}", y, x)];
      for (int64_t at = 0; at < inputs[i].numel(); ++at) {
        auto d = slope(g, inputs, y, i, at);
        for (size_t k = 0; k < d.size(); ++k) {
          sum[k] += d[k] * with_tangents[3 + i].item(at);
          double got = j.defined() ? j.item(static_cast<int64_t>(k) * inputs[i].numel() + at) : 0;
          expect_near(got, d[k]);
        }
      }
    }
    for (size_t k = 0; k < t.size(); ++k) expect_near(t[k], sum[k]);
  }
}

TEST(Directions, SecondDerivativesAreSlopesOfTheGradient) {
  ir::Graph g = graph_of(energy);
  ir::Graph first = ir::jacobian(g);
  std::vector<Tensor> inputs{make({3, 2}, 0.3), make({2}, 1.1)};
  std::vector<Tensor> with_tangents = inputs;
  with_tangents.push_back(make({3, 2}, 2.0));
  with_tangents.push_back(make({2}, 3.0));
  auto hessian = run(ir::hessian(g), inputs), laplacian = run(ir::laplacian(g), inputs);
  auto hvp = run(ir::hvp(g), with_tangents);
  const std::string names[] = {"x", "c"};
  for (size_t w = 0; w < 2; ++w) {
    std::vector<double> product(static_cast<size_t>(inputs[w].numel()));
    for (size_t x = 0; x < 2; ++x) {
      double trace = 0;
      for (int64_t at = 0; at < inputs[x].numel(); ++at) {
        auto d = slope(first, inputs, "jacobian_e_" + names[w], x, at);
        const Tensor& h = hessian[fmt::format("hessian_{}_{}", names[x], names[w])];
        for (size_t k = 0; k < d.size(); ++k) {
          expect_near(h.item(at * static_cast<int64_t>(d.size()) + static_cast<int64_t>(k)), d[k]);
          product[k] += d[k] * with_tangents[2 + x].item(at);
        }
        if (x == w) trace += d[static_cast<size_t>(at)];
      }
      if (x == w) expect_near(laplacian["laplacian_" + names[x]].item(), trace);
    }
    for (size_t k = 0; k < product.size(); ++k)
      expect_near(hvp["hvp_" + names[w]].item(static_cast<int64_t>(k)), product[k]);
  }
}

// Sizes that only a run knows stay symbolic; there are fewer columns than rows: forward mode.
TEST(Directions, TakeSymbolicSizes) {
  ir::Graph g = graph_of(
      "graph p { stage 0 (%x: f64[N], %w: f64[2]) { %a = select(%w) {dim = 0, index = 0}"
      " %b = select(%w) {dim = 0, index = 1} %p = mul(%x, %a) %q = add(%p, %b) %y = sin(%q)"
      " return %y } }");
  ir::Graph by_w = ir::jacobian(g, {.wrt = {{"w"}}}), by_x = ir::jacobian(g, {.wrt = {{"x"}}});
  EXPECT_EQ(to_string(by_w[by_w.stages[0].results[1].value].type), "f64[N, 2]");
  EXPECT_EQ(to_string(by_x[by_x.stages[0].results[1].value].type), "f64[N, N]");
  for (int64_t n : {1, 4}) {
    std::vector<Tensor> inputs{make({n}, 0.4), make({2}, 1.0)};
    Tensor w = run(by_w, inputs)["jacobian_y_w"], x = run(by_x, inputs)["jacobian_y_x"];
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < 2; ++i)
        expect_near(w.item(k * 2 + i), slope(g, inputs, "y", 1, i)[static_cast<size_t>(k)]);
      for (int64_t i = 0; i < n; ++i)
        expect_near(x.item(k * n + i), slope(g, inputs, "y", 0, i)[static_cast<size_t>(k)]);
    }
  }
}

// Forward mode costs about what the function costs: nothing of the backward pass is left.
TEST(Directions, JvpKeepsNothingOfTheBackwardPass) {
  ir::Graph g = graph_of(
      "graph p { stage 0 (%x: f64[8]) { %a = sin(%x) %b = mul(%a, %x) %c = tanh(%b)"
      " %d = mul(%c, %a) return %d } }");
  ir::Graph forward = lowered(ir::jvp(g));
  // For sin: cos and mul; two products: two muls and an add each; tanh: its slope and a mul.
  EXPECT_LE(count(forward, 0), 4u + 2 + 3 + 4 + 3);
  EXPECT_EQ(count(forward, 0, "full"), 0u);
}

// What comes out is a program like any other.
TEST(Directions, CanBeDifferentiatedFurther) {
  ir::Graph g = graph_of(energy);
  ir::Graph third = derived(ir::laplacian(g, {.wrt = {{"x"}}}), {.order = 1, .wrt = {{"x"}}});
  std::vector<Tensor> inputs{make({3, 2}, 0.3), make({2}, 1.1)};
  State state(Code::compile(third));
  state.run(inputs);
  auto gradient =
      state.run(std::vector<Tensor>{Tensor(), Tensor::scalar(DType::f64, 1)})[0].to_doubles();
  for (size_t i = 0; i < gradient.size(); ++i)
    expect_near(gradient[i], slope(ir::laplacian(g, {.wrt = {{"x"}}}), inputs, "laplacian_x", 0,
                                   static_cast<int64_t>(i))[0]);
  EXPECT_EQ(ir::print(graph_of(ir::print(ir::hessian(g)))), ir::print(ir::hessian(g)));
}

TEST(Directions, BatchTheCotangentsOfAStage) {
  ir::Graph g = derived(two_results, {.order = 1});
  ir::Graph batched = ir::batch_cotangents(g, ir::Dim::symbol("B"));
  ir::verify(batched);
  EXPECT_EQ(signature(batched, 1),
            "ct1_u: f64[B, 2], ct1_v: f64[B], ct1_k: f64[B, 3] -> d1_x: f64[B, 3], d1_w: f64[B, 3, "
            "2]");
}

// One call for a whole batch, whose size may have a name: no call for each cotangent.
TEST(Directions, BatchWhatWritesIntoATensor) {
  for (const char* call :
       {"slice_scatter(%x, %s) {dim = -1, start = 1, step = 2}", "scatter(%x, %i, %s) {dim = 1}",
        "index_copy(%x, %k, %s) {dim = 1}", "diagonal_scatter(%x, %k_) {offset = 1}",
        "narrow(%x) {dim = -1, start = 1, length = 2}"}) {
    const std::string text = fmt::format(
        "graph p {{ stage 0 (%x: f64[2, 4], %s: f64[2, 2], %i: i64[2, 2], %k: i64[2], %k_: f64[2])"
        " {{ %y = {} return %y }} }}",
        call);
    ir::Graph g = derived(graph_of(text), {.order = 1});
    for (const ir::Dim& size : {ir::Dim::symbol("B"), ir::Dim(2)}) {
      ir::Graph many = ir::batch_cotangents(g, size);
      ir::verify(many);
      EXPECT_EQ(ir::print(many).find("stack"), std::string::npos) << ir::print(many);
    }
  }
  // Of the cotangent itself, as a derivative that somebody writes may have it.
  ir::Graph g = graph_of(
      "graph p { stage 0 (%x: f64[2, 4]) { %y = narrow(%x) {dim = -1, start = 1, length = 2} "
      "return %y } stage 1 (%ct1_y: f64[2, 2]) { %n = narrow(%ct1_y) {dim = -1, start = 0, "
      "length = 1} %d = expand(%n) {shape = [2, 4]} return d1_x = %d } }");
  ir::Graph many = ir::batch_cotangents(g, ir::Dim::symbol("B"));
  EXPECT_NE(ir::print(many).find("narrow(%ct1_y) {dim = 2,"), std::string::npos) << ir::print(many);
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
void expect_refusal(const std::function<void()>& f, const std::string& text) {
  std::string said = refusal(f);
  EXPECT_NE(said.find(text), std::string::npos) << said << "\nexpected: " << text;
}

TEST(Directions, AreRefusedWhereTheyMeanNothing) {
  ir::Graph g = graph_of(two_results), e = graph_of(energy);
  expect_refusal([&] { ir::jvp(derived(g, {.order = 1})); }, "jvp takes a program of one stage");
  expect_refusal([&] { ir::hvp(g); }, "one floating result that is 0-d; 'p' has u f64[2], v f64[]");
  expect_refusal([&] { ir::jvp(g, {.wrt = {{"z"}}}); }, "there is no input 'z'");
  expect_refusal([&] { ir::jvp(g, {.wrt = {{"n"}}}); }, "only floating inputs");
  expect_refusal([&] { ir::batch_cotangents(g, 2); }, "has one stage");
  expect_refusal(
      [&] {
        ir::jvp(
            graph_of("graph p { stage 0 (%x: f64[2], %t_x: f64[2]) { %y = mul(%x, %t_x) "
                     "return %y } }"));
      },
      "%t_x is needed, but that name is taken");
  ir::Graph r =
      graph_of("graph p { stage 0 (%x: f64[2]) { %y = nonzero(%x) {count = K} return %y } }");
  for (const ir::Dim& size : {ir::Dim::symbol("B"), ir::Dim(2)})
    expect_refusal([&] { ir::batch(r, {"x"}, size); },
                   "nonzero: takes no batch: data decides how many results each call has");
}

// y = sum of f(x) x, through a function.
TEST(Directions, TakeFunctionsThatHaveASecondDerivative) {
  register_test_functions();
  auto text = [](const char* function) {
    return graph_of(fmt::format(
        "graph p {{ stage 0 (%x: f64[3]) {{ %s = cpp_op(%x) {{name = \"{}\"}} %m = mul(%s, %x)"
        " %y = sum(%m) return %y }} }}",
        function));
  };
  ir::Graph g = text("t.square");
  Tensor x = make({3}, 0.4), t = make({3}, 2.0);
  auto jvp = run(ir::jvp(g), {x, t}), hvp = run(ir::hvp(g), {x, t});
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    sum += 3 * x.item(i) * x.item(i) * t.item(i);
    expect_near(hvp["hvp_x"].item(i), 6 * x.item(i) * t.item(i));
  }
  expect_near(jvp["t_y"].item(), sum);
  expect_refusal([&] { ir::hvp(text("t.swish")); }, "'t.swish' can be differentiated 2 times");
  expect_refusal([&] { ir::hessian(g); }, "takes no batch");
}

}  // namespace
}  // namespace gradus::test
