// Derivatives at many points have the bits of those of each point, though the directions stand in
// front of the points there.
// SPEC D8
#include <gtest/gtest.h>

#include "gradus/error.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/property/samples.h"

namespace gradus::property {
namespace {

using DirectionPass = ir::Graph (*)(const ir::Graph&, const ir::DirectionOptions&);

std::string interface_of(const ir::Graph& g) {
  std::string text;
  for (ir::ValueId v : g.stages[0].inputs)
    text += fmt::format("{}: {}, ", g[v].name, to_string(g[v].type));
  for (const ir::Result& r : g.stages[0].results)
    text += fmt::format("{} = {}, ", r.name,
                        r.value == ir::no_value ? "none" : to_string(g[r.value].type));
  return text;
}

std::vector<Tensor> random_point_inputs(const State& state) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < state.code()->inputs(0); ++i) {
    const ir::Type& type = state.input_type(i);
    Sizes shape;
    for (const ir::Dim& d : type.dims) shape.push_back(d.is_constant() ? d.value() : 3);
    inputs.push_back(
        random_tensor(type.dtype, shape, state.input_name(i), 17, *Context::default_context()));
  }
  return inputs;
}

// Of a pass at many points, and the batch of the pass at one: the same interface, and the same
// bits. False where there is no such batch, which both say.
bool expect_same(const ir::Graph& program, DirectionPass pass, const ir::Points& points,
                 const std::vector<Tensor>* inputs, const std::string& what) {
  std::string refusal, other;
  std::optional<ir::Graph> at_points, of_one;
  try {
    of_one = ir::batch(pass(program, {}), points.inputs, points.size);
  } catch (const Error& e) {
    refusal = e.bare();
  }
  try {
    at_points = pass(program, {.points = points});
  } catch (const Error& e) {
    other = e.bare();
  }
  EXPECT_EQ(refusal, other) << what;
  if (!of_one || !at_points) return false;
  ir::verify(*at_points);
  EXPECT_EQ(interface_of(*at_points), interface_of(*of_one)) << what;
  State a(Code::compile(*at_points)), b(Code::compile(*of_one));
  const std::vector<Tensor> given = inputs ? *inputs : random_point_inputs(a);
  const auto got = a.run(given), want = b.run(given);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].defined(), want[i].defined());
    if (!want[i].defined()) continue;
    EXPECT_TRUE(bitwise_equal(got[i], want[i]))
        << what << ", result " << at_points->stages[0].results[i].name << ":\n"
        << ir::print(*at_points);
  }
  return true;
}

// The inputs of three calls one behind the other, of those that differ.
std::vector<Tensor> inputs_of_points(const Sample& s, const std::vector<bool>& differs) {
  std::vector<std::vector<Tensor>> calls;
  for (uint64_t seed : {21, 22, 23}) calls.push_back(s.inputs(DType::f64, seed));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < calls[0].size(); ++i) {
    if (!differs[i]) {
      inputs.push_back(calls[0][i]);
      continue;
    }
    Sizes shape{3};
    std::vector<double> all;
    for (const auto& call : calls) {
      const auto one = call[i].to_doubles();
      all.insert(all.end(), one.begin(), one.end());
    }
    shape.append(calls[0][i].shape().begin(), calls[0][i].shape().end());
    inputs.push_back(Tensor::from(calls[0][i].dtype(), shape, all));
  }
  return inputs;
}

TEST(Points, OfEveryOperatorHaveTheBitsOfOnePoint) {
  int checked = 0;
  for (const Sample& s : all_samples()) {
    auto program = s.program(DType::f64);
    if (!has_slopes(s, *program) || data_decides_a_size(*program)) continue;
    auto energy = ir::parse(squared(s, *program), "sample").graphs[0];
    const size_t n = program->stages[0].inputs.size();
    // All inputs differ, or the first alone, or all but the first.
    std::vector<std::vector<bool>> choices{std::vector<bool>(n, true)};
    if (n > 1) {
      choices.emplace_back(n, false)[0] = true;
      choices.emplace_back(n, true)[0] = false;
    }
    for (const auto& differs : choices) {
      ir::Points points{{}, checked % 2 ? ir::Dim(3) : ir::Dim::symbol("Points"), true};
      for (size_t i = 0; i < n; ++i)
        if (differs[i]) points.inputs.push_back((*program)[program->stages[0].inputs[i]].name);
      const auto inputs = inputs_of_points(s, differs);
      const std::string what = s.text(DType::f64);
      checked += expect_same(*program, ir::jacobian, points, &inputs, "jacobian of " + what);
      expect_same(*energy, ir::laplacian, points, &inputs, "laplacian of " + what);
      expect_same(*energy, ir::hessian, points, &inputs, "hessian of " + what);
    }
  }
  EXPECT_GT(checked, 500);
}

// Nodes before the derivative's, compositions with a derivative of their own, values that differ
// between no points, results without a path, several inputs.
TEST(Points, OfProgramsHaveTheBitsOfOnePoint) {
  const char* texts[] = {
      "(%x: f64[3], %w: f64[3, 4], %v: f64[4, 4]) { %a = matmul(%x, %w) %b = tanh(%a)"
      " %c = matmul(%b, %v) %d = tanh(%c) %q = mul(%d, %d) %e = sum(%q) return %e }",
      "(%x: f64[3], %w: f64[3]) { %s = softmax(%x) {dim = 0} %l = logsumexp(%w) {dim = [0]}"
      " %p = mul(%s, %w) %r = mul(%p, %l) %e = sum(%r) return %e, %l }",
      "(%x: f64[2], %w: f64[2]) { %s = sin(%w) %u = sum(%s) %p = mul(%x, %x) %q = mul(%p, %u)"
      " %e = sum(%q) return %e }",
      "(%x: f64[3, 2], %w: f64[5]) { %l = layer_norm(%x) {normalized_shape = [2]} %g = gelu(%l)"
      " %h = mul(%g, %x) %e = sum(%h) return %e }"};
  for (const char* text : texts) {
    const auto program = ir::parse(fmt::format("graph p {{ stage 0 {} }}", text), "p").graphs[0];
    std::vector<std::string> names;
    for (ir::ValueId v : program->stages[0].inputs) names.push_back((*program)[v].name);
    std::vector<std::vector<std::string>> choices{names};
    for (const std::string& name : names) choices.push_back({name});
    for (const auto& inputs : choices)
      for (const ir::Dim& size : {ir::Dim(3), ir::Dim(1), ir::Dim::symbol("Points")}) {
        EXPECT_TRUE(expect_same(*program, ir::jacobian, {inputs, size, true}, nullptr, text));
        if (program->stages[0].results.size() > 1) continue;
        EXPECT_TRUE(expect_same(*program, ir::laplacian, {inputs, size, true}, nullptr, text));
        EXPECT_TRUE(expect_same(*program, ir::hessian, {inputs, size, true}, nullptr, text));
      }
  }
}

}  // namespace
}  // namespace gradus::property
