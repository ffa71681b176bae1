#include "tests/ranks/joint.h"

#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/ranks/late.h"

namespace gradus::test {

RankBindings one_group(int ranks, const std::vector<std::string>& names, bool late) {
  RankBindings bindings(static_cast<size_t>(ranks));
  for (const std::string& name : names) {
    const auto ends = thread_ranks(ranks, std::chrono::seconds(20));
    for (size_t r = 0; r < bindings.size(); ++r)
      bindings[r][name] = late ? std::make_shared<Late>(ends[r]) : ends[r];
  }
  return bindings;
}

namespace {

StageTensors run_rank(const std::shared_ptr<const Code>& code,
                      const std::map<std::string, std::shared_ptr<Communicator>>& groups,
                      const StageTensors& inputs, FusionMode fusion, int workers,
                      const std::function<void(Context&)>& prepare) {
  const auto context = std::make_shared<Context>(ContextOptions{.workers = workers});
  for (const auto& [name, end] : groups) rank_groups(*context).bind(name, end);
  try {
    prepare(*context);
    State state(code, context, {.fusion = fusion});
    StageTensors results;
    for (const auto& stage : inputs) results.push_back(state.run(stage));
    return results;
  } catch (const std::exception& e) {
    for (const auto& [name, end] : groups) end->abandon(e.what());
    throw;
  }
}

}  // namespace

RankTensors run_jointly(const std::shared_ptr<const Code>& code, const RankBindings& ranks,
                        const RankTensors& inputs, FusionMode fusion, int workers,
                        const Prepare& prepare) {
  RankTensors results(ranks.size());
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        results[r] = run_rank(code, ranks[r], inputs[r], fusion, workers, [&](Context& context) {
          if (prepare) prepare(context, r);
        });
      } catch (...) {
        std::lock_guard guard(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
  return results;
}

namespace {

class SizesOfRank final : public ir::DimEnvironment {
 public:
  SizesOfRank(const ir::Graph& graph, int64_t rank, int64_t ranks)
      : graph_(graph), rank_(rank), ranks_(ranks) {}
  std::optional<int64_t> find(std::string_view symbol) const override {
    for (const ir::SizeRange& r : graph_.ranges)
      if (r.name == symbol && !r.group.empty()) return ranks_;
    return 2 + rank_;
  }

 private:
  const ir::Graph& graph_;
  const int64_t rank_, ranks_;
};

}  // namespace

RankTensors random_inputs(const ir::Graph& graph, int ranks, uint64_t seed) {
  RankTensors all(static_cast<size_t>(ranks));
  for (size_t r = 0; r < all.size(); ++r) {
    const SizesOfRank sizes(graph, static_cast<int64_t>(r), ranks);
    for (size_t s = 0; s < graph.stages.size(); ++s) {
      auto& inputs = all[r].emplace_back();
      for (size_t i = 0; i < graph.stages[s].inputs.size(); ++i) {
        const ir::Type& type = graph[graph.stages[s].inputs[i]].type;
        Sizes shape;
        for (const ir::Dim& d : type.dims) shape.push_back(d.evaluate(sizes));
        std::mt19937_64 random(seed + 1000 * s + 10 * i + (type.placement ? 100000 * (r + 1) : 0));
        std::normal_distribution<double> normal;
        Tensor t = Tensor::empty(DType::f64, shape);
        for (int64_t k = 0; k < t.numel(); ++k) t.mutable_data_as<double>()[k] = normal(random);
        inputs.push_back(type.dtype == DType::f64 ? t : t.to(type.dtype));
      }
    }
  }
  return all;
}

namespace {

double dot(const Tensor& x, const Tensor& y) {
  const Tensor a = x.to(DType::f64).contiguous(), b = y.to(DType::f64).contiguous();
  EXPECT_EQ(a.numel(), b.numel());
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) sum += a.data_as<double>()[i] * b.data_as<double>()[i];
  return sum;
}

}  // namespace

double inner_product(const ir::Type& type, std::span<const Tensor> x, std::span<const Tensor> y) {
  double sum = 0;
  for (size_t r = 0; r < x.size(); ++r) {
    if (!x[r].defined() || !y[r].defined()) continue;
    if (type.placement)  // the cotangent of a part is that of the sum
      sum += dot(x[r], y[r]);
    else if (r == 0)
      sum = dot(x[0], y[0]);
  }
  return sum;
}

}  // namespace gradus::test
