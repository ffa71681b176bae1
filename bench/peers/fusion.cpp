// Pointwise chains of many sizes, and softmax and layer norm over rows of 1024, beside libtorch's
// eager operators: a program with its derivatives, stages one after the other. `memcpys` of the
// rows is our time by that of a copy of as many bytes as a result has.
#include <cstring>

#include <torch/torch.h>

#include "bench/programs.h"
#include "bench/side_by_side.h"
#include "fusion/kernels.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/text.h"

namespace gradus::bench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Peer = std::function<at::Tensor(const Tensors&)>;

// Values of N(0, 1) for all stages up to an order, and the same for libtorch.
struct Both {
  std::shared_ptr<Context> context;
  std::optional<State> state;
  std::vector<std::vector<Tensor>> inputs, results;
  std::vector<Tensors> theirs;

  Both(const std::string& text, int order, int workers) {
    ContextOptions options;
    options.workers = workers;
    context = std::make_shared<Context>(options);
    auto code = Code::compile(ir::differentiate(ir::parse(text).program(), {.order = order}));
    state.emplace(code, context, StateOptions{.fusion = FusionMode::first});
    state->prepare({});
    for (size_t s = 0; s < code->stages(); ++s) {
      inputs.emplace_back();
      results.emplace_back(code->stage(s).returns.size());
      theirs.emplace_back();
      for (size_t i = 0; i < code->inputs(s); ++i) {
        Sizes shape;
        for (const ir::Dim& d : code->input_type(s, i).dims) shape.push_back(d.value());
        Tensor t = random_tensor(DType::f32, shape, code->input_name(s, i), 1, *context);
        theirs[s].push_back(at::from_blob(const_cast<std::byte*>(t.data()),
                                          at::IntArrayRef(shape.data(), shape.size()))
                                .clone()
                                .requires_grad_(true));
        inputs[s].push_back(std::move(t));
      }
    }
  }
  void run() {
    state->restart();
    for (size_t s = 0; s < inputs.size(); ++s) state->run_into(inputs[s], results[s]);
    benchmark::DoNotOptimize(results.data());
  }
  // Each derivative by what the stages before have taken, as ours.
  void run_theirs(const Peer& peer) {
    Tensors results{peer(theirs[0])}, all = theirs[0];
    const size_t stages = theirs.size();
    for (size_t s = 1; s < stages; ++s) {
      results = torch::autograd::grad(results, all, theirs[s], true, s + 1 < stages, true);
      all.insert(all.end(), theirs[s].begin(), theirs[s].end());
    }
    benchmark::DoNotOptimize(results);
  }
};

void compare(benchmark::State& bench, const std::string& text, int order, int workers,
             const Peer& peer, int64_t bytes) {
  at::set_num_threads(workers);
  Both both(text, order, workers);
  side_by_side(
      bench, Clock::wall, [&] { both.run(); }, [&] { both.run_theirs(peer); });
  if (bytes < (1 << 20)) return;
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from.size());
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    const double start = now(Clock::wall);
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    times.push_back(now(Clock::wall) - start);
  }
  bench.counters["memcpys"] = bench.counters["gradus_us"] * 1e-6 / median(times);
}

constexpr int64_t columns = 1024;
std::string softmax_text(int64_t rows) {
  return fmt::format(R"(graph softmax {{
  stage 0 (%x: f32[{}, {}]) {{
    %y = softmax(%x) {{dim = -1}}
    return %y
  }}
}})",
                     rows, columns);
}
std::string layer_norm_text(int64_t rows) {
  return fmt::format(R"(graph layer_norm {{
  stage 0 (%x: f32[{0}, {1}], %w: f32[{1}], %b: f32[{1}]) {{
    %y = layer_norm(%x, %w, %b) {{normalized_shape = [{1}]}}
    return %y
  }}
}})",
                     rows, columns);
}

at::Tensor chain_peer(const Tensors& in) {
  return at::tanh(in[0] * in[1] + in[2]) * at::sigmoid(in[0]) - in[2] * 0.5;
}
at::Tensor softmax_peer(const Tensors& in) { return in[0].softmax(-1); }
at::Tensor layer_norm_peer(const Tensors& in) {
  return at::layer_norm(in[0], {columns}, in[1], in[2]);
}

void add(const std::string& name, const std::string& text, int order, const Peer& peer,
         int64_t bytes, int rounds) {
  for (int workers : {1, 2})
    benchmark::RegisterBenchmark(
        fmt::format("{}/order_{}/{}", name, order, workers).c_str(),
        [=](benchmark::State& bench) { compare(bench, text, order, workers, peer, bytes); })
        ->UseManualTime()
        ->Iterations(rounds);
}

const bool registered = [] {
  for (int order : {0, 1})
    for (int64_t bits : {6, 10, 14, 18, 20, 22, 24}) {
      const int64_t n = int64_t{1} << bits;
      add(fmt::format("chain/{}", n), gated_chain_text(n), order, chain_peer, n * 4,
          bits > 20 ? 8 : 20);
    }
  for (int order : {0, 1, 2})
    for (int64_t rows : {1, 16, 256, 4096}) {
      const int64_t bytes = rows * columns * 4;
      const int rounds = rows < 4096 ? 20 : 10;
      add(fmt::format("softmax/{}", rows), softmax_text(rows), order, softmax_peer, bytes, rounds);
      add(fmt::format("layer_norm/{}", rows), layer_norm_text(rows), order, layer_norm_peer, bytes,
          rounds);
    }
  return true;
}();

}  // namespace
}  // namespace gradus::bench

BENCHMARK_MAIN();
