// Programs whose ranks exchange values: against the program that nobody shares out, and every
// derivative against differences of the stage before, of all ranks together.
// SPEC C2
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "gradus/passes.h"
#include "gradus/text.h"
#include "tests/ranks/joint.h"

namespace gradus::test {
namespace {

ir::Module read_program(const std::string& name) {
  const std::string path = std::string(GRADUS_SOURCE_DIR) + "/tests/ranks/programs/" + name + ".ir";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return ir::parse(text.str(), path);
}

const ir::Graph* graph_named(const ir::Module& module, std::string_view name) {
  for (const auto& g : module.graphs)
    if (g->name == name) return g.get();
  return nullptr;
}

const std::vector<std::string> names{"data", "line", "model"};

// One of each for every rank.
std::vector<Tensor> of_ranks(const RankTensors& all, size_t stage, size_t i) {
  std::vector<Tensor> tensors;
  for (const StageTensors& t : all) tensors.push_back(t[stage][i]);
  return tensors;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const Tensor x = a.contiguous(), y = b.contiguous();
  return std::ranges::equal(x.shape(), y.shape()) &&
         std::memcmp(x.data(), y.data(), static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

void expect_replicated(const ir::Graph& graph, const RankTensors& results) {
  for (size_t s = 0; s < graph.stages.size(); ++s)
    for (size_t i = 0; i < graph.stages[s].results.size(); ++i) {
      const ir::Result& r = graph.stages[s].results[i];
      if (r.value == ir::no_value || graph[r.value].type.placement) continue;
      for (const StageTensors& t : results)
        EXPECT_TRUE(equal_bits(t[s][i], results[0][s][i])) << "stage " << s << ", " << r.name;
    }
}

RankTensors moved(const RankTensors& from, const RankTensors& by, double h, size_t stages) {
  RankTensors to = from;
  for (size_t r = 0; r < from.size(); ++r)
    for (size_t s = 0; s < stages; ++s)
      for (size_t i = 0; i < from[r][s].size(); ++i) {
        Tensor t = from[r][s][i].copy();
        const double* d = by[r][s][i].data_as<double>();
        for (int64_t k = 0; k < t.numel(); ++k) t.mutable_data_as<double>()[k] += h * d[k];
        to[r][s][i] = t;
      }
  return to;
}

// <ct, y> of the stage's results, whose cotangents are inputs of the next stage.
double value_of(const ir::Graph& graph, size_t stage, const RankTensors& results,
                const RankTensors& inputs) {
  double sum = 0;
  const auto& takes = graph.stages[stage + 1].inputs;
  for (size_t i = 0; i < graph.stages[stage].results.size(); ++i) {
    const ir::Result& r = graph.stages[stage].results[i];
    if (r.value == ir::no_value) continue;
    const std::string name = fmt::format("ct{}_{}", stage + 1, r.name);
    for (size_t k = 0; k < takes.size(); ++k)
      if (graph[takes[k]].name == name)
        sum += inner_product(graph[r.value].type, of_ranks(inputs, stage + 1, k),
                             of_ranks(results, stage, i));
  }
  return sum;
}

// <d, direction> of the gradients that a stage gives.
double slope_of(const ir::Graph& graph, size_t stage, const RankTensors& results,
                const RankTensors& directions) {
  double sum = 0;
  for (size_t s = 0; s < stage; ++s)
    for (size_t k = 0; k < graph.stages[s].inputs.size(); ++k) {
      const ir::Value& x = graph[graph.stages[s].inputs[k]];
      for (size_t i = 0; i < graph.stages[stage].results.size(); ++i)
        if (graph.stages[stage].results[i].name == fmt::format("d{}_{}", stage, x.name))
          sum += inner_product(x.type, of_ranks(results, stage, i), of_ranks(directions, s, k));
    }
  return sum;
}

void check_derivatives(const ir::Graph& program, int ranks, int order,
                       const std::function<RankBindings(bool late)>& bind) {
  const ir::Graph graph = ir::differentiate(program, {.order = order});
  ir::verify(graph);
  const auto code = Code::compile(graph);
  const RankTensors inputs = random_inputs(graph, ranks, 1),
                    directions = random_inputs(graph, ranks, 2);
  const RankTensors results = run_jointly(code, bind(false), inputs);
  expect_replicated(graph, results);
  for (size_t k = 1; k <= static_cast<size_t>(order); ++k) {
    constexpr double h = 1e-5;
    double values[2];
    for (int side : {0, 1}) {
      const RankTensors there = moved(inputs, directions, side ? h : -h, k);
      values[side] = value_of(graph, k - 1, run_jointly(code, bind(false), there), inputs);
    }
    const double difference = (values[1] - values[0]) / (2 * h);
    const double slope = slope_of(graph, k, results, directions);
    EXPECT_NE(slope, 0);
    EXPECT_NEAR(slope, difference, 1e-6 * (1 + std::abs(slope))) << "stage " << k;
  }
  auto expect_the_same = [&](const RankTensors& other, const char* how) {
    for (size_t r = 0; r < results.size(); ++r)
      for (size_t s = 0; s < results[r].size(); ++s)
        for (size_t i = 0; i < results[r][s].size(); ++i)
          EXPECT_TRUE(equal_bits(other[r][s][i], results[r][s][i]))
              << how << ", rank " << r << ", stage " << s << ", result " << i;
  };
  expect_the_same(run_jointly(code, bind(true), inputs), "late");
  if (ranks != 2) return;
  expect_the_same(run_jointly(code, bind(false), inputs, FusionMode::first, 2), "fused");
  expect_the_same(run_jointly(code, bind(true), inputs, FusionMode::first, 2), "late, fused");
}

// What ranks have of one value, one behind the other; all have it where the type says so.
Tensor joined(const ir::Type& type, const std::vector<Tensor>& of) {
  if (!type.placement || !of[0].defined()) return of[0];
  Sizes shape(of[0].shape().begin(), of[0].shape().end());
  shape[0] = 0;
  for (const Tensor& t : of) shape[0] += t.shape()[0];
  Tensor all = Tensor::empty(DType::f64, shape);
  double* to = all.mutable_data_as<double>();
  for (const Tensor& t : of) {
    const Tensor c = t.contiguous();
    to = std::copy_n(c.data_as<double>(), c.numel(), to);
  }
  return all;
}

void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_TRUE(std::ranges::equal(a.shape(), b.shape())) << what;
  const Tensor x = a.contiguous(), y = b.contiguous();
  double largest = 1;
  for (int64_t i = 0; i < x.numel(); ++i)
    largest = std::max(largest, std::abs(y.data_as<double>()[i]));
  for (int64_t i = 0; i < x.numel(); ++i)
    EXPECT_NEAR(x.data_as<double>()[i], y.data_as<double>()[i], 1e-12 * largest) << what;
}

void check_whole(const ir::Graph& split, const ir::Graph& whole, int ranks, int order) {
  const ir::Graph ours = ir::differentiate(split, {.order = order});
  const ir::Graph theirs = ir::differentiate(whole, {.order = order});
  const RankTensors inputs = random_inputs(ours, ranks, 3);
  const RankTensors results = run_jointly(Code::compile(ours), one_group(ranks, names), inputs);
  State state(Code::compile(theirs), Context::default_context(), {.fusion = FusionMode::off});
  for (size_t s = 0; s < theirs.stages.size(); ++s) {
    ASSERT_EQ(theirs.stages[s].inputs.size(), ours.stages[s].inputs.size());
    std::vector<Tensor> together;
    for (size_t i = 0; i < ours.stages[s].inputs.size(); ++i) {
      EXPECT_EQ(theirs[theirs.stages[s].inputs[i]].name, ours[ours.stages[s].inputs[i]].name);
      together.push_back(joined(ours[ours.stages[s].inputs[i]].type, of_ranks(inputs, s, i)));
    }
    const auto expected = state.run(together);
    ASSERT_EQ(expected.size(), results[0][s].size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const ir::Result& r = ours.stages[s].results[i];
      EXPECT_EQ(theirs.stages[s].results[i].name, r.name);
      if (r.value == ir::no_value) continue;
      expect_close(joined(ours[r.value].type, of_ranks(results, s, i)), expected[i],
                   fmt::format("stage {}, {}, {} ranks", s, r.name, ranks));
    }
  }
}

class Programs : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(Programs, HaveTheDerivativesOfAllRanksTogether) {
  const auto [name, ranks] = GetParam();
  const ir::Module module = read_program(name);
  const ir::Graph* split = graph_named(module, "split");
  ASSERT_TRUE(split);
  check_derivatives(*split, ranks, ranks == 2 ? 3 : 2,
                    [ranks = ranks](bool late) { return one_group(ranks, names, late); });
}

TEST_P(Programs, GiveWhatOneRankGives) {
  const auto [name, ranks] = GetParam();
  const ir::Module module = read_program(name);
  const ir::Graph* whole = graph_named(module, "whole");
  if (!whole) return;  // the derivatives are held by differences alone
  check_whole(*graph_named(module, "split"), *whole, ranks, 2);
}

INSTANTIATE_TEST_SUITE_P(All, Programs,
                         testing::Combine(testing::Values("data_parallel", "gradient_penalty",
                                                          "gather", "blocks", "ring", "extremes",
                                                          "tensor_parallel", "parts", "scatter",
                                                          "loop"),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace gradus::test
