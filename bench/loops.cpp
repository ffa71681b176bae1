// Loops: the programs of bench/loops on prepared states, and unrolled beside themselves.
//
// `bench_loops --serve` runs them for bench/loops/beside_jax.py instead, told by lines what to do.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "bench/side_by_side.h"
#include "gradus/inputs.h"
#include "gradus/passes.h"
#include "gradus/state.h"
#include "gradus/text.h"

namespace gradus::bench {
namespace {

using Json = nlohmann::json;

const ir::Case& find_case(const ir::Fixture& fixture, const std::string& name) {
  for (const ir::Case& c : fixture.cases)
    if (c.name == name) return c;
  throw Error("there is no case '{}'", name);
}

// A case of a program's file, ready to be run again and again.
class Row {
 public:
  Row(const std::string& file, const std::string& name, bool unrolled) {
    const double start = now(Clock::wall);
    const ir::Fixture fixture = ir::parse_file(file);
    const ir::Case& chosen = find_case(fixture, name);
    ir::Graph graph = *fixture.module.graphs[chosen.graph];
    if (unrolled) {
      // A loop's derivative is taken before it is unrolled: the same bits.
      ir::expand_grad(graph);
      ir::unroll(graph);
    }
    auto code = Code::compile(graph);
    compiled_ = now(Clock::wall) - start;
    DimSizes sizes(chosen.sizes.begin(), chosen.sizes.end());
    state_.emplace(code, context_, StateOptions{.fusion = FusionMode::first});
    bytes_ = state_->prepare(sizes)[0];
    ready_ = now(Clock::wall) - start;
    inputs_ = draw(chosen, sizes);
  }

  std::vector<Tensor> run() {
    state_->restart();
    return state_->run(inputs_);
  }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  std::string input_name(size_t i) const { return state_->code()->input_name(0, i); }
  double compiled() const { return compiled_; }
  double ready() const { return ready_; }
  const StageMemory& bytes() const { return bytes_; }

 private:
  std::vector<Tensor> draw(const ir::Case& chosen, const DimSizes& sizes) {
    InputSources sources;
    sources.sizes = sizes;
    auto given = [&](std::string_view name) -> const ir::CaseInput& {
      for (const ir::CaseInput& i : chosen.inputs)
        if (i.name == name) return i;
      throw Error("no input '{}' in case '{}'", name, chosen.name);
    };
    sources.find = [&](std::string_view name) -> std::optional<FoundTensor> {
      if (const auto* tensor = std::get_if<Tensor>(&given(name).value))
        return FoundTensor{*tensor, "case"};
      return std::nullopt;
    };
    sources.fill = [&](std::string_view name, DType dtype, std::span<const int64_t> shape) {
      const auto& range = std::get<ir::RandomInput>(given(name).value);
      return uniform_tensor(dtype, shape, range.low, range.high, name, range.seed, *context_);
    };
    return find_inputs(*state_, sources);
  }

  std::shared_ptr<Context> context_ =
      std::make_shared<Context>(ContextOptions{.workers = 1, .allocator = {}, .log = {}});
  std::optional<State> state_;
  std::vector<Tensor> inputs_;
  double compiled_ = 0, ready_ = 0;
  StageMemory bytes_;
};

// How the values of tensors come and go: files of their bytes, in a folder.
void write(const std::string& path, const Tensor& t) {
  const Tensor dense = t.contiguous();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(dense.data()),
             static_cast<std::streamsize>(dense.numel() *
                                          static_cast<int64_t>(size_of(dense.dtype()))));
}

Json shape_of(const Tensor& t) {
  return {{"dtype", std::string(name_of(t.dtype()))},
          {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())}};
}

// load FILE CASE FOLDER loop|unrolled; run TIMES; results FOLDER. An answer is a line of JSON.
class Server {
 public:
  Json answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "load") return load(words);
    if (what == "run") return run(words);
    if (what == "results") return results(words);
    throw Error("what is '{}'?", what);
  }

 private:
  Json load(std::istream& words) {
    std::string file, name, folder, form;
    words >> file >> name >> folder >> form;
    row_.emplace(file, name, form == "unrolled");
    Json inputs = Json::array();
    for (size_t i = 0; i < row_->inputs().size(); ++i) {
      Json input = shape_of(row_->inputs()[i]);
      input["name"] = row_->input_name(i);
      inputs.push_back(input);
      write(fmt::format("{}/{}", folder, row_->input_name(i)), row_->inputs()[i]);
    }
    return {{"compiled", row_->compiled()},
            {"ready", row_->ready()},
            {"buffer", row_->bytes().buffer},
            {"inputs", inputs}};
  }
  Json run(std::istream& words) {
    int times = 1;
    words >> times;
    const double start = now(Clock::wall);
    for (int i = 0; i < times; ++i) benchmark::DoNotOptimize(row_->run());
    return {{"seconds", (now(Clock::wall) - start) / times}};
  }
  Json results(std::istream& words) {
    std::string folder;
    words >> folder;
    const auto found = row_->run();
    Json list = Json::array();
    for (size_t i = 0; i < found.size(); ++i) {
      list.push_back(shape_of(found[i]));
      write(fmt::format("{}/result_{}", folder, i), found[i]);
    }
    return {{"results", list}};
  }

  std::optional<Row> row_;
};

int serve() {
  Server server;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = server.answer(line);
    } catch (const Error& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer << std::endl;
  }
  return 0;
}

const std::string folder = "bench/loops/";

void loop(benchmark::State& bench, const std::string& file, const std::string& name) {
  Row row(folder + file, name, false);
  for (auto _ : bench) benchmark::DoNotOptimize(row.run());
  bench.counters["ready_ms"] = row.ready() * 1e3;
  bench.counters["buffer_MiB"] = static_cast<double>(row.bytes().buffer) / (1 << 20);
}

void against_unrolled(benchmark::State& bench, const std::string& file, const std::string& name) {
  Row ours(folder + file, name, false), unrolled(folder + file, name, true);
  side_by_side(
      bench, Clock::thread, [&] { benchmark::DoNotOptimize(ours.run()); },
      [&] { benchmark::DoNotOptimize(unrolled.run()); });
}

void add_rows() {
  const std::pair<std::string, std::vector<std::string>> programs[] = {
      {"cell_16.ir", {"1000", "8192"}}, {"cell_256.ir", {"1000", "8192"}},
      {"cholesky.ir", {"2000"}},        {"leaves.ir", {"2000"}},
      {"rk4.ir", {"1000", "100000"}},   {"md.ir", {"1000"}}};
  for (const auto& [file, lengths] : programs)
    for (const std::string& length : lengths)
      for (const std::string what : {"forward", "gradient", "training"})
        if (what != "training" || file.starts_with("cell"))
          benchmark::RegisterBenchmark(fmt::format("{}/{}_{}", file, what, length).c_str(), loop,
                                       file, what + "_" + length)
              ->Unit(benchmark::kMillisecond);
  for (const std::string file : {"cell_16.ir", "cholesky.ir", "rk4.ir", "md.ir"})
    for (const std::string what : {"forward", "gradient"})
      benchmark::RegisterBenchmark(fmt::format("{}/{}_200 against unrolled", file, what).c_str(),
                                   against_unrolled, file, what + "_200")
          ->UseManualTime()
          ->Iterations(15);
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--serve") return gradus::bench::serve();
  gradus::bench::add_rows();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
